//! Log rotation of the running and exited containers in the PLEG cache.

use std::path::PathBuf;

use windlass_actors::StatusCache;
use windlass_mailboxes::spawn_io;
use windlass_runtime::logs::{ContainerLog, LogList, LogRotationDeps, rotate_logs};
use windlass_types::{ContainerState, ObservedContainer};

pub(super) fn spawn_log_rotation(deps: LogRotationDeps, cache: StatusCache) {
    spawn_io("log-rotation", rotate_logs(deps, CachedLogs(cache)));
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
