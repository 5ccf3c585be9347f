//! Rules on crates: allowed dependencies, pure crates, lints and names.

use std::path::Path;

use serde_json::Value;

use super::{Finding, Workspace};

/// Allowed dependencies of each crate, besides `types`. Only `windlass` depends on the actor crates
/// (`sources`, `sync-loop`, `pod-workers`, `pleg`), which its `wiring.rs` connects. Libraries with
/// I/O (`cri`, `runtime`, `status`, `store`, `volumes`) are used by the actor that owns the work.
const EDGES: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("metrics", &[]),
    ("proto", &[]),
    ("pacing", &["units"]),
    ("hung-operations", &[]),
    ("units", &[]),
    ("topology", &[]),
    ("resource-managers", &["pod-inputs", "topology", "units"]),
    ("pod-text", &["units"]),
    ("manifests", &["units"]),
    ("pod-inputs", &["units"]),
    ("pod-lifecycle", &["pod-inputs", "units"]),
    ("eviction", &["pod-inputs", "units"]),
    ("node-rules", &["eviction", "pod-inputs", "units"]),
    (
        "pod-status",
        &["node-rules", "pod-inputs", "pod-lifecycle", "units"],
    ),
    (
        "volume-plan",
        &["manifests", "node-rules", "pod-inputs", "units"],
    ),
    (
        "runtime-config",
        &[
            "credentials",
            "manifests",
            "pod-inputs",
            "resource-managers",
            "units",
            "volume-plan",
        ],
    ),
    ("credentials", &["manifests", "pod-inputs", "units"]),
    ("timelines", &["pod-status", "units"]),
    (
        "eviction-manager",
        &[
            "actors",
            "cri",
            "eviction",
            "mailboxes",
            "metrics",
            "stats",
            "status",
            "store",
        ],
    ),
    (
        "container-manager",
        &[
            "actors",
            "cri",
            "device-plugins",
            "hung-operations",
            "mailboxes",
            "metrics",
            "pod-inputs",
            "resource-managers",
            "runtime-config",
            "status",
            "store",
            "topology",
            "units",
        ],
    ),
    (
        "image-gc",
        &[
            "actors",
            "cri",
            "mailboxes",
            "metrics",
            "stats",
            "store",
            "units",
        ],
    ),
    ("telemetry", &["metrics"]),
    (
        "config",
        &[
            "credentials",
            "eviction",
            "manifests",
            "node-rules",
            "resource-managers",
            "topology",
            "units",
        ],
    ),
    (
        "store",
        &[
            "credentials",
            "eviction",
            "manifests",
            "pod-lifecycle",
            "units",
        ],
    ),
    ("client", &["metrics", "pacing"]),
    ("certs", &["client", "metrics", "units"]),
    ("fake-api", &["client"]),
    (
        "node",
        &[
            "actors",
            "client",
            "cri",
            "csi",
            "hung-operations",
            "mailboxes",
            "metrics",
            "node-rules",
            "pod-lifecycle",
            "stats",
            "status",
            "units",
        ],
    ),
    (
        "dra",
        &[
            "actors",
            "client",
            "hung-operations",
            "mailboxes",
            "metrics",
            "pacing",
            "plugins",
            "pod-resources",
            "proto",
            "runtime-config",
            "store",
        ],
    ),
    (
        "objects",
        &[
            "actors",
            "certs",
            "client",
            "credentials",
            "csi",
            "mailboxes",
            "manifests",
            "metrics",
            "pacing",
            "pod-inputs",
            "runtime-config",
            "store",
            "units",
            "volume-plan",
        ],
    ),
    (
        "cri",
        &["hung-operations", "metrics", "pacing", "proto", "timelines"],
    ),
    (
        "actors",
        &[
            "eviction",
            "mailboxes",
            "metrics",
            "pod-lifecycle",
            "pod-status",
            "volume-plan",
        ],
    ),
    ("plugins", &["mailboxes", "metrics", "node-rules", "proto"]),
    (
        "device-plugins",
        &[
            "grpc-sockets",
            "mailboxes",
            "manifests",
            "metrics",
            "plugins",
            "proto",
            "resource-managers",
        ],
    ),
    (
        "csi",
        &[
            "metrics",
            "node-rules",
            "plugins",
            "pod-inputs",
            "proto",
            "volume-plan",
        ],
    ),
    (
        "volumes",
        &[
            "csi",
            "pacing",
            "pod-inputs",
            "runtime-config",
            "volume-plan",
        ],
    ),
    (
        "volume-manager",
        &[
            "actors",
            "hung-operations",
            "mailboxes",
            "metrics",
            "timelines",
            "volume-plan",
            "volumes",
        ],
    ),
    (
        "local-storage",
        &[
            "actors",
            "cri",
            "eviction",
            "mailboxes",
            "metrics",
            "pod-inputs",
            "stats",
            "status",
        ],
    ),
    ("cgroups", &["pod-inputs", "runtime-config"]),
    ("checks", &["pod-lifecycle", "proto"]),
    (
        "probes",
        &[
            "actors",
            "checks",
            "cri",
            "hung-operations",
            "mailboxes",
            "metrics",
            "pod-lifecycle",
            "store",
        ],
    ),
    (
        "container-logs",
        &["hung-operations", "pacing", "pod-lifecycle"],
    ),
    (
        "runtime",
        &[
            "cgroups",
            "checks",
            "container-logs",
            "credentials",
            "cri",
            "hung-operations",
            "manifests",
            "metrics",
            "node-rules",
            "pacing",
            "pod-inputs",
            "pod-lifecycle",
            "resource-managers",
            "runtime-config",
            "store",
            "units",
            "volume-plan",
            "volumes",
        ],
    ),
    (
        "sources",
        &[
            "actors",
            "client",
            "mailboxes",
            "manifests",
            "timelines",
            "units",
        ],
    ),
    (
        "sync-loop",
        &[
            "actors",
            "cri",
            "mailboxes",
            "metrics",
            "node-rules",
            "pod-inputs",
            "pod-lifecycle",
            "pod-status",
            "runtime",
            "runtime-config",
            "status",
            "store",
            "timelines",
        ],
    ),
    (
        "pod-workers",
        &[
            "actors",
            "cri",
            "mailboxes",
            "metrics",
            "pod-lifecycle",
            "pod-status",
            "runtime",
            "runtime-config",
            "status",
            "store",
            "timelines",
            "volume-plan",
        ],
    ),
    ("oom-watcher", &["actors"]),
    (
        "pleg",
        &[
            "actors",
            "cri",
            "mailboxes",
            "metrics",
            "pacing",
            "pod-lifecycle",
        ],
    ),
    (
        "status",
        &[
            "actors",
            "client",
            "mailboxes",
            "eviction",
            "metrics",
            "pod-lifecycle",
            "pod-status",
            "timelines",
            "units",
        ],
    ),
    (
        "pod-resources",
        &[
            "container-manager",
            "grpc-sockets",
            "metrics",
            "pacing",
            "proto",
            "resource-managers",
            "status",
            "topology",
        ],
    ),
    ("https", &[]),
    ("auth", &["client", "https", "metrics", "pacing"]),
    ("streams", &[]),
    ("stats", &["cgroups", "cri", "pod-inputs", "runtime-config"]),
    (
        "node-api",
        &[
            "actors",
            "container-logs",
            "cri",
            "health",
            "https",
            "metrics",
            "pacing",
            "pod-inputs",
            "pod-lifecycle",
            "stats",
            "status",
            "streams",
            "timelines",
            "units",
        ],
    ),
    ("ctl", &["config", "pod-status", "proto"]),
    (
        "windlass",
        &[
            "actors",
            "auth",
            "certs",
            "cgroups",
            "checks",
            "client",
            "config",
            "container-logs",
            "container-manager",
            "control",
            "credentials",
            "cri",
            "csi",
            "device-plugins",
            "dra",
            "eviction",
            "eviction-manager",
            "grpc-sockets",
            "health",
            "https",
            "hung-operations",
            "image-gc",
            "local-storage",
            "mailboxes",
            "manifests",
            "metrics",
            "node",
            "node-api",
            "node-rules",
            "objects",
            "oom-watcher",
            "pleg",
            "plugins",
            "pod-inputs",
            "pod-lifecycle",
            "pod-resources",
            "pod-workers",
            "probes",
            "resource-managers",
            "runtime",
            "runtime-config",
            "sources",
            "stats",
            "status",
            "store",
            "streams",
            "sync-loop",
            "telemetry",
            "timelines",
            "topology",
            "units",
            "volume-manager",
            "volume-plan",
            "volumes",
        ],
    ),
    (
        "testing",
        &[
            "actors",
            "checks",
            "client",
            "container-manager",
            "cri",
            "csi",
            "dra",
            "eviction",
            "eviction-manager",
            "fake-api",
            "image-gc",
            "local-storage",
            "mailboxes",
            "manifests",
            "metrics",
            "node",
            "node-rules",
            "objects",
            "oom-watcher",
            "pod-inputs",
            "pod-lifecycle",
            "pod-status",
            "proto",
            "resource-managers",
            "runtime",
            "stats",
            "status",
            "store",
            "testbed",
            "topology",
            "volumes",
            "windlass",
        ],
    ),
    (
        "simulator",
        &["cri", "eviction", "fake-api", "testing", "units", "volumes"],
    ),
    ("testbed", &["manifests", "proto", "runtime-config"]),
    (
        "bench",
        &["client", "cri", "fake-api", "metrics", "run", "testbed"],
    ),
    ("chaos", &["fake-api", "proto", "run", "testbed"]),
    (
        "xtask",
        &[
            "auth",
            "bench",
            "chaos",
            "config",
            "manifests",
            "metrics",
            "proto",
            "run",
            "testbed",
        ],
    ),
    ("xtask-run", &[]),
    (
        "fuzz",
        &[
            "auth",
            "config",
            "credentials",
            "grpc-sockets",
            "manifests",
            "node-api",
            "oom-watcher",
            "pod-inputs",
            "pod-lifecycle",
            "resource-managers",
            "runtime-config",
            "stats",
        ],
    ),
    ("codegen", &[]),
    (
        "control",
        &[
            "container-logs",
            "eviction",
            "grpc-sockets",
            "health",
            "metrics",
            "pod-inputs",
            "pod-status",
            "proto",
            "stats",
            "status",
            "units",
        ],
    ),
    ("grpc-sockets", &[]),
    ("health", &[]),
    ("mailboxes", &["metrics"]),
];

