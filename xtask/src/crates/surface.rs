//! Rule on public items: another crate uses them.
//!
//! A name counts as used if a dependent crate, or the crate's tests, examples or documentation,
//! contain the word; names at the root need their path. Types in public signatures count as used.
//! So common names are missed, but used ones are never reported. Fields are not checked.

use std::collections::BTreeSet;
use std::fmt;

use super::member::{Member, code, words};
use super::{GENERATED, page};
use crate::tidy::Finding;

/// Items used outside of the workspace: crate, name, user.
const EXTERNAL_USES: &[(&str, &str, &str)] = &[("windlass-fuzz", "target", "the program in fuzz/")];

/// A public item: line in its file, kind and name.
#[derive(Debug)]
pub(super) struct Item<'a> {
    line: usize,
    kind: &'a str,
    name: &'a str,
}

impl fmt::Display for Item<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.line, self.kind, self.name)
    }
}

/// Returns the unused public items of the library.
pub(super) fn check(library: &Member<'_>, members: &[Member<'_>]) -> Vec<Finding> {
    // Files of a program in the same directory cannot be distinguished.
    if library.is_program() || GENERATED.contains(&library.name()) {
        return Vec::new();
    }
    let page: Vec<&str> = page::lines(library.root_text()).collect();
    let page = page.join("\n");
    let outside = outside(library, members);
    let path = library.name().replace('-', "_");
    let meant = EXTERNAL_USES
        .iter()
        .filter(|row| row.0 == library.name())
        .map(|row| row.1);
    let shown: BTreeSet<&str> = words(&page).collect();
    let mut named: BTreeSet<&str> = words(&page).chain(meant).collect();
    let mut by_path: BTreeSet<&str> = roots(&page, &path).into_iter().collect();
    by_path.extend(roots(&outside, &path));
    for user in users(library, members) {
        named.extend(&user.words);
    }
    named.extend(
        library
            .outside()
            .flat_map(|(_, text)| code(text))
            .flat_map(words),
    );
    let mut signatures = BTreeSet::new();
    for (_, text) in library.sources() {
        signatures.extend(signature_words(text));
    }
    let mut findings = Vec::new();
    let mut add = |path: &str, item: &Item<'_>| {
        let what = format!("unused outside: {} {}", item.kind, item.name);
        let fix = "make it private or pub(crate), or remove it";
        findings.push(Finding::new(path, item.line, what, fix));
    };
    for offered in offers(library.root_text()) {
        let named = by_path.contains(offered.name)
            || offered.kind == "export" && shown.contains(offered.name);
        if !named && !signatures.contains(offered.name) {
            add(&library.root(), &offered);
        }
    }
    for (path, text) in library.sources() {
        for item in items(text) {
            // Names at the root are searched by path.
            if item.kind == "mod" && path == library.root() {
                continue;
            }
            let is_type = ["struct", "enum", "trait", "type"].contains(&item.kind);
            let renamed = || library.root_text().contains(&format!("{} as ", item.name));
            let shown = is_type && (signatures.contains(item.name) || renamed());
            if !named.contains(item.name) && !shown {
                add(path, &item);
            }
        }
    }
    findings
}

/// Number of public items of the library.
pub(super) fn count(library: &Member<'_>) -> usize {
    library.sources().map(|(_, text)| items(text).len()).sum()
}

/// Crates that depend on the library, also indirectly.
fn users<'a, 'b>(library: &Member<'a>, members: &'b [Member<'a>]) -> Vec<&'b Member<'a>> {
    let mut users = BTreeSet::from([library.name()]);
    loop {
        let depends = |other: &&Member<'_>| {
            let mut dependencies = other.package.dependencies();
            dependencies.any(|dependency| users.contains(dependency.name()))
        };
        let names = members.iter().filter(depends).map(Member::name);
        let more: BTreeSet<&str> = names.filter(|name| !users.contains(name)).collect();
        if more.is_empty() {
            break;
        }
        users.extend(more);
    }
    let is_user =
        |other: &&Member<'_>| other.name() != library.name() && users.contains(other.name());
    members.iter().filter(is_user).collect()
}

