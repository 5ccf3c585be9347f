//! Report of the settings of an existing kubelet: supported, ignored or rejected.
//!
//! Uses the same functions as the agent, but continues after an error. Values, which may be secrets,
//! are not shown.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::Path;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use serde::Serialize;

use super::{
    ConfigError, FOREIGN_GATE, IMPLEMENTED_GATES, Layers, UNIMPLEMENTED_GATE, Warning, gather,
    is_foreign_gate, origin_of,
};
use crate::fields::{self, Support};
use crate::flags::{KubeletFlags, normalize};
use crate::gates;
use crate::validate::InvalidField;

/// Support of a setting, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SettingStatus {
    /// The agent does not start with it.
    Rejected,
    /// No effect.
    Ignored,
    /// Supported with the limitation in the message.
    Partial,
    /// Not or partially supported, but set to its default.
    Default,
    /// Supported.
    Supported,
}

impl fmt::Display for SettingStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // pad, not write_str: aligned in tables
        f.pad(match self {
            Self::Rejected => "rejected",
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
    /// Support in this version.
    pub status: SettingStatus,
    /// Path of a field, or a flag with its dashes; empty for the whole of `source`.
    pub name: String,
    /// The file or flag that set it last.
    pub source: String,
    /// Reason and what to do; may be empty.
    pub message: String,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            status,
            name,
            source,
            message,
        } = self;
        write!(f, "{status} {name} ({source})")?;
        match message.as_str() {
            "" => Ok(()),
            message => write!(f, ": {message}"),
        }
    }
}

/// [`Setting::source`] of flags.
pub const COMMAND_LINE: &str = "command line";

/// Checks a kubelet's flags (without the program's name) and the files they name. Rejected settings
/// come first, then ignored ones.
pub fn report(args: impl IntoIterator<Item = OsString>) -> Vec<Setting> {
    let mut report = Report::default();
    let (flags, args) = report.read_flags(args);
    let mut errors = Vec::new();
    let gathered = gather(&flags, &mut |error| {
        errors.push(error);
        Ok(())
    });
    for error in errors {
        report.reject(&error);
    }
    match gathered {
        Ok(layers) => report.read_layers(layers, &flags, &args),
        Err(error) => report.reject(&error),
    }
    report.0.sort();
    report.0
}

#[derive(Default)]
struct Report(Vec<Setting>);

impl Report {
    fn add(&mut self, status: SettingStatus, name: &str, source: &str, message: impl Into<String>) {
        self.0.push(Setting {
            status,
            name: name.to_owned(),
            source: source.to_owned(),
            message: message.into(),
        });
    }

    /// Adds an error, unless it is about fields of the merged configuration.
    fn reject(&mut self, error: &ConfigError) {
        let (name, source) = match error {
            ConfigError::Read { path, .. }
            | ConfigError::Parse { path, .. }
            | ConfigError::Kind { path, .. }
            | ConfigError::TooLarge { path } => (String::new(), path.display().to_string()),
            ConfigError::Node(error) => (error.flag().to_owned(), COMMAND_LINE.to_owned()),
            ConfigError::CloudProvider { .. } => {
                ("--cloud-provider".to_owned(), COMMAND_LINE.to_owned())
            }
            ConfigError::MissingKubeconfig => {
                ("--bootstrap-kubeconfig".to_owned(), COMMAND_LINE.to_owned())
            }
            ConfigError::IncompleteCredentialProvider => (
                "--image-credential-provider-config".to_owned(),
                COMMAND_LINE.to_owned(),
            ),
            ConfigError::NodeLabel { .. } => ("--node-labels".to_owned(), COMMAND_LINE.to_owned()),
            ConfigError::Invalid(fields) => {
                return fields.iter().for_each(|field| self.reject_field(field));
            }
        };
        let text = error.to_string();
        let subject = if name.is_empty() { &source } else { &name };
        let message = text
            .strip_prefix(&format!("{subject}: "))
            .unwrap_or(&text)
            .to_owned();
        // an earlier parse error of the same flag would be a duplicate
        self.0
            .retain(|known| known.name.is_empty() || known.name != name);
        self.add(SettingStatus::Rejected, &name, &source, message);
    }

