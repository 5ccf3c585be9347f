//! `check`: what becomes of each field, feature gate and flag of an existing kubelet set-up.
//!
//! The agent is not asked: the files and flags are read as it would read them.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use serde_json::json;
use windlass_config::load::report::{Setting, Verdict, report};

use crate::args::CheckArgs;
use crate::error::Error;
use crate::table;

/// Runs the command. It fails if something is refused.
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
    Ok(match count(&settings, Verdict::Refused) {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

const VERDICTS: [Verdict; 5] = [
    Verdict::Refused,
    Verdict::Ignored,
    Verdict::Partial,
    Verdict::Default,
    Verdict::Supported,
];

fn count(settings: &[Setting], verdict: Verdict) -> usize {
    settings.iter().filter(|it| it.verdict == verdict).count()
}

/// The table for a person, and the sum of it.
fn text(settings: &[Setting], all: bool) -> String {
    let shown = settings.iter().filter(|setting| {
        all || ![Verdict::Default, Verdict::Supported].contains(&setting.verdict)
    });
    let rows: Vec<Vec<String>> = shown
        .map(|setting| {
            vec![
                setting.verdict.to_string(),
                setting.name.clone(),
                setting.origin.clone(),
                setting.remark.clone(),
            ]
        })
        .collect();
    let table = match rows.as_slice() {
        [] => String::new(),
        rows => table::render(&["VERDICT", "SETTING", "FROM", "WHY, AND WHAT TO DO"], rows) + "\n",
    };
    let sums = VERDICTS.map(|verdict| format!("{} {verdict}", count(settings, verdict)));
    let sums = sums.join(", ");
    let end = match count(settings, Verdict::Refused) {
        0 => "windlass accepts these settings",
        _ => "windlass does not start with this",
    };
    let hint = if all { "" } else { "; --all lists the rest" };
    format!(
        "{table}{sums}: {end}{hint}.\n\
         Not looked at: the machine, and the files and addresses that settings name.\n\
         Missing whatever is set: eviction, image garbage collection, devices and more, see \
         docs/differences.md.\n"
    )
}

/// The same for a program, with everything.
fn object(settings: &[Setting]) -> serde_json::Value {
    json!({
        "refused": count(settings, Verdict::Refused),
        "ignored": count(settings, Verdict::Ignored),
        "partial": count(settings, Verdict::Partial),
        "default": count(settings, Verdict::Default),
        "supported": count(settings, Verdict::Supported),
        "settings": settings,
    })
}

#[cfg(test)]
mod tests {
    use windlass_config::load::report::{Setting, Verdict};

    use super::{object, text};

    const END: &str = "Not looked at: the machine, and the files and addresses that settings name.\n\
                       Missing whatever is set: eviction, image garbage collection, devices and \
                       more, see docs/differences.md.\n";

    fn settings() -> [Setting; 4] {
        [
            (Verdict::Refused, "port", "c.yaml", "-1 is no port"),
            (Verdict::Ignored, "--runonce", "command line", "as upstream"),
            (Verdict::Default, "cpuManagerPolicy", "c.yaml", "lacks"),
            (Verdict::Supported, "maxPods", "c.yaml", ""),
        ]
        .map(|(verdict, name, origin, remark)| Setting {
            verdict,
            name: name.to_owned(),
            origin: origin.to_owned(),
            remark: remark.to_owned(),
        })
    }

    #[test]
    fn what_needs_attention_is_shown_and_the_rest_is_counted() {
        assert_eq!(
            text(&settings(), false),
            "VERDICT   SETTING     FROM           WHY, AND WHAT TO DO\n\
             refused   port        c.yaml         -1 is no port\n\
             ignored   --runonce   command line   as upstream\n\n\
             1 refused, 1 ignored, 0 partial, 1 default, 1 supported: windlass does not start \
             with this; --all lists the rest.\n"
                .to_owned()
                + END
        );
        assert_eq!(
            text(&settings()[2..], false),
            "0 refused, 0 ignored, 0 partial, 1 default, 1 supported: windlass accepts these \
             settings; --all lists the rest.\n"
                .to_owned()
                + END
        );
        assert_eq!(
            text(&settings()[2..], true),
            "VERDICT     SETTING            FROM     WHY, AND WHAT TO DO\n\
             default     cpuManagerPolicy   c.yaml   lacks\n\
             supported   maxPods            c.yaml\n\n\
             0 refused, 0 ignored, 0 partial, 1 default, 1 supported: windlass accepts these \
             settings.\n"
                .to_owned()
                + END
        );
    }

    #[test]
    fn a_program_gets_all_settings_and_their_numbers() {
        let object = object(&settings());
        assert_eq!(object["refused"], 1);
        assert_eq!(
            object["settings"][3],
            serde_json::json!({"verdict": "supported", "name": "maxPods", "origin": "c.yaml",
                "remark": ""})
        );
    }
}
