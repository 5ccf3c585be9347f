//! `crates`: checks that each library crate is usable alone. It has documentation and an example, only used
//! public items and dependencies, compiles with its own features, and can be packaged.

mod dependencies;
mod earlier_packages;
mod member;
mod page;
mod surface;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::process::Command;
use tokio::time::{Instant, timeout};

use crate::tidy::{Finding, Workspace};
use member::Member;
use xtask_run as run;

/// Crates without an example, with the reason.
const WITHOUT_EXAMPLE: &[(&str, &str)] = &[
    ("windlass", "its program is the example"),
    (
        "windlass-pod-text",
        "the tests that use it are its examples",
    ),
    ("windlass-bench", "its program is the example"),
    ("windlass-chaos", "its program is the example"),
    ("xtask-run", "the tools that use it are its examples"),
    ("windlass-fuzz", "the program in `fuzz/` is the example"),
];
/// Their code is generated and not checked.
const GENERATED: &[&str] = &[
    "windlass-proto",
    "windlass-plugin-proto",
    "windlass-node-proto",
];
/// Examples with this line in their head require nothing, exit on their own and are run.
const NEEDS_NOTHING: &str = "//! Runs without a container runtime.";
/// They exit within seconds; the rest is for a busy host.
const EXAMPLE_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Skip the separate compilation of crates.
    #[arg(long)]
    quick: bool,
}

/// Checks every library crate, with one line for each in each step.
pub(crate) async fn run(options: &Options) -> anyhow::Result<()> {
    let workspace = Workspace::load()?;
    let members = Member::all(&workspace);
    read(&members)?;
    let libraries: Vec<&Member<'_>> = libraries(&members).collect();
    run_examples(&libraries).await?;
    if !options.quick {
        compile_alone(&libraries)?;
    }
    package(&members, options.quick)
}

fn libraries<'a, 'b>(members: &'b [Member<'a>]) -> impl Iterator<Item = &'b Member<'a>> {
    members.iter().filter(|member| member.is_library())
}