    /// Whether a file or directory is rejected as a whole.
    fn is_rejected(&self, file: &Path) -> bool {
        let file = file.display().to_string();
        self.0.iter().any(|known| {
            known.status == SettingStatus::Rejected && known.name.is_empty() && known.source == file
        })
    }

    fn reject_field(&mut self, invalid: &InvalidField) {
        self.add(
            SettingStatus::Rejected,
            &invalid.field,
            &invalid.origin,
            &invalid.message,
        );
    }

    /// Parses the flags; an invalid one is reported and skipped.
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
            let Some(at) = invalid_argument(&args, &error) else {
                self.add(SettingStatus::Rejected, "", COMMAND_LINE, first);
                return (KubeletFlags::default(), Vec::new());
            };
            let mut removed = args.remove(at);
            let message = match error.kind() {
                ErrorKind::UnknownArgument => unknown_argument(&args[at - 1], &removed, &error),
                _ => first.to_owned(),
            };
            let is_flag = removed.to_string_lossy().starts_with('-');
            if is_flag && !removed.to_string_lossy().contains('=') {
                // the next word is its value
                let is_value = |arg: &OsString| !arg.to_string_lossy().starts_with('-');
                if args.get(at).is_some_and(is_value) {
                    args.remove(at);
                }
            } else if let Some((name, _)) = removed.to_string_lossy().split_once('=') {
                removed = name.into();
            }
            self.add(
                SettingStatus::Rejected,
                &removed.to_string_lossy(),
                COMMAND_LINE,
                message,
            );
        }
    }

    fn read_layers(&mut self, layers: Layers, flags: &KubeletFlags, args: &[OsString]) {
        let origins = layers.origins.clone();
        let (config, invalid_fields) = match layers.validate_all(flags) {
            Ok(validated) => validated,
            Err(error) => return self.reject(&error),
        };
        let warnings = config.warnings;
        for invalid in &invalid_fields {
            self.reject_field(invalid);
        }
        let rejected = |path: &str| {
            invalid_fields
                .iter()
                .any(|invalid| is_about(&invalid.field, path))
        };
        // unknown fields and whole files are in the warnings only
        for (path, origin) in &origins {
            let known = fields::find(path).is_some() && path != "featureGates";
            if known && !rejected(path) && !origin.starts_with("--") {
                self.read_field(path, path, origin, &warnings);
            }
        }
        for warning in warnings.iter().filter(|it| !it.origin.starts_with("--")) {
            let (origin, field) = (&warning.origin, &warning.field);
            if fields::find(field).is_none() && !field.starts_with("featureGates.") {
                self.add(SettingStatus::Ignored, field, origin, &warning.message);
            }
        }
        let origin = origin_of(&origins, "featureGates");
        for gate in config.kubelet.feature_gates.keys() {
            let path = format!("featureGates.{gate}");
            if !rejected(&path) {
                self.read_gate(gate, &path, &origin, &warnings);
            }
        }
        self.read_given_flags(args, flags, &rejected, &warnings);
    }

    fn read_field(&mut self, path: &str, name: &str, source: &str, warnings: &[Warning]) {
        let warning = warnings.iter().find(|warning| warning.field == path);
        let support = fields::find(path).map(|field| field.support);
        match (support, warning) {
            (Some(Support::NotImplemented(_) | Support::Ignored(_)), Some(warning)) => {
                self.add(SettingStatus::Ignored, name, source, &warning.message);
            }
            (_, Some(warning)) => self.add(SettingStatus::Partial, name, source, &warning.message),
            (None | Some(Support::Full), None) => {
                self.add(SettingStatus::Supported, name, source, "");
            }
            (Some(_), None) => {
                let message = fields::support_message(path).unwrap_or_default();
                self.add(SettingStatus::Default, name, source, message);
            }
        }
    }

    fn read_gate(&mut self, gate: &str, path: &str, source: &str, warnings: &[Warning]) {
        if is_foreign_gate(gate) {
            self.add(SettingStatus::Ignored, path, source, FOREIGN_GATE);
            return;
        }
        let warning = warnings.iter().find(|warning| warning.field == path);
        // AllAlpha and AllBeta are not in the table
        let unimplemented = gates::find(gate).is_some() && !IMPLEMENTED_GATES.contains(&gate);
        match (unimplemented, warning) {
            (false, _) => self.add(SettingStatus::Supported, path, source, ""),
            (true, None) => self.add(SettingStatus::Default, path, source, UNIMPLEMENTED_GATE),
            (true, Some(warning)) => {
                self.add(SettingStatus::Ignored, path, source, &warning.message);
            }
        }
    }

    fn read_given_flags(
        &mut self,
        args: &[OsString],
        flags: &KubeletFlags,
        rejected: &dyn Fn(&str) -> bool,
        warnings: &[Warning],
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
                Some(setting) if setting.path == "featureGates" || rejected(setting.path) => {}
                Some(setting) => self.read_field(setting.path, &name, COMMAND_LINE, warnings),
                None if self.0.iter().any(|known| known.name == name) => {}
                // the file itself is in the report
                None if given_file(flags, long).is_some_and(|file| self.is_rejected(file)) => {}
                None => match warnings.iter().find(|warning| warning.origin == name) {
                    Some(warning) => {
                        self.add(
                            SettingStatus::Ignored,
                            &name,
                            COMMAND_LINE,
                            &warning.message,
                        );
                    }
                    None => self.add(SettingStatus::Supported, &name, COMMAND_LINE, ""),
                },
            }
        }
    }
}

