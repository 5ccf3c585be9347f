//! Report of the measurements as a Markdown table, with the host.

use std::fmt::Write;
use std::process::Command;

use anyhow::Context;

use windlass_testbed::containerd::Programs;

use super::{median, percentile};
use xtask_run as run;

const DOCUMENT: &str = "docs/PERFORMANCE.md";

/// Section of the document that a run replaces, between two markers with this name.
#[derive(Clone, Copy, Debug)]
pub(super) enum Section {
    /// A standalone agent.
    StandAlone,
    /// A cluster node.
    Cluster,
    /// Probes and restarts.
    Lifecycle,
    /// Volumes.
    Volumes,
    /// The node API.
    Api,
    /// Growing numbers of pods.
    Scale,
    /// Eviction, image collection and log rotation.
    Pressure,
    /// In-place resizes.
    Resize,
    /// Pods beside hung operations of others.
    Isolation,
    /// Figures and their budgets.
    Check,
}

impl Section {
    fn name(self) -> &'static str {
        match self {
            Self::StandAlone => "bench",
            Self::Cluster => "bench-cluster",
            Self::Lifecycle => "bench-lifecycle",
            Self::Volumes => "bench-volumes",
            Self::Api => "bench-api",
            Self::Scale => "bench-scale",
            Self::Pressure => "bench-pressure",
            Self::Resize => "bench-resize",
            Self::Isolation => "bench-isolation",
            Self::Check => "bench-check",
        }
    }
}

/// Unit of a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unit {
    Seconds,
    Milliseconds,
    MiB,
    PercentOfCore,
    Count,
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Self::Seconds => format!("{value:.3} s"),
            Self::Milliseconds => format!("{value:.1} ms"),
            Self::MiB => format!("{value:.1} MiB"),
            Self::PercentOfCore => format!("{value:.2} % of a core"),
            Self::Count => format!("{value}"),
        }
    }
}

/// Max value; NaN means no limit.
struct Target {
    shown: String,
    limit: f64,
}

impl Target {
    fn times(limit: f64) -> Self {
        Self {
            shown: times(limit),
            limit,
        }
    }
}

fn times(ratio: f64) -> String {
    format!("{ratio:.2} ×")
}

/// Rows of the table.
#[derive(Debug, Default)]
pub(super) struct Report {
    rows: Vec<[String; 6]>,
    failure: Option<anyhow::Error>,
}

impl Report {
    /// Adds a value of windlass alone, with the max `target`; NaN means no target.
    pub(super) fn figure(&mut self, what: &str, value: f64, unit: Unit, target: f64) {
        let target = Target {
            shown: unit.show(target),
            limit: target,
        };
        self.push([what, &unit.show(value), "", ""], value, target);
    }

    /// Adds a time of windlass compared with the bare sequence.
    pub(super) fn ratio(&mut self, what: &str, ours: f64, bare: f64, target: f64) {
        let ratio = ours / bare;
        let (ours, bare) = (Unit::Seconds.show(ours), Unit::Seconds.show(bare));
        self.push(
            [what, &ours, &bare, &times(ratio)],
            ratio,
            Target::times(target),
        );
    }

    /// Adds a comparison of two states of windlass.
    pub(super) fn against(&mut self, what: &str, value: f64, other: f64, unit: Unit, target: f64) {
        let ratio = value / other;
        let (value, other) = (unit.show(value), unit.show(other));
        self.push(
            [what, &value, &other, &times(ratio)],
            ratio,
            Target::times(target),
        );
    }

    /// The same for rounds: the median of the rounds' ratios, because host load is the same within
    /// a round.
    pub(super) fn rounds(&mut self, what: &str, times: &[f64], others: &[f64], target: f64) {
        let ratios: Vec<f64> = times.iter().zip(others).map(|(a, b)| a / b).collect();
        let ratio = median(&ratios);
        let shown = Unit::Seconds.show(median(times));
        let other = Unit::Seconds.show(median(others));
        let (low, high) = (percentile(&ratios, 0), percentile(&ratios, 100));
        let range = format!("{} ({low:.2}–{high:.2})", self::times(ratio));
        self.push([what, &shown, &other, &range], ratio, Target::times(target));
    }

    /// Records the error that ended the run; previous rows are kept.
    pub(super) fn fail(&mut self, error: anyhow::Error) {
        self.failure = Some(error);
    }

