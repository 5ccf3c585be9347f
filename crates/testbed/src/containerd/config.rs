//! Configuration of a private containerd 1.x or 2.x.

use std::path::Path;

use crate::environment::uses_systemd_driver;
use crate::images::PAUSE;

/// Directory of CNI plugins in Debian.
pub(super) const CNI_PLUGINS: &str = "/usr/lib/cni";

/// Returns the `containerd.toml` for a containerd `version` in `base` with `oci_runtime`.
pub(super) fn text(version: [u64; 2], base: &Path, cni_conf: &Path, oci_runtime: &str) -> String {
    match version {
        [..2, _] => {
            let cri = cri_1(base, cni_conf, oci_runtime);
            format!("version = 2\n{}{cri}", common(base))
        }
        [_, minor] => {
            let cri = cri_2(minor, base, cni_conf, oci_runtime);
            format!("version = 3\n{}{cri}", common(base))
        }
    }
}

fn common(base: &Path) -> String {
    let base = base.display();
    format!(
        r#"root = "{base}/root"
state = "{base}/state"
temp = "{base}/tmp"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.internal.v1.tracing",
]

[grpc]
address = "{base}/containerd.sock"

[ttrpc]
address = "{base}/containerd.sock.ttrpc"

[debug]
level = "info"

[plugins."io.containerd.internal.v1.opt"]
path = "{base}/opt"
"#
    )
}

fn cri_1(base: &Path, cni_conf: &Path, oci_runtime: &str) -> String {
    let (base, cni_conf) = (base.display(), cni_conf.display());
    let systemd = uses_systemd_driver();
    format!(
        r#"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
# the pod sandbox asks for -998, which needs CAP_SYS_RESOURCE
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{CNI_PLUGINS}"
conf_dir = "{cni_conf}"

[plugins."io.containerd.grpc.v1.cri".containerd]
default_runtime_name = "runc"
snapshotter = "overlayfs"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = "{oci_runtime}"
Root = "{base}/runc"
SystemdCgroup = {systemd}
"#
    )
}

fn cri_2(minor: u64, base: &Path, cni_conf: &Path, oci_runtime: &str) -> String {
    let (base, cni_conf) = (base.display(), cni_conf.display());
    let systemd = uses_systemd_driver();
    // 2.0 supports one directory only, which is deprecated in 2.1
    let cni_plugins = match minor {
        0 => format!("bin_dir = \"{CNI_PLUGINS}\""),
        _ => format!("bin_dirs = [\"{CNI_PLUGINS}\"]"),
    };
    format!(
        r#"
# its socket and plugins would be the machine's
[plugins."io.containerd.nri.v1.nri"]
disable = true

[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE}"

[plugins."io.containerd.cri.v1.runtime"]
# the pod sandbox asks for -998, which needs CAP_SYS_RESOURCE
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true

[plugins."io.containerd.cri.v1.runtime".cni]
{cni_plugins}
conf_dir = "{cni_conf}"

[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "runc"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "{oci_runtime}"
Root = "{base}/runc"
SystemdCgroup = {systemd}
"#
    )
}