/// Returns the file or directory given with `--config` or `--config-dir`.
fn given_file<'a>(flags: &'a KubeletFlags, flag: &str) -> Option<&'a Path> {
    match flag {
        "config" => flags.config_file.as_deref(),
        "config-dir" => flags.config_dir.as_deref(),
        _ => None,
    }
}

/// Whether a flag is accepted only for compatibility.
fn is_ignored(flag: &str) -> bool {
    let command = KubeletFlags::command();
    let long = flag.trim_start_matches('-');
    let found = command
        .get_arguments()
        .find(|it| it.get_long() == Some(long));
    found.is_some_and(clap::Arg::is_hide_set)
}

/// Returns the message for an unknown argument, with a suggestion.
fn unknown_argument(before: &OsStr, argument: &OsStr, error: &clap::Error) -> String {
    let [before, argument] = [before, argument].map(OsStr::to_string_lossy);
    if argument.starts_with('-') {
        let suggestion = match error.get(ContextKind::SuggestedArg) {
            Some(ContextValue::String(flag)) if !is_ignored(flag) => {
                format!(" or write {flag}")
            }
            _ => String::new(),
        };
        return format!("unknown flag; remove it{suggestion}");
    }
    // only a switch takes no value from the next word
    match before.starts_with("--") && !before.contains('=') {
        true => format!("not a flag; write {before}={argument}"),
        false => "not a flag; remove it".to_owned(),
    }
}

/// Returns the index of the argument that caused an error.
fn invalid_argument(args: &[OsString], error: &clap::Error) -> Option<usize> {
    let Some(ContextValue::String(shown)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    // clap shows it as `--max-pods <INT>`
    let shown = shown.split([' ', '=', '[']).next()?;
    args.iter()
        .skip(1)
        .position(|arg| {
            let arg = arg.to_string_lossy();
            arg.split('=').next() == Some(shown)
        })
        .map(|at| at + 1)
}

/// Whether `field`, such as `registerWithTaints[0].key`, is the setting or part of it.
fn is_about(field: &str, path: &str) -> bool {
    let rest = field.strip_prefix(path);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

#[cfg(test)]
mod tests;
