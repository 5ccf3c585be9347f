//! Rules on the Rust files: heads, lengths, and where actix and I/O may appear.

use super::dependencies::PURE;
use super::{Finding, Workspace};

/// Max lines of a hand-written file.
const MAX_LINES: usize = 800;
/// Required terms of an actor's head.
const ACTOR_HEAD: &[&str] = &["owns", "receives", "sends", "invariant", "bound", "restart"];
/// Paths that pure crates do not use.
const IO_PATHS: &[&str] = &[
    "std::fs",
    "std::net::Tcp",
    "std::net::Udp",
    "std::process",
    "std::thread",
    "async fn ",
];

/// Every module has a head.
pub(crate) fn heads(workspace: &Workspace) -> Vec<Finding> {
    workspace
        .sources
        .iter()
        .filter(|(_, text)| !text.starts_with("//!"))
        .map(|(path, _)| Finding::new(path, 1, "no module head", "begin with //! what it is for"))
        .collect()
}

/// The head of an actor is its contract.
pub(crate) fn actor_heads(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in workspace.sources.iter().filter(|(path, _)| is_actor(path)) {
        let head: String = text
            .lines()
            .take_while(|line| line.starts_with("//!"))
            .collect();
        let head = head.to_lowercase();
        let missing: Vec<&str> = ACTOR_HEAD
            .iter()
            .copied()
            .filter(|word| !head.contains(word))
            .collect();
        if !missing.is_empty() {
            let what = format!("the actor's head does not say: {}", missing.join(", "));
            findings.push(Finding::new(path, 1, what, "see docs/actors.md"));
        }
    }
    findings
}

/// Files are short; tests are counted separately.
pub(crate) fn lengths(workspace: &Workspace) -> Vec<Finding> {
    workspace
        .sources
        .iter()
        .filter(|(path, _)| !is_test(path))
        .filter_map(|(path, text)| {
            let lines = text.lines().count();
            (lines >= MAX_LINES).then(|| {
                Finding::new(
                    path,
                    MAX_LINES,
                    format!("{lines} lines"),
                    "split it by reason",
                )
            })
        })
        .collect()
}

/// actix is an implementation detail of `crates/mailboxes` and of files named `actor.rs`.
pub(crate) fn actix_places(workspace: &Workspace) -> Vec<Finding> {
    let allowed = |path: &str| {
        path.starts_with("crates/mailboxes/")
            || path.starts_with("xtask/src/tidy")
            || is_actor(path)
    };
    let fix = "name it only in actor.rs, or give crates/mailboxes a verb for it";
    workspace
        .sources
        .iter()
        .filter(|(path, _)| !allowed(path))
        .flat_map(|(path, text)| {
            code_lines(text)
                .filter(|(_, line)| line.contains("actix::"))
                .map(move |(number, _)| Finding::new(path, number, "actix:: outside an actor", fix))
        })
        .collect()
}

/// Pure crates have no I/O and no async code.
pub(crate) fn pure_sources(workspace: &Workspace) -> Vec<Finding> {
    // examples are programs
    let pure = |path: &str| {
        let rest = path.strip_prefix("crates/").unwrap_or_default();
        PURE.iter().any(|name| {
            rest.strip_prefix(name)
                .is_some_and(|r| r.starts_with("/src/"))
        })
    };
    let fix = "take what it reads as an argument, return what it does as a value";
    let mut findings = Vec::new();
    for (path, text) in workspace
        .sources
        .iter()
        .filter(|(path, _)| pure(path) && !is_test(path) && !path.ends_with("/port.rs"))
    {
        for (number, line) in code_lines(text) {
            if let Some(found) = IO_PATHS.iter().find(|io| line.contains(**io)) {
                let what = format!("{} in a pure crate", found.trim());
                findings.push(Finding::new(path, number, what, fix));
            }
        }
    }
    findings
}

fn is_actor(path: &str) -> bool {
    path.ends_with("/actor.rs")
}

pub(super) fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// Numbered lines that are not only a comment.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line))
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
}
