//! Fields of the configuration file, feature gates and flags.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use clap::CommandFactory;
use serde_json::Value;
use windlass_config::fields::{self, Support};
use windlass_config::flags::mirror::MIRRORS;
use windlass_config::load::IMPLEMENTED_GATES;
use windlass_config::{FeatureGates, KubeletConfiguration, KubeletFlags, layers};

use super::{code, head, table};

/// Sources of the configuration structs.
const SOURCES: [&str; 2] = [
    "crates/config/src/kubelet.rs",
    "crates/config/src/kubelet/parts.rs",
];

/// A field of a configuration struct.
struct Member {
    name: String,
    kind: String,
    docs: String,
}

/// `configuration.md`.
pub(super) fn configuration(
    source: &dyn Fn(&str) -> anyhow::Result<String>,
) -> anyhow::Result<String> {
    let mut structs = BTreeMap::new();
    for path in SOURCES {
        structs.append(&mut structs_of(&source(path)?));
    }
    let mut found = Vec::new();
    walk(&structs, "KubeletConfiguration", "", &mut found)?;
    let defaults = serde_json::to_value(KubeletConfiguration::default())?;
    let rows = fields::FIELDS.iter().map(|field| {
        let member = found.iter().find(|(path, _)| path == field.path);
        let (_, member) = member.with_context(|| format!("no source of {}", field.path))?;
        let flag = MIRRORS.iter().find(|mirror| mirror.path == field.path);
        Ok(vec![
            code(field.path),
            readable(&member.kind),
            default_of(&defaults, field.path),
            flag.map_or_else(String::new, |mirror| format!("`--{}`", mirror.flag)),
            support(field.support),
            member.docs.clone(),
        ])
    });
    let rows = rows.collect::<anyhow::Result<Vec<_>>>()?;
    let about = "Fields of `KubeletConfiguration` (`kubelet.config.k8s.io/v1beta1`). The agent \
                 logs a warning at startup for every field without full support; to check before, run \
                 `windlassctl check --config FILE`.";
    let heading = ["field", "type", "default", "flag", "state", "meaning"];
    Ok(head("Configuration", about) + &table(&heading, rows))
}

/// `feature-gates.md`.
pub(super) fn gates() -> String {
    let gates = FeatureGates::default();
    let rows = gates.all().map(|(gate, on)| {
        let state = match (IMPLEMENTED_GATES.contains(&gate.name), gate.locked) {
            (true, _) => "implemented",
            (false, true) => "locked",
            (false, false) if !gate.in_kubelet => "no effect in a kubelet",
            (false, false) => "not implemented",
        };
        let on = if on { "on" } else { "off" };
        vec![
            code(gate.name),
            gate.stage.to_string(),
            on.to_owned(),
            state.to_owned(),
        ]
    });
    let about = "Names, stages and defaults are those of Kubernetes 1.36. The agent logs a \
                 warning at startup for every gate that is set and not implemented. The feature of such a \
                 gate may exist without the gate, see [COVERAGE.md](../coverage/README.md). Gates of other \
                 Kubernetes components are accepted with one warning.";
    head("Feature gates", about) + &table(&["gate", "stage", "default", "state"], rows)
}

/// `flags.md`.
pub(super) fn flags() -> String {
    let command = KubeletFlags::command();
    let (mut own, mut mirrors, mut ignored) = (Vec::new(), Vec::new(), Vec::new());
    let mut arguments: Vec<_> = command.get_arguments().collect();
    arguments.sort_by_key(|argument| argument.get_long());
    for argument in arguments {
        let Some(long) = argument.get_long() else {
            continue;
        };
        let values = argument.get_value_names().unwrap_or_default();
        let flag = match values.first() {
            Some(value) => format!("`--{long}` {}", code(value)),
            None => format!("`--{long}`"),
        };
        let help = argument.get_help().map(ToString::to_string);
        let help = help.unwrap_or_default();
        if let Some(mirror) = MIRRORS.iter().find(|mirror| mirror.flag == long) {
            let state = fields::find(mirror.path).map(|field| support(field.support));
            mirrors.push(vec![flag, code(mirror.path), state.unwrap_or_default()]);
        } else if argument.is_hide_set() {
            ignored.push(format!("`--{long}`"));
        } else {
            let defaults = argument.get_default_values();
            let default = defaults.first().map(|value| value.to_string_lossy());
            own.push(vec![flag, code(&default.unwrap_or_default()), help]);
        }
    }
    let about = "Syntax as pflag: `--flag=value` and `--flag value` are equivalent, and underscores equal \
                 dashes. Repeated flags replace the value, or add to a list. Flags override the \
                 configuration file.";
    let rest = format!(
        "\n## Ignored flags\n\nFlags of cAdvisor and of earlier releases are accepted with a \
         warning at startup.\n\n{}\n",
        ignored.join(", ")
    );
    head("Flags", about)
        + &table(&["flag", "default", "meaning"], own)
        + "\n## Flags that mirror a field\n\nFor defaults and meanings, see \
           [configuration.md](configuration.md).\n"
        + &table(&["flag", "field", "state"], mirrors)
        + &rest
}

