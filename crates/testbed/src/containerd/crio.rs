//! CRI-O instead of containerd: configuration and image import.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, bail};

use super::config::CNI_PLUGINS;
use crate::images::PAUSE;

/// Policy that accepts every image.
const POLICY: &str = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#;

/// Writes the configuration of CRI-O in `base` and returns its arguments.
pub(super) fn prepare(
    base: &Path,
    cni_conf: &Path,
    oci_runtime: &str,
) -> anyhow::Result<Vec<OsString>> {
    let config = base.join("crio.conf");
    std::fs::write(&config, text(base, cni_conf, oci_runtime))?;
    std::fs::write(base.join("policy.json"), POLICY)?;
    std::fs::write(base.join("registries.conf"), "")?;
    let path = |name: &str| base.join(name).into_os_string();
    Ok(vec![
        "--config".into(),
        config.into(),
        // without the drop-in directories of the host
        "--config-dir".into(),
        OsString::new(),
        "--registries-conf".into(),
        path("registries.conf"),
        "--registries-conf-dir".into(),
        path("no-registries.conf.d"),
    ])
}

/// Returns the arguments of skopeo to import an OCI archive.
pub(super) fn import_args(base: &Path, archive: &Path) -> anyhow::Result<Vec<String>> {
    let name = image_name(archive)?;
    let (base, archive) = (base.display(), archive.display());
    Ok(vec![
        "--insecure-policy".to_owned(),
        "copy".to_owned(),
        format!("oci-archive:{archive}"),
        format!("containers-storage:[overlay@{base}/root+{base}/state]{name}"),
    ])
}

/// Returns the image name in an archive.
fn image_name(archive: &Path) -> anyhow::Result<String> {
    let mut archive = tar::Archive::new(std::fs::File::open(archive)?);
    for entry in archive.entries()? {
        let entry = entry?;
        if entry.path()?.as_os_str() == "index.json" {
            let index: serde_json::Value = serde_json::from_reader(entry)?;
            let name = &index["manifests"][0]["annotations"]["io.containerd.image.name"];
            return Ok(name.as_str().context("the image has no name")?.to_owned());
        }
    }
    bail!("the archive has no index.json")
}

fn text(base: &Path, cni_conf: &Path, oci_runtime: &str) -> String {
    let (base, cni_conf) = (base.display(), cni_conf.display());
    format!(
        r#"[crio]
root = "{base}/root"
runroot = "{base}/state"
storage_driver = "overlay"
log_dir = "{base}/logs"
version_file = "{base}/version"
version_file_persist = ""
clean_shutdown_file = "{base}/clean-shutdown"
internal_wipe = false

[crio.api]
listen = "{base}/containerd.sock"
stream_port = "0"

[crio.runtime]
cgroup_manager = "cgroupfs"
default_runtime = "{oci_runtime}"
enable_pod_events = true
namespaces_dir = "{base}/namespaces"
container_exits_dir = "{base}/exits"
container_attach_socket_dir = "{base}/attach"
irqbalance_config_restore_file = "disable"

[crio.runtime.runtimes.{oci_runtime}]
runtime_root = "{base}/runc"
monitor_cgroup = "pod"

[crio.image]
pause_image = "{PAUSE}"
pause_command = "/pause"
signature_policy = "{base}/policy.json"
signature_policy_dir = "{base}/policies"
namespaced_auth_dir = "{base}/auth"
big_files_temporary_dir = "{base}/tmp"

[crio.network]
network_dir = "{cni_conf}"
plugin_dirs = ["{CNI_PLUGINS}"]

[crio.nri]
enable_nri = false
"#
    )
}
