//! `--cleanup-and-exit`: the last agent run on a host. Without pod sources every pod is orphaned:
//! housekeeping stops and removes it and tears down its volumes. Then the process exits.
//!
//! The spec of an orphaned pod is unknown, so neither its hooks nor its own grace period apply.

use std::path::Path;
use std::time::Duration;

use windlass_config::Config;
use windlass_cri::RuntimeService;
use windlass_types::cri::ListFilter;

/// Housekeeping runs every 2 s and garbage collection once a minute, so a shorter interval is
/// useless.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Grace period of the pods, which may include databases: the default of a pod spec.
pub(crate) const GRACE_PERIOD: Duration = Duration::from_secs(30);

/// Removes the pod sources, including the cluster, from the configuration.
pub(crate) fn clear_sources(config: &mut Config) {
    config.flags.kubeconfig = None;
    config.flags.bootstrap_kubeconfig = None;
    config.kubelet.static_pod_path.clear();
    config.kubelet.static_pod_url.clear();
}

/// Completes when the runtime has no sandbox and no pod has a directory.
pub(crate) async fn wait_until_clean(runtime: &impl RuntimeService, root_dir: &Path) {
    let mut logged = usize::MAX;
    loop {
        match runtime.list_pod_sandboxes(&ListFilter::default()).await {
            Ok(sandboxes) if sandboxes.is_empty() && is_clean(root_dir).await => return,
            Ok(sandboxes) if sandboxes.len() != logged => {
                logged = sandboxes.len();
                tracing::info!(sandboxes = logged, "cleanup: removing pods");
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "cleanup: listing pod sandboxes failed"),
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn is_clean(root_dir: &Path) -> bool {
    match tokio::fs::read_dir(root_dir.join("pods")).await {
        Ok(mut pods) => matches!(pods.next_entry().await, Ok(None)),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}