fn support(support: Support) -> String {
    match support {
        Support::Full => "supported".to_owned(),
        Support::Partial(rest) => format!("partially supported: {rest}"),
        Support::NotImplemented(missing) => format!("not implemented: requires {missing}"),
        Support::Ignored(reason) => format!("ignored: {reason}"),
    }
}

fn default_of(defaults: &Value, path: &str) -> String {
    match layers::get(defaults, path) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) if text.is_empty() => String::new(),
        Some(Value::String(text)) => code(text),
        Some(value) => code(&value.to_string()),
    }
}

/// Returns the name of a type in a configuration file.
fn readable(kind: &str) -> String {
    let inside = |outer: &str| kind.strip_prefix(outer)?.strip_suffix('>');
    if let Some(kind) = inside("Option<") {
        return readable(kind);
    }
    if let Some(kind) = inside("Vec<") {
        return format!("list of {}", readable(kind));
    }
    if let Some((_, value)) = inside("BTreeMap<").and_then(|both| both.split_once(", ")) {
        return format!("map to {}", readable(value));
    }
    match kind {
        "bool" => "boolean".to_owned(),
        "i32" | "i64" | "u32" | "u64" => "integer".to_owned(),
        "f64" => "number".to_owned(),
        "String" => "text".to_owned(),
        "GoDuration" => "duration".to_owned(),
        object => object.to_owned(),
    }
}

/// Collects the fields of a struct by path.
fn walk<'a>(
    structs: &'a BTreeMap<String, Vec<Member>>,
    name: &str,
    prefix: &str,
    found: &mut Vec<(String, &'a Member)>,
) -> anyhow::Result<()> {
    let Some(members) = structs.get(name) else {
        bail!("no struct {name} in the sources");
    };
    for member in members {
        let path = format!("{prefix}{}", member.name);
        if fields::find(&path).is_some() {
            found.push((path, member));
        } else {
            let kind = member.kind.strip_prefix("Option<");
            let kind = kind.map_or(&*member.kind, |kind| kind.trim_end_matches('>'));
            walk(structs, kind, &format!("{path}."), found)?;
        }
    }
    Ok(())
}

/// Structs of a source, whose members have one line each.
fn structs_of(source: &str) -> BTreeMap<String, Vec<Member>> {
    let mut structs: BTreeMap<String, Vec<Member>> = BTreeMap::new();
    let mut current = None;
    let (mut docs, mut rename) = (Vec::new(), None);
    for line in source.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("pub struct ") {
            let name = name.trim_end_matches(" {").to_owned();
            current = Some(structs.entry(name).or_default());
            docs.clear();
        } else if line == "}" {
            current = None;
        } else if let Some(text) = line.strip_prefix("/// ") {
            docs.push(text);
        } else if let Some(rest) = line.split_once("rename = \"").map(|(_, rest)| rest) {
            rename = rest.split('"').next();
        } else if let (Some(members), Some((name, kind))) = (
            current.as_mut(),
            line.strip_prefix("pub ").and_then(|it| it.split_once(": ")),
        ) {
            members.push(Member {
                name: rename.take().map_or_else(|| camel(name), str::to_owned),
                kind: kind
                    .split(" = ")
                    .next()
                    .unwrap_or(kind)
                    .trim_end_matches(',')
                    .to_owned(),
                docs: std::mem::take(&mut docs).join(" "),
            });
        }
    }
    structs
}

/// `max_pods` as `maxPods`.
fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |text, word| {
        let (head, tail) = word.split_at(word.len().min(1));
        text + &head.to_uppercase() + tail
    })
}
