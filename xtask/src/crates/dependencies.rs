//! Rules on dependencies in manifests: each is used by the code that its section is for, and those
//! of the workspace have its version.

use std::collections::BTreeSet;

use super::GENERATED;
use super::member::{Member, code, is_test, without_tests, words};
use crate::tidy::{Finding, Package};

/// Checks one member of the workspace.
pub(super) fn check(member: &Member<'_>, members: &[Member<'_>]) -> Vec<Finding> {
    let (shipped, all) = named(member, members);
    let mut findings = versions(&member.package);
    for dependency in member.package.dependencies() {
        let name = dependency.name().replace('-', "_");
        let (words, place) = if dependency.is_dev() {
            (&all, "tests, examples or documentation")
        } else {
            (&shipped, "code")
        };
        let is_read = dependency.is_dev() || !GENERATED.contains(&member.name());
        if is_read && !words.contains(&*name) {
            let what = format!("{} is not named in its {place}", dependency.name());
            let finding = member.package.finding(dependency.name(), what, "remove it");
            findings.push(finding);
        }
    }
    findings
}

/// Dependencies on crates of the workspace require its version.
fn versions(package: &Package<'_>) -> Vec<Finding> {
    let own = package.value["version"].as_str().unwrap_or_default();
    package
        .dependencies()
        .filter(|dependency| dependency.workspace_crate().is_some())
        .filter(|dependency| ![format!("^{own}").as_str(), "*"].contains(&dependency.requirement()))
        .map(|dependency| {
            let what = format!("{} {}", dependency.name(), dependency.requirement());
            let fix = "make the versions in the root's Cargo.toml equal workspace.package.version";
            package.finding(dependency.name(), what, fix)
        })
        .collect()
}

/// Words of a crate's code, and of all its files, including files of other crates that it includes.
fn named<'a>(
    member: &Member<'a>,
    members: &[Member<'a>],
) -> (BTreeSet<&'a str>, BTreeSet<&'a str>) {
    let (mut shipped, mut all) = (BTreeSet::new(), BTreeSet::new());
    for (path, text) in member.files() {
        if path.contains("/src/") && !is_test(path) {
            shipped.extend(code(without_tests(text)).flat_map(words));
        }
        all.extend(words(text));
        for line in text.lines() {
            let other = line.trim().strip_prefix("#[path = \"");
            let Some(other) = other.and_then(|rest| rest.strip_suffix("\"]")) else {
                continue;
            };
            let other = joined(path, other);
            let taken = members.iter().flat_map(Member::files);
            let taken = taken.filter(|(path, _)| *path == other);
            all.extend(taken.flat_map(|(_, text)| words(text)));
        }
    }
    (shipped, all)
}

/// Resolves the path `other` relative to the file `path`.
pub(super) fn joined(path: &str, other: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in other.split('/') {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}
