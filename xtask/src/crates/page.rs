//! Rule on a crate's page, the `//!` head of its `lib.rs`: it says enough to begin with.

use super::member::Member;
use crate::tidy::Finding;

/// What it is for, an example, what it promises and does not, and the way in fill this many lines.
const LEAST: usize = 20;
/// A block of code is a tested example if it says nothing but these.
const COMPILED: &[&str] = &["", "rust", "no_run", "should_panic"];

/// The page is long enough, and shows an example that is compiled if there has to be one.
pub(super) fn check(library: &Member<'_>, wants_example: bool) -> Vec<Finding> {
    let text = library.root_text();
    let mut findings = Vec::new();
    let count = lines(text).count();
    if count < LEAST {
        let what = format!("a page of {count} lines");
        let fix = "say in 20 to 60 lines what it is for, promises and does not do";
        findings.push(Finding::new(&library.root(), 1, what, fix));
    }
    if wants_example && !shows_example(text) {
        let what = "a page without an example that is compiled";
        let fix = "show the shortest real use in a ```rust or ```no_run block";
        findings.push(Finding::new(&library.root(), 1, what, fix));
    }
    findings
}

/// The page of a file, line by line.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map_while(|line| line.strip_prefix("//!"))
}

/// Whether a block of code on the page is compiled as a documentation test.
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
