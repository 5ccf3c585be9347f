//! Rule on a crate's documentation, the `//!` head of its `lib.rs`: min length and an example.

use super::member::Member;
use crate::tidy::Finding;

/// Purpose, entry points, an example, guarantees and scope need this many lines.
const MIN_LINES: usize = 20;
/// Attributes of code blocks that are tested examples.
const COMPILED: &[&str] = &["", "rust", "no_run", "should_panic"];

/// Checks the length and, if required, for a compiled example.
pub(super) fn check(library: &Member<'_>, wants_example: bool) -> Vec<Finding> {
    let text = library.root_text();
    let mut findings = Vec::new();
    let count = lines(text).count();
    if count < MIN_LINES {
        let what = format!("a page of {count} lines");
        let fix = "describe purpose, guarantees and scope in 20 to 60 lines";
        findings.push(Finding::new(&library.root(), 1, what, fix));
    }
    if wants_example && !shows_example(text) {
        let what = "a page without a compiled example";
        let fix = "show the shortest real use in a ```rust or ```no_run block";
        findings.push(Finding::new(&library.root(), 1, what, fix));
    }
    findings
}

/// The page of a file, line by line.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map_while(|line| line.strip_prefix("//!"))
}

/// Whether the page has a code block that is compiled as a documentation test.
pub(super) fn shows_example(text: &str) -> bool {
    let mut fences = lines(text).filter_map(|line| line.trim().strip_prefix("```"));
    while let Some(opening) = fences.next() {
        if opening
            .split(',')
            .all(|word| COMPILED.contains(&word.trim()))
        {
            return true;
        }
        fences.next();
    }
    false
}
