//! What becomes of each setting of an existing kubelet: supported, ignored, or refused.
//!
//! It reads what the agent reads, by the same functions, and goes on where the agent would stop.
//! Values are not shown: some are secrets.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use serde::Serialize;
use serde_json::Value;

use super::{ACTED_UPON, ConfigError, Layers, Warning, gather, origin_of};
use crate::fields;
use crate::flags::{KubeletFlags, normalize};
use crate::gates::{self, FeatureGates};
use crate::layers;
use crate::validate::Fault;

/// What the agent does with a setting. The worst comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The agent does not start with it.
    Refused,
    /// The agent starts, and nothing follows from it.
    Ignored,
    /// Acted upon.
    Supported,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // pad, not write_str: tables align it
        f.pad(match self {
            Self::Refused => "refused",
            Self::Ignored => "ignored",
            Self::Supported => "supported",
        })
    }
}

/// One field, feature gate or flag.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Setting {
    /// What the agent does with it.
    pub verdict: Verdict,
    /// Path of a field, or a flag with its dashes; empty if it is about all of `origin`.
    pub name: String,
    /// The file or flag that set it last.
    pub origin: String,
    /// Why it is ignored, how to mend it, or what else there is to know; may be empty.
    pub remark: String,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            verdict,
            name,
            origin,
            remark,
        } = self;
        write!(f, "{verdict} {name} ({origin})")?;
        match remark.as_str() {
            "" => Ok(()),
            remark => write!(f, ": {remark}"),
        }
    }
}

/// Where flags come from.
const COMMAND_LINE: &str = "command line";

/// Goes through a kubelet's flags, without the program's name, and the files they point to. What
/// is refused comes first, what is ignored next.
pub fn report(args: impl IntoIterator<Item = OsString>) -> Vec<Setting> {
    let mut report = Report::default();
    let (flags, args) = report.read_flags(args);
    let mut refused = Vec::new();
    let gathered = gather(&flags, &mut |error| {
        refused.push(error);
        Ok(())
    });
    for error in refused {
        report.refuse(&error);
    }
    match gathered {
        Ok(layers) => report.read_layers(layers, &flags, &args),
        Err(error) => report.refuse(&error),
    }
    report.0.sort();
    report.0
}

#[derive(Default)]
struct Report(Vec<Setting>);

impl Report {
    fn add(&mut self, verdict: Verdict, name: &str, origin: &str, remark: impl Into<String>) {
        self.0.push(Setting {
            verdict,
            name: name.to_owned(),
            origin: origin.to_owned(),
            remark: remark.into(),
        });
    }

    /// An error that is not about a field of the merged configuration.
    fn refuse(&mut self, error: &ConfigError) {
        let (name, origin) = match error {
            ConfigError::Read { path, .. }
            | ConfigError::Parse { path, .. }
            | ConfigError::Kind { path, .. }
            | ConfigError::TooLarge { path } => (String::new(), path.display().to_string()),
            ConfigError::Flag { flag, .. } => (format!("--{flag}"), COMMAND_LINE.to_owned()),
            ConfigError::BootstrapAlone => {
                ("--bootstrap-kubeconfig".to_owned(), COMMAND_LINE.to_owned())
            }
            ConfigError::NodeLabel { .. } => ("--node-labels".to_owned(), COMMAND_LINE.to_owned()),
            ConfigError::Invalid(faults) => {
                return faults.iter().for_each(|fault| self.refuse_field(fault));
            }
        };
        let text = error.to_string();
        let about = if name.is_empty() { &origin } else { &name };
        let remark = text
            .strip_prefix(&format!("{about}: "))
            .unwrap_or(&text)
            .to_owned();
        // the rest of a line of flags may still be read, so one flag is not said twice
        self.0
            .retain(|known| known.name.is_empty() || known.name != name);
        self.add(Verdict::Refused, &name, &origin, remark);
    }

    fn refuse_field(&mut self, fault: &Fault) {
        self.add(
            Verdict::Refused,
            &fault.field,
            &fault.origin,
            &fault.message,
        );
    }

    /// Reads the flags; one that cannot be read is noted and left out.
    fn read_flags(
        &mut self,
        args: impl IntoIterator<Item = OsString>,
    ) -> (KubeletFlags, Vec<OsString>) {
        let mut args = normalize(std::iter::once(OsString::from("kubelet")).chain(args));
        loop {
            let error = match KubeletFlags::from_args(args.clone()) {
                Ok(flags) => return (flags, args),
                Err(error) => error,
            };
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            let remark = match error.kind() {
                ErrorKind::UnknownArgument => {
                    "the kubelet of this version has no such flag, remove it"
                }
                _ => first.strip_prefix("error: ").unwrap_or(first),
            };
            let Some(at) = at_fault(&args, &error) else {
                self.add(Verdict::Refused, "", COMMAND_LINE, remark);
                return (KubeletFlags::default(), Vec::new());
            };
            let mut removed = args.remove(at);
            let is_flag = removed.to_string_lossy().starts_with('-');
            if is_flag && !removed.to_string_lossy().contains('=') {
                // the word behind it is its value
                let is_value = |arg: &OsString| !arg.to_string_lossy().starts_with('-');
                if args.get(at).is_some_and(is_value) {
                    args.remove(at);
                }
            } else if let Some((name, _)) = removed.to_string_lossy().split_once('=') {
                removed = name.into();
            }
            self.add(
                Verdict::Refused,
                &removed.to_string_lossy(),
                COMMAND_LINE,
                remark,
            );
        }
    }

