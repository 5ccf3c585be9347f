//! Rules on documents that describe the code: they are complete and current.

use std::collections::BTreeSet;

use super::sources::is_test;
use super::{Finding, Workspace};

const CATALOGUE: [&str; 2] = [
    "crates/actors/src/catalogue.rs",
    "crates/actors/src/catalogue/allocations.rs",
];
const ACTORS: &str = "docs/actors.md";
const ARCHITECTURE: &str = "docs/ARCHITECTURE.md";
const COVERAGE: &str = "docs/coverage/";
/// The longest note of a row, in bytes.
const MAX_NOTE: usize = 260;
/// Types of actors whose kinds have other names.
const NAMED_BY_KIND: &[&str] = &["ProbeManager", "PodWorkerActor"];

/// The message table and the catalogue have the same messages.
pub(crate) fn messages(workspace: &Workspace) -> Vec<Finding> {
    let in_code: Vec<_> = CATALOGUE
        .iter()
        .flat_map(|file| {
            let messages = marked_messages(&workspace.text(file)).into_iter();
            messages.map(move |(name, line)| (name, *file, line))
        })
        .collect();
    let in_table = table_messages(&workspace.text(ACTORS));
    let missing = in_code
        .iter()
        .filter(|(name, ..)| !in_table.iter().any(|(n, _)| n == name))
        .map(|(name, file, line)| {
            let what = format!("message {name} is not in the table");
            Finding::new(file, *line, what, "add its row to docs/actors.md")
        });
    let stale = in_table
        .iter()
        .filter(|(name, _)| !in_code.iter().any(|(n, ..)| n == name))
        .map(|(name, line)| {
            let what = format!("the table has {name}, the catalogue does not");
            Finding::new(
                ACTORS,
                *line,
                what,
                "remove the row, or mark the type `/// Message:`",
            )
        });
    missing.chain(stale).collect()
}

/// The drawn graph has every actor.
pub(crate) fn actor_graph(workspace: &Workspace) -> Vec<Finding> {
    let text = workspace.text(ACTORS);
    let drawn: String = text.split("```").skip(1).step_by(2).collect();
    let words: BTreeSet<&str> = drawn
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    let is_actor_crate = |path: &str| path.contains("/src/") && !path.contains("mailboxes/");
    workspace
        .sources
        .iter()
        .filter(|(path, _)| is_actor_crate(path) && path.starts_with("crates/") && !is_test(path))
        .flat_map(|(_, text)| actors(text))
        .filter(|kind| !words.contains(kind))
        .map(|kind| {
            let what = format!("the graph does not show {kind}");
            Finding::new(ACTORS, 1, what, "draw it and its edges")
        })
        .collect()
}

/// The code map lists every crate.
pub(crate) fn code_map(workspace: &Workspace) -> Vec<Finding> {
    let text = workspace.text(ARCHITECTURE);
    let crates: BTreeSet<&str> = workspace
        .sources
        .iter()
        .filter_map(|(path, _)| path.strip_prefix("crates/")?.split('/').next())
        .collect();
    crates
        .into_iter()
        .filter(|name| !text.contains(&format!("crates/{name}")))
        .map(|name| {
            let what = format!("the code map does not list crates/{name}");
            Finding::new(ARCHITECTURE, 1, what, "say in one line what it is for")
        })
        .collect()
}

/// Rows of the coverage pages have a state, and every test that they name exists in its package.
pub(crate) fn coverage(workspace: &Workspace) -> Vec<Finding> {
    let tests: BTreeSet<(&str, &str)> = workspace
        .sources
        .iter()
        .flat_map(|(path, text)| functions(text).map(|name| (directory(path), name)))
        .collect();
    let mut findings = Vec::new();
    let pages = workspace.documents(&["md"]);
    for (path, text) in pages
        .iter()
        .filter(|(path, _)| path.starts_with(COVERAGE) && !path.ends_with("upstream-tests.md"))
    {
        for test in named_tests(text) {
            if !tests.contains(&(test.directory.as_str(), test.function.as_str())) {
                let what = format!("{} has no test {}", test.directory, test.function);
                let fix = "name the test as `cargo nextest list` prints it, or change the row";
                findings.push(Finding::new(path, test.line, what, fix));
            }
        }
        for (index, line) in text.lines().enumerate() {
            if let Some(what) = row_error(line) {
                let fix = "feature | yes, partial or no | note | test; short cells";
                findings.push(Finding::new(path, index + 1, what, fix));
            }
        }
    }
    findings
}

