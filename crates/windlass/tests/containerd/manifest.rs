//! Builders of manifests.

use windlass_testing::images::BUSYBOX;

/// A script that runs until SIGTERM: as PID 1 a shell has no default signal handling.
/// No quotes, so that it fits into any YAML.
pub(crate) const HOLD: &str = "trap exit TERM; while true; do sleep 1000 & wait $!; done";

/// `text` with `IMAGE` and `HOLD` filled in.
pub(crate) fn fill(text: &str) -> String {
    text.replace("IMAGE", BUSYBOX).replace("HOLD", HOLD)
}

/// A pod whose one container `main` runs a shell script, on the host network, which is
/// quick to start.
pub(crate) fn shell(name: &str, script: &str) -> String {
    shell_with(name, "", script)
}

/// Like [`shell`], with more fields of the pod's `spec` (YAML, indented by two).
pub(crate) fn shell_with(name: &str, spec: &str, script: &str) -> String {
    let script = serde_json::to_string(&fill(script)).unwrap();
    format!(
        "apiVersion: v1\n\
         kind: Pod\n\
         metadata: {{name: {name}}}\n\
         spec:\n  \
           hostNetwork: true\n  \
           terminationGracePeriodSeconds: 2\n\
         {spec}\n  \
           containers:\n  \
           - {{name: main, image: \"{BUSYBOX}\", command: [sh, -c, {script}]}}\n"
    )
}