/// Dependencies of tests: the testing crates, and the real counterpart of a crate.
const TEST_ONLY: &[&str] = &[
    "testing",
    "testbed",
    "pod-text",
    "mailboxes",
    "fake-api",
    "client",
    "actors",
    "cri",
    "metrics",
    "proto",
    "config",
    "timelines",
    "units",
    "manifests",
    "pod-inputs",
    "pod-lifecycle",
    "eviction",
    "node-rules",
    "pod-status",
    "volume-plan",
    "runtime-config",
    "credentials",
];

/// Crates without I/O and async code.
pub(super) const PURE: &[&str] = &[
    "types",
    "units",
    "manifests",
    "pod-inputs",
    "pod-lifecycle",
    "node-rules",
    "pod-status",
    "volume-plan",
    "runtime-config",
    "credentials",
    "eviction",
    "resource-managers",
];
const IO_CRATES: &[&str] = &[
    "actix",
    "actix-rt",
    "axum",
    "hyper",
    "hyper-util",
    "kube",
    "libc",
    "nix",
    "notify",
    "rustix",
    "tempfile",
    "tokio",
    "tokio-stream",
    "tokio-util",
    "tonic",
    "tower",
];

/// Crates whose tests put defects into the agent; nothing that ships depends on them.
const MUTATING: &[&str] = &["testing", "simulator"];

