//! Log rotation of the running and exited containers in the PLEG cache.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use windlass_actors::StatusCache;
use windlass_container_logs::{
    ContainerLog, LogList, LogRotationDeps, ReopenLog, RotationError, rotate_logs,
};
use windlass_cri::RuntimeService;
use windlass_mailboxes::spawn_io;
use windlass_types::{ContainerId, ContainerState, ObservedContainer};

pub(super) fn spawn_log_rotation(deps: LogRotationDeps, cache: StatusCache) {
    spawn_io("log-rotation", rotate_logs(deps, CachedLogs(cache)));
}

/// Reopens logs by calls of the container runtime.
#[derive(Debug)]
pub(super) struct RuntimeLogs(pub(super) Arc<dyn RuntimeService>);

#[async_trait]
impl ReopenLog for RuntimeLogs {
    async fn reopen(&self, container: &ContainerId) -> Result<(), RotationError> {
        let reopened = self.0.reopen_container_log(container).await;
        reopened.map_err(|error| match error.is_not_found() {
            true => RotationError::Removed(error.to_string()),
            false => RotationError::Failed(error.to_string()),
        })
    }
}

/// Logs of the containers in the cache.
struct CachedLogs(StatusCache);

impl LogList for CachedLogs {
    fn version(&self) -> u64 {
        self.0.version()
    }

    fn logs(&self) -> Vec<ContainerLog> {
        let pods = self.0.all();
        let containers = pods.iter().flat_map(|pod| &pod.containers);
        containers.filter_map(log_of).collect()
    }
}

/// Returns `None` for a container that never started.
fn log_of(container: &ObservedContainer) -> Option<ContainerLog> {
    let runs = match container.state {
        ContainerState::Running => true,
        ContainerState::Exited => false,
        ContainerState::Created | ContainerState::Unknown => return None,
    };
    (!container.log_path.is_empty()).then(|| ContainerLog {
        container: container.id.clone(),
        path: PathBuf::from(&container.log_path),
        runs,
    })
}
