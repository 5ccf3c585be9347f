//! `check`: reports the support of each field, feature gate and flag of an existing kubelet.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use serde_json::json;
use windlass_config::load::report::{Setting, SettingStatus, report};

use crate::args::CheckArgs;
use crate::error::Error;
use crate::table;

/// Runs the command. It fails if a setting is rejected.
pub(crate) fn run(args: &CheckArgs) -> Result<ExitCode, Error> {
    let mut flags: Vec<OsString> = Vec::new();
    let files = [
        ("--config", &args.config),
        ("--config-dir", &args.config_dir),
    ];
    for (flag, file) in files {
        flags.extend(file.iter().flat_map(|file| [flag.into(), file.into()]));
    }
    flags.extend(args.flags.iter().cloned());
    let settings = report(flags);
    let text = match args.output {
        None => text(&settings, args.all),
        Some(_json) => crate::pretty(&object(&settings))?,
    };
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(match count(&settings, SettingStatus::Rejected) {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

const STATUSES: [SettingStatus; 5] = [
    SettingStatus::Rejected,
    SettingStatus::Ignored,
    SettingStatus::Partial,
    SettingStatus::Default,
    SettingStatus::Supported,
];

fn count(settings: &[Setting], status: SettingStatus) -> usize {
    settings.iter().filter(|it| it.status == status).count()
}

/// Formats the table and its summary.
fn text(settings: &[Setting], all: bool) -> String {
    let shown = settings.iter().filter(|setting| {
        all || ![SettingStatus::Default, SettingStatus::Supported].contains(&setting.status)
    });
    let rows: Vec<Vec<String>> = shown
        .map(|setting| {
            vec![
                setting.status.to_string(),
                setting.name.clone(),
                setting.source.clone(),
                setting.message.clone(),
            ]
        })
        .collect();
    let table = match rows.as_slice() {
        [] => String::new(),
        rows => table::render(&["STATUS", "SETTING", "SOURCE", "MESSAGE"], rows) + "\n",
    };
    let sums = STATUSES.map(|status| format!("{} {status}", count(settings, status)));
    let sums = sums.join(", ");
    let end = match count(settings, SettingStatus::Rejected) {
        0 => "windlass accepts these settings",
        _ => "windlass does not start with these settings",
    };
    let hint = if all { "" } else { "; --all lists the rest" };
    format!(
        "{table}{sums}: {end}{hint}.\n\
         Not checked: the host, and the files and addresses that settings refer to.\n\
         Not implemented and different features: docs/differences.md.\n"
    )
}

/// Formats all settings as JSON.
fn object(settings: &[Setting]) -> serde_json::Value {
    json!({
        "rejected": count(settings, SettingStatus::Rejected),
        "ignored": count(settings, SettingStatus::Ignored),
        "partial": count(settings, SettingStatus::Partial),
        "default": count(settings, SettingStatus::Default),
        "supported": count(settings, SettingStatus::Supported),
        "settings": settings,
    })
}

#[cfg(test)]
mod tests {
    use windlass_config::load::report::{Setting, SettingStatus};

    use super::{object, text};

    const END: &str = "Not checked: the host, and the files and addresses that settings refer to.\n\
                       Not implemented and different features: docs/differences.md.\n";

    fn settings() -> [Setting; 4] {
        [
            (
                SettingStatus::Rejected,
                "port",
                "c.yaml",
                "-1 is not a port",
            ),
            (
                SettingStatus::Ignored,
                "--runonce",
                "command line",
                "no effect",
            ),
            (
                SettingStatus::Default,
                "cpuManagerPolicy",
                "c.yaml",
                "planned",
            ),
            (SettingStatus::Supported, "maxPods", "c.yaml", ""),
        ]
        .map(|(status, name, source, message)| Setting {
            status,
            name: name.to_owned(),
            source: source.to_owned(),
            message: message.to_owned(),
        })
    }

    #[test]
    fn unsupported_settings_are_listed_and_others_counted() {
        assert_eq!(
            text(&settings(), false),
            "STATUS     SETTING     SOURCE         MESSAGE\n\
             rejected   port        c.yaml         -1 is not a port\n\
             ignored    --runonce   command line   no effect\n\n\
             1 rejected, 1 ignored, 0 partial, 1 default, 1 supported: windlass does not start \
             with these settings; --all lists the rest.\n"
                .to_owned()
                + END
        );
        assert_eq!(
            text(&settings()[2..], false),
            "0 rejected, 0 ignored, 0 partial, 1 default, 1 supported: windlass accepts these \
             settings; --all lists the rest.\n"
                .to_owned()
                + END
        );
        assert_eq!(
            text(&settings()[2..], true),
            "STATUS      SETTING            SOURCE   MESSAGE\n\
             default     cpuManagerPolicy   c.yaml   planned\n\
             supported   maxPods            c.yaml\n\n\
             0 rejected, 0 ignored, 0 partial, 1 default, 1 supported: windlass accepts these \
             settings.\n"
                .to_owned()
                + END
        );
    }

    #[test]
    fn json_has_all_settings_and_counts() {
        let object = object(&settings());
        assert_eq!(object["rejected"], 1);
        assert_eq!(
            object["settings"][3],
            serde_json::json!({"status": "supported", "name": "maxPods", "source": "c.yaml",
                "message": ""})
        );
    }
}