    /// Returns the error that ended the run, if any.
    pub(super) fn into_result(self) -> anyhow::Result<()> {
        self.failure.map_or(Ok(()), Err)
    }

    fn push(&mut self, [what, ours, bare, ratio]: [&str; 4], value: f64, target: Target) {
        let (shown, status) = match value <= target.limit {
            _ if target.limit.is_nan() => (String::new(), ""),
            true => (format!("≤ {}", target.shown), "yes"),
            false => (format!("≤ {}", target.shown), "**no**"),
        };
        let row = [what, ours, bare, ratio, &shown, status].map(str::to_owned);
        eprintln!("      {}", row.join("  "));
        self.rows.push(row);
    }

    /// Returns the table, with the command that repeats the run.
    pub(super) fn markdown(&self, command: &str) -> anyhow::Result<String> {
        let mut text = provenance(command)?;
        writeln!(
            text,
            "| what | windlass | compared with | ratio | target | met |"
        )?;
        writeln!(text, "|---|---|---|---|---|---|")?;
        for row in &self.rows {
            writeln!(text, "| {} |", row.join(" | "))?;
        }
        if let Some(failure) = &self.failure {
            writeln!(text, "\nThe run ended with an error: {failure:#}.")?;
        }
        Ok(text)
    }
}

/// The command that repeats a run, its commit and host.
pub(super) fn provenance(command: &str) -> anyhow::Result<String> {
    let commit = output("git", &["describe", "--always", "--dirty"])?;
    let machine = machine()?;
    Ok(format!(
        "Command: `{command}`, commit {commit}.\nMachine: {machine}.\n\n"
    ))
}

/// Replaces the section of the document by the table.
pub(super) fn write(section: Section, table: &str) -> anyhow::Result<()> {
    let path = run::root().join(DOCUMENT);
    let document = std::fs::read_to_string(&path).with_context(|| DOCUMENT.to_owned())?;
    std::fs::write(&path, replace(&document, section, table)?)?;
    run::step(&format!("wrote {DOCUMENT}"));
    Ok(())
}

fn replace(document: &str, section: Section, table: &str) -> anyhow::Result<String> {
    let begin = format!("<!-- {}:begin -->", section.name());
    let end = format!("<!-- {}:end -->", section.name());
    let (head, rest) = document
        .split_once(&begin)
        .with_context(|| format!("{DOCUMENT} has no {begin}"))?;
    let (_, tail) = rest
        .split_once(&end)
        .with_context(|| format!("{DOCUMENT} has no {end}"))?;
    Ok(format!("{head}{begin}\n{table}{end}{tail}"))
}

/// Processor, cores, memory, kernel, runtime and date.
fn machine() -> anyhow::Result<String> {
    let cpu_info = std::fs::read_to_string("/proc/cpuinfo")?;
    let model = cpu_info
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or(std::env::consts::ARCH, |rest| {
            rest.trim_start_matches([' ', '\t', ':'])
        });
    let cores = std::thread::available_parallelism()?;
    let kernel = output("uname", &["-r"])?;
    let programs = Programs::from_env(run::step)?;
    let daemon = programs.daemon();
    let version = programs.version_output(daemon)?;
    let version = version
        .split_ascii_whitespace()
        .nth(2)
        .unwrap_or("?")
        .to_owned();
    let oci_runtime = programs.version_output(programs.oci_runtime())?;
    let oci_runtime = oci_runtime
        .lines()
        .next()
        .unwrap_or("?")
        .replace("version ", "");
    let date = output("date", &["-u", "+%F"])?;
    Ok(format!(
        "{model}, {cores} cores, Linux {kernel}, {daemon} {version}, {oci_runtime}, {date}"
    ))
}

fn output(program: &str, args: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(program)
        .args(args)
        .current_dir(run::root())
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_section_is_replaced_between_its_own_markers() {
        let document = "a\n<!-- bench:begin -->\nold\n<!-- bench:end -->\nb\n\
                        <!-- bench-cluster:begin --><!-- bench-cluster:end -->\nc";
        let document = replace(document, Section::Cluster, "two\n").unwrap();
        let document = replace(&document, Section::StandAlone, "one\n").unwrap();
        assert_eq!(
            document,
            "a\n<!-- bench:begin -->\none\n<!-- bench:end -->\nb\n\
             <!-- bench-cluster:begin -->\ntwo\n<!-- bench-cluster:end -->\nc"
        );
        assert!(replace("nothing", Section::Cluster, "").is_err());
    }
}
