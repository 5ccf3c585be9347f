//! Termination messages: paths and reading.
//!
//! Upstream uses a random file name and finds it in the container's mounts. Here the name is
//! derived from the container instance, so that finding it needs no runtime call.

use std::path::PathBuf;

use windlass_pod_inputs::paths::NodePaths;
use windlass_pod_lifecycle::actions::{as_container, ephemeral_containers};
use windlass_types::corev1::Container;
use windlass_types::{ObservedContainer, Pod, PodExt, PodUid};
use windlass_units::hash::fnv1a_32;

use crate::PodRuntime;

/// Maximum bytes of a termination message.
const MAX_MESSAGE_BYTES: usize = 4096;
/// Maximum bytes of all termination messages of a pod.
const MAX_POD_MESSAGE_BYTES: usize = 12 * 1024;
/// Maximum bytes of a log used as a message.
const MAX_LOG_BYTES: usize = 2048;
/// Maximum lines of a log used as a message.
const MAX_LOG_LINES: usize = 80;

/// Path of the termination log of one container instance on the node.
pub(crate) fn termination_log_path(
    paths: &NodePaths,
    uid: &PodUid,
    container: &str,
    restart_count: u32,
) -> PathBuf {
    let instance = format!("{uid}/{container}/{restart_count}");
    paths.termination_log(uid, container, fnv1a_32(instance.as_bytes()))
}

impl PodRuntime {
    /// Termination message of an exited container: its termination log or, for
    /// `FallbackToLogsOnError`, the end of its log. `None` if empty.
    pub async fn termination_message(
        &self,
        pod: &Pod,
        container: &ObservedContainer,
    ) -> Option<String> {
        let ephemeral: Vec<Container> =
            ephemeral_containers(pod).iter().map(as_container).collect();
        let all = || {
            let lasting = pod.init_containers().iter().chain(pod.containers());
            lasting.chain(&ephemeral)
        };
        let spec = all().find(|c| c.name == container.name)?;
        let deps = self.deps();
        let uid = pod.uid();
        let share = (MAX_POD_MESSAGE_BYTES / all().count().max(1)).min(MAX_MESSAGE_BYTES);
        let path = termination_log_path(
            &deps.node.paths,
            &uid,
            &container.name,
            container.restart_count,
        );
        let written = deps
            .files
            .read_termination_message(&uid, &path, share)
            .await;
        let mut text = written.unwrap_or_default();
        let fallback = spec.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
        if text.is_empty() && fallback && container.exit_code != 0 {
            let log = std::path::Path::new(&container.log_path);
            text = deps
                .files
                .read_log_tail(&uid, log, MAX_LOG_BYTES.min(share), MAX_LOG_LINES)
                .await
                .unwrap_or_default();
        }
        (!text.is_empty()).then_some(text)
    }
}
