//! What becomes of each setting of an existing kubelet: supported, ignored, or refused.
//!
//! It reads what the agent reads, by the same functions, and goes on where the agent would stop.
//! Values are not shown: some are secrets.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::Path;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use serde::Serialize;

use super::{
    ACTED_UPON, ConfigError, FOREIGN_GATE, Layers, Warning, gather, is_foreign_gate, origin_of,
};
use crate::fields::{self, Support};
use crate::flags::{KubeletFlags, normalize};
use crate::gates;
use crate::validate::Fault;

/// What the agent does with a setting. The worst comes first, what is as for the Go kubelet last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The agent does not start with it.
    Refused,
    /// The agent starts, and nothing follows from it.
    Ignored,
    /// Acted upon, but for what the remark says.
    Partial,
    /// Not acted upon, or in part only, and set to what it is anyway.
    Default,
    /// Acted upon.
    Supported,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // pad, not write_str: tables align it
        f.pad(match self {
            Self::Refused => "refused",
            Self::Ignored => "ignored",
            Self::Partial => "partial",
            Self::Default => "default",
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

/// Where flags come from, as [`Setting::origin`].
pub const COMMAND_LINE: &str = "command line";

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
            ConfigError::Node(error) => (error.flag().to_owned(), COMMAND_LINE.to_owned()),
            ConfigError::CloudProvider { .. } => {
                ("--cloud-provider".to_owned(), COMMAND_LINE.to_owned())
            }
            ConfigError::BootstrapAlone => {
                ("--bootstrap-kubeconfig".to_owned(), COMMAND_LINE.to_owned())
            }
            ConfigError::CredentialProviderHalf => (
                "--image-credential-provider-config".to_owned(),
                COMMAND_LINE.to_owned(),
            ),
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

    /// Whether a file or directory is refused as a whole.
    fn is_refused(&self, file: &Path) -> bool {
        let file = file.display().to_string();
        self.0.iter().any(|known| {
            known.verdict == Verdict::Refused && known.name.is_empty() && known.origin == file
        })
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
            if error.kind() == ErrorKind::DisplayHelp {
                args.retain(|arg| arg != "--help" && arg != "-h");
                continue;
            }
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            let first = first.strip_prefix("error: ").unwrap_or(first);
            let Some(at) = at_fault(&args, &error) else {
                self.add(Verdict::Refused, "", COMMAND_LINE, first);
                return (KubeletFlags::default(), Vec::new());
            };
            let mut removed = args.remove(at);
            let remark = match error.kind() {
                ErrorKind::UnknownArgument => no_such(&args[at - 1], &removed, &error),
                _ => first.to_owned(),
            };
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

    fn read_layers(&mut self, layers: Layers, flags: &KubeletFlags, args: &[OsString]) {
        let origins = layers.origins.clone();
        let (config, faults) = match layers.judge(flags) {
            Ok(judged) => judged,
            Err(error) => return self.refuse(&error),
        };
        let told = config.warnings;
        for fault in &faults {
            self.refuse_field(fault);
        }
        let refused = |path: &str| faults.iter().any(|fault| is_about(&fault.field, path));
        // what no struct has, or is about the whole file, is in the warnings only
        for (path, origin) in &origins {
            let known = fields::find(path).is_some() && path != "featureGates";
            if known && !refused(path) && !origin.starts_with("--") {
                self.read_field(path, path, origin, &told);
            }
        }
        for warning in told.iter().filter(|it| !it.origin.starts_with("--")) {
            let (origin, field) = (&warning.origin, &warning.field);
            if fields::find(field).is_none() && !field.starts_with("featureGates.") {
                self.add(Verdict::Ignored, field, origin, &warning.message);
            }
        }
        let origin = origin_of(&origins, "featureGates");
        for gate in config.kubelet.feature_gates.keys() {
            let path = format!("featureGates.{gate}");
            if !refused(&path) {
                self.read_gate(gate, &path, &origin, &told);
            }
        }
        self.read_given_flags(args, flags, &refused, &told);
    }

    fn read_field(&mut self, path: &str, name: &str, origin: &str, told: &[Warning]) {
        let remark = told.iter().find(|warning| warning.field == path);
        let support = fields::find(path).map(|field| field.support);
        match (support, remark) {
            (Some(Support::NotYet(_) | Support::Ignored(_)), Some(warning)) => {
                self.add(Verdict::Ignored, name, origin, &warning.message);
            }
            (_, Some(warning)) => self.add(Verdict::Partial, name, origin, &warning.message),
            (None | Some(Support::Yes), None) => self.add(Verdict::Supported, name, origin, ""),
            (Some(_), None) => {
                let notice = fields::notice(path).unwrap_or_default();
                self.add(Verdict::Default, name, origin, notice);
            }
        }
    }

    fn read_gate(&mut self, gate: &str, path: &str, origin: &str, told: &[Warning]) {
        if is_foreign_gate(gate) {
            self.add(Verdict::Ignored, path, origin, FOREIGN_GATE);
            return;
        }
        let remark = told.iter().find(|warning| warning.field == path);
        // a group of gates is none itself
        let inert = gates::find(gate).is_some() && !ACTED_UPON.contains(&gate);
        match (inert, remark) {
            (false, _) => self.add(Verdict::Supported, path, origin, ""),
            (true, None) => self.add(Verdict::Default, path, origin, NO_GATE),
            (true, Some(warning)) => self.add(Verdict::Ignored, path, origin, &warning.message),
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
                // the file is told as a whole, and why
                None if given_file(flags, long).is_some_and(|file| self.is_refused(file)) => {}
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

/// The file or directory that one of two flags names.
fn given_file<'a>(flags: &'a KubeletFlags, flag: &str) -> Option<&'a Path> {
    match flag {
        "config" => flags.config_file.as_deref(),
        "config-dir" => flags.config_dir.as_deref(),
        _ => None,
    }
}

/// Whether a flag is one of those that are accepted for old set-ups only.
fn does_nothing(flag: &str) -> bool {
    let command = KubeletFlags::command();
    let long = flag.trim_start_matches('-');
    let found = command
        .get_arguments()
        .find(|it| it.get_long() == Some(long));
    found.is_some_and(clap::Arg::is_hide_set)
}

/// Why an argument is none, and what to write in its place.
fn no_such(before: &OsStr, argument: &OsStr, error: &clap::Error) -> String {
    let [before, argument] = [before, argument].map(OsStr::to_string_lossy);
    if argument.starts_with('-') {
        let like = match error.get(ContextKind::SuggestedArg) {
            Some(ContextValue::String(flag)) if !does_nothing(flag) => {
                format!(" or write {flag}")
            }
            _ => String::new(),
        };
        return format!("the kubelet of this version has no such flag, remove it{like}");
    }
    // only a switch leaves the word behind it to nobody
    match before.starts_with("--") && !before.contains('=') {
        true => format!("not a flag, write {before}={argument}"),
        false => "not a flag, remove it".to_owned(),
    }
}

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