/// Checks that only read the sources.
pub(crate) fn check(members: &[Member<'_>]) -> Vec<Finding> {
    let dependencies = |member| dependencies::check(member, members);
    let mut findings: Vec<Finding> = members.iter().flat_map(dependencies).collect();
    let mut examples = BTreeMap::new();
    for library in libraries(members) {
        let wants_example = WITHOUT_EXAMPLE.iter().all(|row| row.0 != library.name());
        findings.extend(page::check(library, wants_example));
        findings.extend(surface::check(library, members));
        if wants_example && library.examples().is_empty() {
            let fix = "add a useful one to examples/";
            findings.push(Finding::new(&library.root(), 1, "no example", fix));
        }
        for (name, path) in library.examples() {
            if let Some(other) = examples.insert(name, path.clone()) {
                let what = format!("an example with the name of {other}");
                findings.push(Finding::new(&path, 1, what, "rename it"));
            }
        }
        if library.is_published() && !library.has_license() {
            let path = format!("{}LICENSE", library.directory());
            let fix = "run ln -s ../../LICENSE";
            findings.push(Finding::new(
                &path,
                1,
                "not the license of the workspace",
                fix,
            ));
        }
    }
    findings
}

fn read(members: &[Member<'_>]) -> anyhow::Result<()> {
    run::step("crates: pages, examples, public names, dependencies");
    let findings = check(members);
    for finding in &findings {
        println!("{finding}");
    }
    for library in libraries(members) {
        println!(
            "{:24} page {:3} lines  examples {}  public names {:4}",
            library.name(),
            page::lines(library.root_text()).count(),
            library.examples().len(),
            surface::count(library),
        );
    }
    match findings.len() {
        0 => Ok(()),
        count => bail!("crates: {count} findings"),
    }
}

/// Builds all examples with the features of tests and clippy, and runs those that require nothing.
async fn run_examples(libraries: &[&Member<'_>]) -> anyhow::Result<()> {
    run::cargo(&["build", "--quiet", "--workspace", "--examples"])?;
    let built = run::target_directory()?.join("debug/examples");
    for library in libraries {
        for (name, path) in library.examples() {
            let text = library.text(&path);
            if !text.lines().any(|line| line == NEEDS_NOTHING) {
                println!("{path}: built; needs a container runtime to run");
                continue;
            }
            let begin = Instant::now();
            let said = run_example(Command::new(built.join(name))).await;
            let said = said.with_context(|| {
                format!("{path}: does not do what its head says; run `cargo run --example {name}`")
            })?;
            let seconds = begin.elapsed().as_secs_f64();
            println!("{path}: {said} lines in {seconds:.1} s");
        }
    }
    Ok(())
}

/// Returns the number of lines printed. The program has to succeed in time and to print something.
async fn run_example(mut command: Command) -> anyhow::Result<usize> {
    command
        .current_dir(run::root())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = timeout(EXAMPLE_TIMEOUT, command.output())
        .await
        .with_context(|| format!("not finished after {} s", EXAMPLE_TIMEOUT.as_secs()))?
        .context("cannot run it")?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("{}: {}", output.status, stderr.trim());
    }
    match String::from_utf8_lossy(&output.stdout).lines().count() {
        0 => bail!("prints nothing to stdout"),
        lines => Ok(lines),
    }
}

/// Compiles each library with its own features, in one command each: crates of one command share
/// theirs.
fn compile_alone(libraries: &[&Member<'_>]) -> anyhow::Result<()> {
    run::step("crates: each compiles alone");
    for library in libraries {
        let mut variants = vec![vec![
            "check",
            "--quiet",
            "--lib",
            "--package",
            library.name(),
        ]];
        if library.has_features() {
            variants.push([&variants[0][..], &["--no-default-features"]].concat());
        }
        let begin = Instant::now();
        for args in variants {
            let status = run::cargo_command(&args)
                .env("CARGO_TARGET_DIR", target()?)
                .status()
                .context("cannot run cargo")?;
            if !status.success() {
                bail!(
                    "`cargo {}` failed: name the features that {}Cargo.toml is short of",
                    args.join(" "),
                    library.directory()
                );
            }
        }
        println!(
            "{:28} {:.0} s",
            library.name(),
            begin.elapsed().as_secs_f64()
        );
    }
    Ok(())
}

/// Packages every published crate and compiles it from its archive.
fn package(members: &[Member<'_>], quick: bool) -> anyhow::Result<()> {
    let mut args = vec!["package", "--workspace", "--allow-dirty"];
    if quick {
        args.push("--no-verify");
    }
    let private = members.iter().filter(|member| !member.is_published());
    args.extend(private.flat_map(|member| ["--exclude", member.name()]));
    run::step(&format!("cargo {}", args.join(" ")));
    let target = target()?.join("packages");
    earlier_packages::remove(members, &run::cargo_home()?, &target)?;
    let mut child = run::cargo_command(&args)
        .env("CARGO_TARGET_DIR", target)
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run cargo")?;
    let mut all = Vec::new();
    for line in BufReader::new(child.stderr.take().context("no stderr")?).lines() {
        let line = line?;
        if ["Packaging", "Verifying"]
            .iter()
            .any(|verb| line.trim_start().starts_with(verb))
        {
            println!("{}", line.trim());
        }
        all.push(line);
    }
    if !child.wait()?.success() {
        bail!("`cargo {}` failed:\n{}", args.join(" "), all.join("\n"));
    }
    let warnings: Vec<&str> = all
        .iter()
        .map(String::as_str)
        .filter(|line| line.starts_with("warning:"))
        .collect();
    if !warnings.is_empty() {
        bail!("`cargo {}` warns:\n{}", args.join(" "), warnings.join("\n"));
    }
    Ok(())
}

/// Separate target directory, so that the build of the workspace is kept.
fn target() -> anyhow::Result<PathBuf> {
    Ok(run::target_directory()?.join("crates"))
}