/// Names without a meaning.
const BANNED_NAMES: &[&str] = &["util", "utils", "common", "misc", "helper", "helpers"];

/// Checks dependencies between crates of the workspace against the table.
pub(crate) fn edges(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in workspace.members() {
        let name = package.name();
        let Some((_, allowed)) = EDGES.iter().find(|(from, _)| *from == name) else {
            let what = format!("crate {name} has no row in the table of edges");
            findings.push(package.finding("[package]", what, "add it to EDGES in xtask/src/tidy"));
            continue;
        };
        for dependency in package.dependencies() {
            let Some(target) = dependency.workspace_crate() else {
                continue;
            };
            let test_only = dependency.is_dev() && TEST_ONLY.contains(&target);
            if target != "types" && target != name && !allowed.contains(&target) && !test_only {
                let what = format!("{name} may not depend on {target}");
                let fix = "move the type to types or a pure crate, or introduce them in the wiring";
                findings.push(package.finding(dependency.name(), what, fix));
            }
        }
    }
    findings
}

/// Pure crates do not depend on runtimes or I/O crates.
pub(crate) fn pure_crates(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in workspace
        .members()
        .filter(|package| PURE.contains(&package.name()))
    {
        for dependency in package
            .dependencies()
            .filter(|dependency| !dependency.is_dev())
        {
            if IO_CRATES.contains(&dependency.name()) {
                let what = format!("{} is pure and names {}", package.name(), dependency.name());
                let fix = "decide here, and do it in the crate that owns the edge";
                findings.push(package.finding(dependency.name(), what, fix));
            }
        }
    }
    findings
}