    fn read_layers(&mut self, mut layers: Layers, flags: &KubeletFlags, args: &[OsString]) {
        self.read_gates(&mut layers);
        let origins = layers.origins.clone();
        let mut told = {
            let mut layers = layers.clone();
            layers.warn_of_flags(flags);
            layers.warnings
        };
        let faults = match layers.finish(flags) {
            Ok(config) => {
                told = config.warnings;
                Vec::new()
            }
            Err(ConfigError::Invalid(faults)) => faults,
            Err(error) => return self.refuse(&error),
        };
        for fault in &faults {
            self.refuse_field(fault);
        }
        let refused = |path: &str| faults.iter().any(|fault| is_about(&fault.field, path));
        for (path, origin) in &origins {
            if !refused(path) && path != "featureGates" && !origin.starts_with("--") {
                self.read_field(path, path, origin, &told);
            }
        }
        // fields that no struct has are in the warnings only
        let unknown = told
            .iter()
            .filter(|it| it.message.starts_with("unknown field"));
        for Warning {
            origin,
            field,
            message,
        } in unknown
        {
            self.0.retain(|known| known.name != *field);
            self.add(Verdict::Ignored, field, origin, message);
        }
        self.read_given_flags(args, flags, &refused, &told);
    }

    fn read_field(&mut self, path: &str, name: &str, origin: &str, told: &[Warning]) {
        match fields::notice(path) {
            Some(notice) => self.add(Verdict::Ignored, name, origin, notice),
            None => {
                let remark = told.iter().find(|warning| warning.field == path);
                let remark = remark.map_or("", |warning| &warning.message);
                self.add(Verdict::Supported, name, origin, remark);
            }
        }
    }

    /// Gates one by one. Those that are refused are taken out, for the sake of the rest.
    fn read_gates(&mut self, layers: &mut Layers) {
        let asked = layers::get(&layers.merged, "featureGates").and_then(Value::as_object);
        let asked: BTreeMap<String, bool> = asked
            .into_iter()
            .flatten()
            .filter_map(|(name, on)| Some((name.clone(), on.as_bool()?)))
            .collect();
        let origin = origin_of(&layers.origins, "featureGates");
        let mut good = serde_json::Map::new();
        for (name, on) in asked {
            let path = format!("featureGates.{name}");
            if let Err(errors) = FeatureGates::new(&[(name.clone(), on)].into()) {
                for error in errors {
                    self.add(Verdict::Refused, &path, &origin, error.to_string());
                }
                continue;
            }
            // a group of gates is none itself
            let inert = gates::find(&name).is_some() && !ACTED_UPON.contains(&name.as_str());
            match inert {
                true => self.add(Verdict::Ignored, &path, &origin, NO_GATE),
                false => self.add(Verdict::Supported, &path, &origin, ""),
            }
            good.insert(name, Value::Bool(on));
        }
        if !good.is_empty() {
            layers::set(&mut layers.merged, "featureGates", Value::Object(good));
        } else if let Some(merged) = layers.merged.as_object_mut() {
            merged.remove("featureGates");
        }
    }

    fn read_given_flags(
        &mut self,
        args: &[OsString],
        flags: &KubeletFlags,
        refused: &dyn Fn(&str) -> bool,
        told: &[Warning],
    ) {
        let command = KubeletFlags::command();
        let Ok(matches) = command.clone().try_get_matches_from(args) else {
            return;
        };
        for argument in command.get_arguments() {
            let id = argument.get_id().as_str();
            let given = matches.value_source(id) == Some(ValueSource::CommandLine);
            let Some(long) = argument.get_long().filter(|_| given) else {
                continue;
            };
            let name = format!("--{long}");
            let mirrored = flags.config.0.iter().find(|setting| setting.flag == long);
            match mirrored {
                Some(setting) if setting.path == "featureGates" || refused(setting.path) => {}
                Some(setting) => self.read_field(setting.path, &name, COMMAND_LINE, told),
                None if self.0.iter().any(|known| known.name == name) => {}
                None => match told.iter().find(|warning| warning.origin == name) {
                    Some(warning) => {
                        self.add(Verdict::Ignored, &name, COMMAND_LINE, &warning.message);
                    }
                    None => self.add(Verdict::Supported, &name, COMMAND_LINE, ""),
                },
            }
        }
    }
}

const NO_GATE: &str = "nothing follows from this gate in this version";

/// Where the argument is that an error is about.
fn at_fault(args: &[OsString], error: &clap::Error) -> Option<usize> {
    let Some(ContextValue::String(shown)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    // shown as in the help: `--max-pods <INT>`
    let shown = shown.split([' ', '=', '[']).next()?;
    args.iter()
        .skip(1)
        .position(|arg| {
            let arg = arg.to_string_lossy();
            arg.split('=').next() == Some(shown)
        })
        .map(|at| at + 1)
}

/// Whether a fault's field, such as `registerWithTaints[0].key`, is the setting or part of it.
fn is_about(fault: &str, path: &str) -> bool {
    let rest = fault.strip_prefix(path);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

#[cfg(test)]
mod tests;
