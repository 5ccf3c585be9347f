//! What is fuzzed: every parser that meets bytes from outside, and what must hold of it.
//!
//! A target takes any bytes and panics if something is wrong; most of what can be wrong is a panic
//! of the parser itself. `cargo xtask fuzz` gives them new bytes (the program is in `fuzz/`, a
//! workspace of its own), and the tests of this crate give them those in `fuzz/corpus/<target>/`: what
//! each parser is meant for, and what once made one fail.

mod access;
mod files;
mod requests;

/// A target: its name, which is the one of its directory in the corpus, and what it does.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 15] = [
    ("authority", requests::authority),
    ("bearer", access::bearer),
    ("certificate", access::certificate),
    ("cgroup-name", files::cgroup_name),
    ("configuration", files::configuration),
    ("credentials", files::credentials),
    ("image-name", files::image_name),
    ("log-line", files::log_line),
    ("log-options", requests::log_options),
    ("manifest", files::manifest),
    ("node-query", requests::node_query),
    ("redirect", requests::redirect),
    ("rights", access::rights),
    ("statistics", files::statistics),
    ("stream-query", requests::stream_query),
];

/// The target of this name.
pub fn target(name: &str) -> Option<fn(&[u8])> {
    let found = TARGETS.iter().find(|(known, _)| *known == name)?;
    Some(found.1)
}

#[cfg(test)]
mod tests;
