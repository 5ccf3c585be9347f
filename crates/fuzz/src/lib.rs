//! Fuzz targets: every parser of external input, with its invariants.
//!
//! For developers of these parsers, and for fuzzers. A target accepts any bytes and panics if an
//! invariant is violated; most failures are panics of the parser itself. `cargo xtask fuzz`
//! generates bytes (the program is in `fuzz/`, a separate workspace). The tests of this crate run
//! the targets on `fuzz/corpus/<target>/`: valid input, and input that failed before.
//!
//! # Entry points
//!
//! [`TARGETS`] has all targets; [`target`] returns one by name, which is also the name of its
//! corpus directory.
//!
//! # Example
//!
//! ```
//! let manifest = windlass_fuzz::target("manifest").ok_or("no such target")?;
//! manifest(b"kind: Pod\nmetadata: [");
//! manifest(b"\xff\xfe\x00");
//! assert!(windlass_fuzz::target("no-such-target").is_none());
//! # Ok::<_, &str>(())
//! ```
//!
//! # Limits
//!
//! It generates and stores no input. It covers the parsers of this workspace, not libraries: HTTP,
//! TLS, protobuf and YAML are fuzzed only through our code. It is not published with the agent.

mod access;
mod files;
mod requests;

/// A target: its name and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 17] = [
    ("authority", requests::authority),
    ("bearer", access::bearer),
    ("certificate", access::certificate),
    ("cgroup-name", files::cgroup_name),
    ("configuration", files::configuration),
    ("credentials", files::credentials),
    ("device-checkpoint", files::device_checkpoint),
    ("image-name", files::image_name),
    ("kernel-log", files::kernel_log),
    ("log-line", files::log_line),
    ("log-options", requests::log_options),
    ("manifest", files::manifest),
    ("node-query", requests::node_query),
    ("redirect", requests::redirect),
    ("rights", access::rights),
    ("statistics", files::statistics),
    ("stream-query", requests::stream_query),
];

/// Returns the target of this name.
pub fn target(name: &str) -> Option<fn(&[u8])> {
    let found = TARGETS.iter().find(|(known, _)| *known == name)?;
    Some(found.1)
}

#[cfg(test)]
mod tests;
