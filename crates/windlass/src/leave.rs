//! `--leave`: the agent's last run on a machine. Without a source of pods every pod on the
//! runtime is one that nobody wants any more: it is stopped, its volumes are released and
//! what is left of it is collected, as ever. When nothing is left the process ends.
//!
//! What a pod's specification says, its hooks and its own grace, is not known any more.

use std::path::Path;
use std::time::Duration;

use windlass_config::Config;
use windlass_cri::RuntimeService;
use windlass_types::cri::ListFilter;

/// Pause between two looks. Housekeeping comes every 2 s and the collection of what is dead once
/// a minute, so nobody waits for this.
const POLL: Duration = Duration::from_secs(1);

/// Grace period of pods while leaving. They were wanted until now, databases among them: what a pod
/// has that asks for nothing else.
pub(crate) const GRACE: Duration = Duration::from_secs(30);

/// Takes the sources of pods, and with them the cluster, out of the configuration.
pub(crate) fn forget_sources(config: &mut Config) {
    config.flags.kubeconfig = None;
    config.flags.bootstrap_kubeconfig = None;
    config.kubelet.static_pod_path.clear();
    config.kubelet.static_pod_url.clear();
}

/// Completes when the runtime has no sandbox and no pod has a directory.
pub(crate) async fn nothing_left(runtime: &impl RuntimeService, root_dir: &Path) {
    let mut told = usize::MAX;
    loop {
        match runtime.list_pod_sandboxes(&ListFilter::default()).await {
            Ok(sandboxes) if sandboxes.is_empty() && no_pods(root_dir).await => return,
            Ok(sandboxes) if sandboxes.len() != told => {
                told = sandboxes.len();
                tracing::info!(sandboxes = told, "leaving");
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "leaving: the runtime does not say what it has"),
        }
        tokio::time::sleep(POLL).await;
    }
}

async fn no_pods(root_dir: &Path) -> bool {
    match tokio::fs::read_dir(root_dir.join("pods")).await {
        Ok(mut pods) => matches!(pods.next_entry().await, Ok(None)),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}