/// The index of the coverage pages has the number of rows of each page.
pub(crate) fn coverage_counts(workspace: &Workspace) -> Vec<Finding> {
    let index = format!("{COVERAGE}README.md");
    let text = workspace.text(&index);
    let rows = text.lines().enumerate();
    rows.filter_map(|(line, row)| {
        let page = indexed_page(row)?;
        let counts = counts(&workspace.text(&format!("{COVERAGE}{page}")));
        let what = format!("the counts of {page} are {counts}");
        let finding = || Finding::new(&index, line + 1, what, "write them into the row");
        (!row.ends_with(&counts)).then(finding)
    })
    .collect()
}

/// The page that a row of the index links to.
fn indexed_page(row: &str) -> Option<&str> {
    let (_, link) = row.strip_prefix("| [")?.split_once("](")?;
    Some(link.split_once(')')?.0)
}

/// The last cells of a page's row in the index: rows with yes, partial, no, and yes by a unit test.
fn counts(page: &str) -> String {
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter_map(|line| Some(line.strip_prefix("| ")?.split(" | ").collect()))
        .collect();
    let with = |state| {
        rows.iter()
            .filter(|cells| cells.get(1) == Some(&state))
            .count()
    };
    let unit = rows
        .iter()
        .filter(|cells| cells.get(1) == Some(&"yes") && cells.len() == 4)
        .filter(|cells| cells[3].contains("(unit)"))
        .count();
    format!(
        "| {} | {} | {} | {unit} |",
        with("yes"),
        with("partial"),
        with("no")
    )
}

/// What is wrong with a row of a coverage page.
fn row_error(line: &str) -> Option<&'static str> {
    let cells: Vec<&str> = line
        .strip_prefix("| ")?
        .trim_end_matches(" |")
        .split(" | ")
        .collect();
    let [_, state, note, test] = cells[..] else {
        return None;
    };
    if note.len() > MAX_NOTE {
        return Some("a note that is too long");
    }
    match state {
        "yes" if !test.contains('`') => Some("a row with yes and without a test"),
        "yes" | "partial" | "no" | "State" => None,
        _ => Some("not a state"),
    }
}

/// A test named in a document.
#[derive(Debug, PartialEq)]
struct NamedTest {
    /// `crates/pleg`.
    directory: String,
    function: String,
    line: usize,
}

/// Texts in backticks in the format of `cargo nextest list`: binary, space, path.
fn named_tests(document: &str) -> Vec<NamedTest> {
    let mut tests = Vec::new();
    for (index, line) in document.lines().enumerate() {
        for code in line.split('`').skip(1).step_by(2) {
            let Some((binary, path)) = code.split_once(' ') else {
                continue;
            };
            let package = binary.split("::").next().unwrap_or_default();
            let directory = match package.strip_prefix("windlass") {
                Some("") => "crates/windlass".to_owned(),
                Some(rest) if rest.starts_with('-') => format!("crates/{}", &rest[1..]),
                None if package == "xtask" => package.to_owned(),
                _ => continue,
            };
            let is_path = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
            if path.chars().all(is_path) {
                tests.push(NamedTest {
                    directory,
                    function: path.rsplit("::").next().unwrap_or_default().to_owned(),
                    line: index + 1,
                });
            }
        }
    }
    tests
}

/// The package's directory: `crates/pleg/src/x.rs` is in `crates/pleg`, `xtask/…` in `xtask`.
fn directory(path: &str) -> &str {
    let parts = if path.starts_with("crates/") { 2 } else { 1 };
    let end = path.match_indices('/').nth(parts - 1);
    &path[..end.map_or(path.len(), |(at, _)| at)]
}

/// Names of the functions in a file, including property tests.
fn functions(source: &str) -> impl Iterator<Item = &str> {
    source.lines().filter_map(|line| {
        let line = line.trim_start();
        let rest = line.strip_prefix("async ").unwrap_or(line);
        let name = rest.strip_prefix("fn ")?;
        Some(name.split(['(', '<']).next().unwrap_or_default().trim_end())
    })
}

/// Types whose documentation begins with `Message:`, with the line of their name.
fn marked_messages(catalogue: &str) -> Vec<(String, usize)> {
    let mut marked = false;
    let mut messages = Vec::new();
    for (index, line) in catalogue.lines().enumerate() {
        if line.starts_with("/// Message:") {
            marked = true;
        } else if let Some(name) = line
            .strip_prefix("pub struct ")
            .or_else(|| line.strip_prefix("pub enum "))
        {
            let name: String = name.chars().take_while(|c| c.is_alphanumeric()).collect();
            if std::mem::take(&mut marked) {
                messages.push((name, index + 1));
            }
        }
    }
    messages
}

