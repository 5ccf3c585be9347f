//! The scanners on sample texts, and the rules on a sample workspace and on this one.

use serde_json::{Value, json};
use tokio::process::Command;

use super::dependencies::joined;
use super::member::Member;
use super::surface::{items, offers, roots, signature_words};
use super::{check, page, run_example};
use crate::tidy::Workspace;

#[test]
fn every_crate_can_be_taken_alone() {
    let workspace = Workspace::load().unwrap();
    let findings = check(&Member::all(&workspace));
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "{}", lines.join("\n"));
}

#[test]
fn a_page_shows_an_example_if_a_block_of_code_is_compiled() {
    let check = |blocks: &[&str], expected: bool| {
        let page: Vec<String> = blocks
            .iter()
            .map(|opening| format!("//! ```{opening}\n//! a();\n//! ```\n"))
            .collect();
        assert_eq!(page::shows_example(&page.concat()), expected, "{blocks:?}");
    };
    check(&[], false);
    check(&[""], true);
    check(&["rust"], true);
    check(&["no_run"], true);
    check(&["rust,no_run"], true);
    check(&["text"], false);
    check(&["rust,ignore"], false);
    check(&["text", "toml"], false);
    check(&["text", "rust"], true);
}

#[test]
fn the_page_ends_where_the_code_begins() {
    let text = "//! One.\n//!\n//! Three.\n\npub mod a;\n//! Not the page.\n";
    assert_eq!(page::lines(text).count(), 3);
}

#[test]
fn public_items_are_found_by_kind_and_name() {
    let check = |line: &str, expected: &str| {
        let found: Vec<String> = items(line).iter().map(ToString::to_string).collect();
        assert_eq!(found.join(", "), expected, "{line}");
    };
    check("pub fn a() {}", "1 fn a");
    check("impl A {\n    pub const fn b<T>(", "2 fn b");
    check("    pub async fn c(&self)", "1 fn c");
    check("pub const D: u8 = 1;", "1 const D");
    check("pub struct E<'a> {", "1 struct E");
    check("pub struct F;\npub enum G {", "1 struct F, 2 enum G");
    check("pub mod h;", "1 mod h");
    check("pub(crate) fn i() {}", "");
    check("fn j() {}", "");
    check("    pub field: u8,", "");
    check("pub use k::L;", "");
    check("/// pub fn m() {}", "");
}

#[test]
fn a_root_offers_its_modules_and_what_it_exports_again() {
    let check = |text: &str, expected: &str| {
        let found: Vec<String> = offers(text).iter().map(ToString::to_string).collect();
        assert_eq!(found.join(", "), expected, "{text}");
    };
    check("mod a;\npub mod b;\nfn c() {}", "2 mod b");
    check("pub use a::B;", "1 export B");
    check("pub use a::b::C as D;", "1 export D");
    check("pub use a::{B, c};\nuse d::E;", "1 export B, 1 export c");
    check(
        "pub use a::{\n    B, C,\n    D,\n};",
        "2 export B, 2 export C, 3 export D",
    );
    check("pub use a::*;", "");
}

#[test]
fn root_names_are_found_in_paths_and_lists() {
    let check = |text: &str, expected: &str| {
        assert_eq!(roots(text, "x").join(" "), expected, "{text}");
    };
    check("use x::A;", "A");
    check("x::a::b(x::c)", "a c");
    check("use x::{A, b::{C, D}, e as f};", "A b e");
    check("use x::{\n    A,\n    b,\n};\nuse y::{C};", "A b");
    check("use y::A;", "");
}

#[test]
fn a_file_of_another_crate_is_found_by_its_path() {
    let check = |path: &str, other: &str, expected: &str| {
        assert_eq!(joined(path, other), expected);
    };
    check(
        "crates/a/src/b.rs",
        "../../c/tests/d.rs",
        "crates/c/tests/d.rs",
    );
    check("crates/a/tests/b/main.rs", "e.rs", "crates/a/tests/b/e.rs");
}

