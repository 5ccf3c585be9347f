//! Rules on crates: allowed dependencies, pure crates, lints and names.

use std::path::Path;

use serde_json::Value;

use super::dependencies::{EDGES, IO_CRATES, PURE, TEST_ONLY};
use super::{Finding, Workspace};

/// Crates whose tests put defects into the agent; nothing that ships depends on them.
const MUTATING: &[&str] = &["testing", "simulator"];

/// Names without a meaning.
const BANNED_NAMES: &[&str] = &["util", "utils", "common", "misc", "helper", "helpers"];

/// Checks dependencies between crates of the workspace against the table.
pub(crate) fn edges(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in workspace.members() {
        let name = package.name();
        let Some((_, allowed)) = EDGES.iter().find(|(from, _)| *from == name) else {
            let what = format!("crate {name} has no row in the table of edges");
            findings.push(package.finding("[package]", what, "add it to EDGES in xtask/src/tidy"));
            continue;
        };
        for dependency in package.dependencies() {
            let Some(target) = dependency.workspace_crate() else {
                continue;
            };
            let test_only = dependency.is_dev() && TEST_ONLY.contains(&target);
            if target != "types" && target != name && !allowed.contains(&target) && !test_only {
                let what = format!("{name} may not depend on {target}");
                let fix = "move the type to types or a pure crate, or introduce them in the wiring";
                findings.push(package.finding(dependency.name(), what, fix));
            }
        }
    }
    findings
}

/// Pure crates do not depend on runtimes or I/O crates.
pub(crate) fn pure_crates(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in workspace
        .members()
        .filter(|package| PURE.contains(&package.name()))
    {
        for dependency in package
            .dependencies()
            .filter(|dependency| !dependency.is_dev())
        {
            if IO_CRATES.contains(&dependency.name()) {
                let what = format!("{} is pure and names {}", package.name(), dependency.name());
                let fix = "decide here, and do it in the crate that owns the edge";
                findings.push(package.finding(dependency.name(), what, fix));
            }
        }
    }
    findings
}

/// No released binary has the defects of `windlass_types::mutation`.
pub(crate) fn mutations(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    let others = |package: &Package<'_>| !MUTATING.contains(&package.name());
    for package in workspace.members().filter(others) {
        for dependency in package.dependencies() {
            if dependency.features().any(|feature| feature == "mutations") {
                let what = format!("{} enables the feature mutations", package.name());
                let fix = "only test crates may, or a released binary has the defects";
                findings.push(package.finding(dependency.name(), what, fix));
            }
        }
    }
    findings
}

/// Every member inherits the lints of the workspace.
pub(crate) fn lints(workspace: &Workspace) -> Vec<Finding> {
    workspace
        .members()
        .filter(|package| !package.text.contains("[lints]\nworkspace = true"))
        .map(|package| {
            package.finding(
                "[package]",
                "no workspace lints",
                "add [lints] workspace = true",
            )
        })
        .collect()
}

/// Crates, directories and modules have meaningful names.
pub(crate) fn names(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, _) in &workspace.sources {
        let stem = |part: &str| part.strip_suffix(".rs").unwrap_or(part).to_owned();
        if path
            .split('/')
            .map(stem)
            .any(|part| BANNED_NAMES.contains(&part.as_str()))
        {
            findings.push(Finding::new(
                path,
                1,
                "a name that says nothing",
                "name what it does",
            ));
        }
    }
    findings
}

/// A member of the workspace with its manifest.
pub(crate) struct Package<'a> {
    /// Its entry of `cargo metadata`.
    pub(crate) value: &'a Value,
    /// Path of its manifest, relative to the root.
    pub(crate) path: String,
    text: String,
}

impl Workspace {
    pub(crate) fn members(&self) -> impl Iterator<Item = Package<'_>> {
        // Packages of the workspace have no registry.
        self.packages
            .iter()
            .filter(|value| value["source"].is_null())
            .map(|value| {
                let path = self.relative(value["manifest_path"].as_str().unwrap_or_default());
                let text = self.text(&path);
                Package { value, path, text }
            })
    }
}

impl Package<'_> {
    /// Name without `windlass-`.
    fn name(&self) -> &str {
        let name = self.value["name"].as_str().unwrap_or_default();
        name.strip_prefix("windlass-").unwrap_or(name)
    }

    pub(crate) fn dependencies(&self) -> impl Iterator<Item = Dependency<'_>> {
        self.value["dependencies"]
            .as_array()
            .into_iter()
            .flatten()
            .map(Dependency)
    }

    /// A finding on the first line of the manifest that begins with `start`.
    pub(crate) fn finding(
        &self,
        start: &str,
        what: impl Into<String>,
        fix: &'static str,
    ) -> Finding {
        let line = self.text.lines().position(|line| line.starts_with(start));
        Finding::new(&self.path, line.map_or(1, |index| index + 1), what, fix)
    }
}

/// An entry of `dependencies` in `cargo metadata`.
pub(crate) struct Dependency<'a>(&'a Value);

impl Dependency<'_> {
    pub(crate) fn name(&self) -> &str {
        self.0["name"].as_str().unwrap_or_default()
    }

    pub(crate) fn is_dev(&self) -> bool {
        self.0["kind"] == "dev"
    }

    /// Features that the member enables.
    fn features(&self) -> impl Iterator<Item = &str> {
        let features = self.0["features"].as_array();
        features.into_iter().flatten().filter_map(Value::as_str)
    }

    /// Version requirement: `^0.1.0`, or `*` without one.
    pub(crate) fn requirement(&self) -> &str {
        self.0["req"].as_str().unwrap_or_default()
    }

    /// The short name, if the dependency is a member of the workspace.
    pub(crate) fn workspace_crate(&self) -> Option<&str> {
        let dir = Path::new(self.0["path"].as_str()?);
        dir.file_name().and_then(|name| name.to_str())
    }
}