/// First cells of tables whose first column is `Message`.
fn table_messages(document: &str) -> Vec<(String, usize)> {
    let mut in_table = false;
    let mut messages = Vec::new();
    for (index, line) in document.lines().enumerate() {
        let Some(row) = line.trim().strip_prefix('|') else {
            in_table = false;
            continue;
        };
        let cell = row
            .split('|')
            .next()
            .unwrap_or_default()
            .trim()
            .trim_matches('`');
        if cell.eq_ignore_ascii_case("message") {
            in_table = true;
        } else if in_table && !cell.starts_with('-') && !cell.starts_with(':') {
            messages.push((cell.to_owned(), index + 1));
        }
    }
    messages
}

/// Names of actors in a source: its kinds, or its type if it has no mailbox.
fn actors(source: &str) -> Vec<&str> {
    let kinds = source.split("ActorKind::new(\"").skip(1);
    let kinds = kinds.filter_map(|rest| rest.split('"').next());
    let types = source.split("impl Actor for ").skip(1);
    let types = types.filter_map(|rest| rest.split(' ').next());
    kinds
        .chain(types.filter(|name| !NAMED_BY_KIND.contains(name)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_from_code_and_table() {
        let code = "/// Message: a.\n#[derive(Debug)]\npub struct PodChanged {\n}\n\
                    /// No message.\npub struct Other;\n/// Message: b.\npub enum KillPod {\n";
        let names = |found: Vec<(String, usize)>| {
            found.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(names(marked_messages(code)), ["PodChanged", "KillPod"]);
        let table = "| Message | From |\n|---|---|\n| `PodChanged` | Pleg |\n\n| Actor |\n| X |\n";
        assert_eq!(names(table_messages(table)), ["PodChanged"]);
    }

    #[test]
    fn tests_are_found_by_package_and_name() {
        let document = "text `windlass get pods`\n| `windlass-core a::tests::b`, `windlass::bin/windlass c` \
                        | `fn` `xtask::bin/xtask d::e` `kubelet x` `windlass --config kubelet.yaml` |";
        let found: Vec<String> = named_tests(document)
            .iter()
            .map(|t| format!("{} {} {}", t.line, t.directory, t.function))
            .collect();
        assert_eq!(
            found,
            ["2 crates/core b", "2 crates/windlass c", "2 xtask e"]
        );
        assert_eq!(directory("crates/core/src/x.rs"), "crates/core");
        assert_eq!(directory("xtask/src/tidy.rs"), "xtask");
        let source = "#[test]\nfn plain() {\n    async fn inner<T>() {}\n    let fn_like = 1;\n";
        assert_eq!(functions(source).collect::<Vec<_>>(), ["plain", "inner"]);
    }

    #[test]
    fn coverage_rows_have_a_state_and_a_test() {
        for (row, expected) in [
            ("| Hooks | yes | Both. | `windlass::x y` |", None),
            (
                "| Hooks | yes | Both. | – |",
                Some("a row with yes and without a test"),
            ),
            ("| Hooks | mostly | Both. | – |", Some("not a state")),
            ("| Hooks | no | Not implemented. | – |", None),
            ("| Feature | State | Note | Test |", None),
            ("|---|---|---|---|", None),
            ("| two | cells |", None),
        ] {
            assert_eq!(row_error(row), expected, "{row}");
        }
    }

    #[test]
    fn coverage_rows_are_counted_by_state() {
        let page = "| Feature | State | Note | Test |\n|---|---|---|---|\n\
                    | Hooks | yes | Both. | `windlass::x y` |\n| Probes | yes | All. | `windlass-a b` (unit) |\n\
                    | Logs | partial | Some. | – |\n| NFS | no | None. | – |\n";
        assert_eq!(counts(page), "| 2 | 1 | 1 | 1 |");
        assert_eq!(
            indexed_page("| [Hooks](hooks.md) | postStart. | 1 | 0 | 0 | 0 |"),
            Some("hooks.md")
        );
        assert_eq!(indexed_page("| Area | About | yes |"), None);
    }

    #[test]
    fn actors_are_their_kinds_or_types() {
        let source =
            "const A: ActorKind = ActorKind::new(\"Pleg\", 4);\nimpl Actor for NodeLease {";
        assert_eq!(actors(source), ["Pleg", "NodeLease"]);
        assert!(actors("impl Actor for ProbeManager {").is_empty());
    }
}