#[test]
fn a_signature_names_what_a_caller_meets() {
    let check = |text: &str, expected: &[&str], unexpected: &[&str]| {
        let found = signature_words(text);
        for name in expected {
            assert!(found.contains(name), "{name} of {text}: {found:?}");
        }
        for name in unexpected {
            assert!(!found.contains(name), "{name} of {text}: {found:?}");
        }
    };
    check(
        "pub fn a(b: B) -> C {\n    D::new()\n}",
        &["B", "C"],
        &["D"],
    );
    check(
        "pub fn a(\n    b: B,\n) -> Result<C, E> {\n    D\n}",
        &["B", "C", "E"],
        &["D"],
    );
    check("fn a(b: B) {\n}", &[], &["B"]);
    check(
        "pub struct A {\n    pub b: B,\n    c: C,\n}",
        &["B"],
        &["A", "C"],
    );
    check("pub enum A {\n    Is(B),\n}", &["B"], &["A"]);
    check("pub trait A {\n    fn b(&self) -> B;\n}", &["B"], &["A"]);
    check("impl From<A> for B {", &["A"], &["B"]);
    check("impl A {\n}", &[], &["A"]);
    check("pub use a::A;", &[], &["A"]);
}

/// A package of `crates/` with a library, as in `cargo metadata`.
fn package(name: &str, dependencies: &[Value]) -> Value {
    json!({
        "name": name,
        "version": "0.1.0",
        "manifest_path": format!("/invented/crates/{name}/Cargo.toml"),
        "publish": [],
        "targets": [
            { "name": name, "kind": ["lib"] },
            { "name": name, "kind": ["example"], "src_path": format!("crates/{name}/examples/a.rs") },
        ],
        "dependencies": dependencies,
        "features": {},
    })
}

fn source(path: &str, text: &str) -> (String, String) {
    let page = "//! A line.\n".repeat(18) + "//! ```\n//! ```\n";
    let head = if path.ends_with("/lib.rs") { &page } else { "" };
    (format!("crates/{path}"), format!("{head}{text}"))
}

#[test]
fn each_rule_says_where_it_is_broken_and_what_to_do() {
    let ours = json!({ "name": "a", "kind": null, "req": "^0.2.0", "path": "/invented/crates/a" });
    let unused = json!({ "name": "serde-json", "kind": null, "req": "1" });
    let for_tests = json!({ "name": "tempfile", "kind": "dev", "req": "1" });
    let packages = vec![package("a", &[]), package("b", &[ours, unused, for_tests])];
    let sources = vec![
        source(
            "a/src/lib.rs",
            "pub mod shown;\npub mod hidden;\npub use hidden::{One, two};\n",
        ),
        source(
            "a/src/shown.rs",
            "pub fn used() {}\npub fn alone() {}\npub struct Data;\n",
        ),
        source(
            "a/src/hidden.rs",
            "pub fn two(data: Data) {}\npub struct One;\n",
        ),
        source(
            "b/src/lib.rs",
            "fn f() { a::shown::used(); a::two(k) }\n// serde_json, hidden\n",
        ),
        source("b/src/tests.rs", "tempfile::tempdir();"),
    ];
    let workspace = Workspace::invented(packages, sources);
    let found: Vec<String> = check(&Member::all(&workspace))
        .iter()
        .map(ToString::to_string)
        .collect();
    let private = "make it private or pub(crate), or remove it";
    let expected = [
        "crates/b/Cargo.toml:1: a ^0.2.0: make the versions in the root's Cargo.toml equal \
         workspace.package.version"
            .to_owned(),
        "crates/b/Cargo.toml:1: serde-json is not named in its code: remove it".to_owned(),
        format!("crates/a/src/lib.rs:22: unused outside: mod hidden: {private}"),
        format!("crates/a/src/lib.rs:23: unused outside: export One: {private}"),
        format!("crates/a/src/shown.rs:2: unused outside: fn alone: {private}"),
        format!("crates/a/src/hidden.rs:2: unused outside: struct One: {private}"),
    ];
    assert_eq!(found.join("\n"), expected.join("\n"));
}

#[tokio::test]
async fn an_example_has_to_end_well_and_to_say_something() {
    let run = |program: &str| run_example(Command::new(program));
    assert_eq!(run("echo").await.unwrap(), 1);
    let silent = run("true").await.unwrap_err();
    assert_eq!(silent.to_string(), "prints nothing to stdout");
    let failed = run("false").await.unwrap_err();
    assert_eq!(failed.to_string(), "exit status: 1: ");
}

/// Time is paused and advances to the timeout while waiting for the program.
#[tokio::test(start_paused = true)]
async fn an_example_that_hangs_is_ended_at_its_deadline() {
    let mut command = Command::new("sleep");
    command.arg("600");
    let error = run_example(command).await.unwrap_err();
    assert_eq!(error.to_string(), "not finished after 60 s");
}