/// No released binary has the defects of `windlass_types::mutation`.
pub(crate) fn mutations(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    let others = |package: &Package<'_>| !MUTATING.contains(&package.name());
    for package in workspace.members().filter(others) {
        for dependency in package.dependencies() {
            if dependency.features().any(|feature| feature == "mutations") {
                let what = format!("{} enables the feature mutations", package.name());
                let fix = "only test crates may, or a released binary has the defects";
                findings.push(package.finding(dependency.name(), what, fix));
            }
        }
    }
    findings
}

/// Every member inherits the lints of the workspace.
pub(crate) fn lints(workspace: &Workspace) -> Vec<Finding> {
    workspace
        .members()
        .filter(|package| !package.text.contains("[lints]\nworkspace = true"))
        .map(|package| {
            package.finding(
                "[package]",
                "no workspace lints",
                "add [lints] workspace = true",
            )
        })
        .collect()
}

/// Crates, directories and modules have meaningful names.
pub(crate) fn names(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, _) in &workspace.sources {
        let stem = |part: &str| part.strip_suffix(".rs").unwrap_or(part).to_owned();
        if path
            .split('/')
            .map(stem)
            .any(|part| BANNED_NAMES.contains(&part.as_str()))
        {
            findings.push(Finding::new(
                path,
                1,
                "a name that says nothing",
                "name what it does",
            ));
        }
    }
    findings
}

/// A member of the workspace with its manifest.
pub(crate) struct Package<'a> {
    /// Its entry of `cargo metadata`.
    pub(crate) value: &'a Value,
    /// Path of its manifest, relative to the root.
    pub(crate) path: String,
    text: String,
}

impl Workspace {
    pub(crate) fn members(&self) -> impl Iterator<Item = Package<'_>> {
        // Packages of the workspace have no registry.
        self.packages
            .iter()
            .filter(|value| value["source"].is_null())
            .map(|value| {
                let path = self.relative(value["manifest_path"].as_str().unwrap_or_default());
                let text = self.text(&path);
                Package { value, path, text }
            })
    }
}

impl Package<'_> {
    /// Name without `windlass-`.
    fn name(&self) -> &str {
        let name = self.value["name"].as_str().unwrap_or_default();
        name.strip_prefix("windlass-").unwrap_or(name)
    }

    pub(crate) fn dependencies(&self) -> impl Iterator<Item = Dependency<'_>> {
        self.value["dependencies"]
            .as_array()
            .into_iter()
            .flatten()
            .map(Dependency)
    }

    /// A finding on the first line of the manifest that begins with `start`.
    pub(crate) fn finding(
        &self,
        start: &str,
        what: impl Into<String>,
        fix: &'static str,
    ) -> Finding {
        let line = self.text.lines().position(|line| line.starts_with(start));
        Finding::new(&self.path, line.map_or(1, |index| index + 1), what, fix)
    }
}

/// An entry of `dependencies` in `cargo metadata`.
pub(crate) struct Dependency<'a>(&'a Value);

impl Dependency<'_> {
    pub(crate) fn name(&self) -> &str {
        self.0["name"].as_str().unwrap_or_default()
    }

    pub(crate) fn is_dev(&self) -> bool {
        self.0["kind"] == "dev"
    }

    /// Features that the member enables.
    fn features(&self) -> impl Iterator<Item = &str> {
        let features = self.0["features"].as_array();
        features.into_iter().flatten().filter_map(Value::as_str)
    }

    /// Version requirement: `^0.1.0`, or `*` without one.
    pub(crate) fn requirement(&self) -> &str {
        self.0["req"].as_str().unwrap_or_default()
    }

    /// The short name, if the dependency is a member of the workspace.
    pub(crate) fn workspace_crate(&self) -> Option<&str> {
        let dir = Path::new(self.0["path"].as_str()?);
        dir.file_name().and_then(|name| name.to_str())
    }
}
