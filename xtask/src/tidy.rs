//! Rules of this code base that compiler and clippy do not check. Each rule is a function from the
//! [`Workspace`] to findings, which have place, problem and fix.

mod dependencies;
mod documents;
mod licenses;
mod manifests;
mod sources;
mod wording;

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::Value;

pub(crate) use manifests::Package;

use crate::reference;
use xtask_run as run;

/// A violation of a rule.
#[derive(Debug)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    what: String,
    fix: &'static str,
}

impl Finding {
    pub(crate) fn new(path: &str, line: usize, what: impl Into<String>, fix: &'static str) -> Self {
        Self {
            path: path.to_owned(),
            line,
            what: what.into(),
            fix,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: {}: {}",
            self.path, self.line, self.what, self.fix
        )
    }
}

/// Input of the rules.
#[derive(Debug)]
pub(crate) struct Workspace {
    root: PathBuf,
    /// `packages` of `cargo metadata`.
    packages: Vec<Value>,
    /// Name and license of every built package, including those of the workspace.
    licenses: Vec<(String, String)>,
    /// Hand-written Rust files: path relative to the root, and content.
    pub(crate) sources: Vec<(String, String)>,
}

impl Workspace {
    pub(crate) fn load() -> anyhow::Result<Self> {
        let root = run::root();
        // Packages of other systems are not downloaded.
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let args = [
            "metadata",
            "--format-version",
            "1",
            "--filter-platform",
            &target,
        ];
        let metadata = run::cargo_output(&args)?;
        let mut metadata: Value = serde_json::from_str(&metadata)?;
        let packages = serde_json::from_value(metadata["packages"].take())?;
        // Not from the metadata, which includes packages of disabled features.
        let tree = [
            "tree",
            "--workspace",
            "--prefix",
            "none",
            "--format",
            "{p}|{l}",
        ];
        let licenses = run::cargo_output(&tree)?
            .lines()
            .filter_map(|line| line.trim_end_matches(" (*)").split_once('|'))
            .map(|(package, license)| {
                let name = package.split(' ').next().unwrap_or_default();
                (name.to_owned(), license.to_owned())
            })
            .collect();
        let mut sources = Vec::new();
        for dir in ["crates", "xtask"] {
            read_sources(&root, &root.join(dir), &mut sources)?;
        }
        sources.sort();
        Ok(Self {
            root,
            packages,
            licenses,
            sources,
        })
    }

    /// A sample workspace without files.
    #[cfg(test)]
    pub(crate) fn invented(packages: Vec<Value>, sources: Vec<(String, String)>) -> Self {
        Self {
            root: PathBuf::from("/invented"),
            packages,
            licenses: Vec::new(),
            sources,
        }
    }

    /// Files with one of these extensions: path relative to the root, and content.
    fn documents(&self, extensions: &[&str]) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut directories = vec![self.root.clone()];
        while let Some(directory) = directories.pop() {
            let Ok(entries) = std::fs::read_dir(&directory) else {
                continue;
            };
            for path in entries.flatten().map(|entry| entry.path()) {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                if path.is_dir() && name != "target" && (name == ".ci" || !name.starts_with('.')) {
                    directories.push(path);
                } else if extensions
                    .iter()
                    .any(|it| name.ends_with(&format!(".{it}")))
                {
                    let relative = self.relative(&path.display().to_string());
                    found.push((relative, std::fs::read_to_string(&path).unwrap_or_default()));
                }
            }
        }
        found.sort();
        found
    }

    /// Content of a file of the workspace, empty if missing.
    fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.root.join(path)).unwrap_or_default()
    }

    fn relative(&self, path: &str) -> String {
        Path::new(path)
            .strip_prefix(&self.root)
            .unwrap_or(Path::new(path))
            .display()
            .to_string()
    }
}

fn read_sources(
    root: &Path,
    dir: &Path,
    sources: &mut Vec<(String, String)>,
) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            // Generated code is checked by its generator.
            if path
                .file_name()
                .is_some_and(|name| name != "gen" && name != "target")
            {
                read_sources(root, &path, sources)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let relative = path.strip_prefix(root)?.display().to_string();
            sources.push((relative, std::fs::read_to_string(&path)?));
        }
    }
    Ok(())
}

/// Checks all rules and prints the findings.
pub(crate) fn run() -> anyhow::Result<()> {
    run::step("tidy");
    let mut findings = check()?;
    findings.extend(generated_code()?);
    findings.extend(reference_pages()?);
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        count => bail!("tidy: {count} findings"),
    }
}

fn check() -> anyhow::Result<Vec<Finding>> {
    let workspace = Workspace::load()?;
    let rules = [
        manifests::edges,
        manifests::pure_crates,
        manifests::mutations,
        manifests::lints,
        manifests::names,
        sources::heads,
        sources::actor_heads,
        sources::lengths,
        sources::actix_places,
        sources::pure_sources,
        documents::messages,
        documents::actor_graph,
        documents::code_map,
        documents::coverage,
        documents::coverage_counts,
        licenses::check,
        wording::wording,
    ];
    Ok(rules.iter().flat_map(|rule| rule(&workspace)).collect())
}

/// Generated code is current.
fn generated_code() -> anyhow::Result<Vec<Finding>> {
    let args = [
        "run",
        "--quiet",
        "--package",
        "windlass-codegen",
        "--",
        "--check",
    ];
    let output = run::cargo_command(&args)
        .output()
        .context("cannot run cargo")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let stale: Vec<Finding> = stderr
        .lines()
        .filter_map(|line| line.strip_prefix("stale: "))
        .map(|path| {
            Finding::new(
                path,
                1,
                "generated code is stale",
                "run `cargo xtask codegen`",
            )
        })
        .collect();
    if !output.status.success() && stale.is_empty() {
        bail!("windlass-codegen --check: {}", stderr.trim());
    }
    Ok(stale)
}

/// Reference pages are current.
fn reference_pages() -> anyhow::Result<Vec<Finding>> {
    let stale = reference::stale(&run::root())?;
    let finding = |path: &String| Finding::new(path, 1, "stale", "run `cargo xtask reference`");
    Ok(stale.iter().map(finding).collect())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_workspace_is_tidy() {
        let findings = super::check().unwrap();
        let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(findings.is_empty(), "{}", lines.join("\n"));
    }

    #[test]
    fn generated_code_is_current() {
        assert!(super::generated_code().unwrap().is_empty());
    }
}
