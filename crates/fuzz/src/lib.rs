//! What is fuzzed: every parser that meets bytes from outside, and what must hold of it.
//!
//! For whoever changes such a parser, and for fuzzers. A target takes any bytes and panics if something is
//! wrong; most of what can be wrong is a panic of the parser itself. `cargo xtask fuzz` gives them new bytes
//! (the program is in `fuzz/`, a workspace of its own), and the tests of this crate give them those in
//! `fuzz/corpus/<target>/`: what each parser is meant for, and what once made one fail.
//!
//! # The way in
//!
//! [`TARGETS`] are all of them, [`target`] is one by its name, which is that of its directory in the corpus.
//!
//! # Example
//!
//! ```
//! let manifest = windlass_fuzz::target("manifest").ok_or("there is no such target")?;
//! manifest(b"kind: Pod\nmetadata: [");
//! manifest(b"\xff\xfe\x00");
//! assert!(windlass_fuzz::target("unheard-of").is_none());
//! # Ok::<_, &str>(())
//! ```
//!
//! # What it does not do
//!
//! It finds no bytes itself and keeps none. It has targets for what is read here, not for libraries
//! beneath: HTTP, TLS, protobuf and YAML are fuzzed only through what we make of them. It is never
//! published with the agent.

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
