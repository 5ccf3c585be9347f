//! Which logs there are to be rotated: those of containers that run, as the PLEG last saw them.

use std::path::PathBuf;

use windlass_actors::{StatusCache, spawn_io};
use windlass_runtime::logs::{LogRotationDeps, RunningLog, rotate_logs};
use windlass_types::{ContainerState, ObservedContainer};

pub(super) fn spawn_log_rotation(deps: LogRotationDeps, cache: StatusCache) {
    let running = move || {
        let pods = cache.all();
        let containers = pods.iter().flat_map(|pod| &pod.containers);
        containers.filter_map(running_log).collect()
    };
    spawn_io("log-rotation", rotate_logs(deps, running));
}

/// What has ended writes nothing any more.
fn running_log(container: &ObservedContainer) -> Option<RunningLog> {
    let writes = container.state == ContainerState::Running && !container.log_path.is_empty();
    writes.then(|| RunningLog {
        container: container.id.clone(),
        path: PathBuf::from(&container.log_path),
    })
}