/// Code that may use the library, including its tests and examples.
fn outside(library: &Member<'_>, members: &[Member<'_>]) -> String {
    let others = users(library, members).into_iter().flat_map(Member::files);
    library
        .outside()
        .chain(others)
        .flat_map(|(_, text)| code(text))
        .flat_map(|line| [line, "\n"])
        .collect()
}

/// The public items of a file, as rustfmt writes them.
pub(super) fn items(text: &str) -> Vec<Item<'_>> {
    let item = |(index, line)| {
        let (kind, name) = declared(line)?;
        Some(Item {
            line: index + 1,
            kind,
            name,
        })
    };
    text.lines().enumerate().filter_map(item).collect()
}

/// Kind and name of what the line makes public; nothing for fields and for `pub use`.
fn declared(line: &str) -> Option<(&str, &str)> {
    let mut words = line
        .trim_start()
        .strip_prefix("pub ")?
        .split(' ')
        .peekable();
    while words
        .next_if(|word| ["async", "unsafe"].contains(word))
        .is_some()
    {}
    let mut kind = words.next()?;
    if kind == "const" && words.peek() == Some(&"fn") {
        kind = words.next()?;
    }
    let kinds = [
        "fn", "struct", "enum", "trait", "type", "mod", "const", "static",
    ];
    let name = words.next().filter(|_| kinds.contains(&kind))?;
    Some((kind, self::words(name).next()?))
}

/// Names at the root of a crate: modules and re-exports.
pub(super) fn offers(text: &str) -> Vec<Item<'_>> {
    let mut offers: Vec<Item<'_>> = items(text)
        .into_iter()
        .filter(|item| item.kind == "mod")
        .collect();
    let mut exporting = false;
    for (index, line) in text.lines().enumerate() {
        exporting |= line.starts_with("pub use ");
        if !exporting {
            continue;
        }
        exporting = !line.ends_with(';');
        // The last segment of a path is the name: `a::B`, `a::{B, C}`, `a::B as D`.
        let listed = line.rsplit('{').next().unwrap_or(line);
        for part in listed.split(',') {
            let name = words(part).last().filter(|_| !part.contains('*'));
            if let Some(name) = name {
                offers.push(Item {
                    line: index + 1,
                    kind: "export",
                    name,
                });
            }
        }
    }
    offers
}

/// Names used at the root of the crate: `A` and `b` of `name::{A, b::C}`.
pub(super) fn roots<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let mut roots = Vec::new();
    let start = format!("{name}::");
    for (position, _) in text.match_indices(&start) {
        let rest = &text[position + start.len()..];
        let Some(list) = rest.strip_prefix('{') else {
            roots.extend(words(rest).next());
            continue;
        };
        let (mut depth, mut begins) = (1, true);
        for (at, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 1 => begins = true,
                c if depth == 1 && begins && (c.is_alphabetic() || c == '_') => {
                    roots.extend(words(&list[at..]).next());
                    begins = false;
                }
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
    roots
}

/// Words of the public parts of a file: signatures, fields, variants and trait implementations.
pub(super) fn signature_words(text: &str) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    let mut signature = false;
    for line in code(text) {
        let start = line.trim_start();
        let field = line.starts_with("        ") && line.ends_with(',') && start.contains(": ");
        let name = words(start).next().unwrap_or_default();
        let held = start.strip_prefix(name).unwrap_or_default();
        let variant = name.starts_with(char::is_uppercase)
            && (held.starts_with('(') || held.starts_with(" {"));
        let of_trait = line.starts_with("    ")
            && ["fn ", "async fn ", "type "]
                .iter()
                .any(|word| start.starts_with(word));
        signature |= start.starts_with("pub ") && !start.starts_with("pub use ") || of_trait;
        if signature || variant || field {
            let own = declared(line).map(|(_, name)| name);
            found.extend(words(line).filter(|word| Some(*word) != own));
        }
        // Only function signatures have several lines.
        let is_function = start.contains("fn ") || !start.starts_with("pub ");
        signature &= !(line.ends_with(['{', ';', '}']) || line.ends_with(',') && !is_function);
        if let Some((of, _)) = start
            .strip_prefix("impl")
            .and_then(|rest| rest.split_once(" for "))
        {
            found.extend(words(of));
        }
    }
    found
}
