//! Starts that are cut off because their caller has gone away.

use std::time::Duration;

use windlass_cri::CriCode;
use windlass_types::cri::RuntimeEventKind;
use windlass_types::{ContainerId, ContainerState, Timestamp};

use super::{CallError, End, Model, START_FAILED, after};

/// Message of a container whose start was cut off.
pub(super) const CUT_OFF: &str =
    "failed to create containerd task: failed to create shim task: context canceled";
/// Message of a container whose start was cut off when its task existed.
const TASK_LOST: &str =
    "failed to create containerd task: failed to get task pid: context canceled: unknown";
/// Time until it has exited; at most 2.3 s in containerd 1.6.
const CUT_OFF_TIME: Duration = Duration::from_millis(2_200);

impl Model {
    /// Ends a start whose caller has gone away. The container is in starting state until it has been
    /// cleaned up, and has then exited.
    pub(in super::super) fn cut_off_start(&mut self, id: &ContainerId, now: Timestamp) {
        let Some(container) = self.containers.get_mut(id) else {
            return;
        };
        if container.state != ContainerState::Created || container.starting {
            return;
        }
        self.logs.open(&container.log_path);
        if self.loses_tasks {
            container.task_lost = true;
            container.state = ContainerState::Exited;
            container.finished_at = Some(now);
            container.exit_code = START_FAILED;
            container.reason = "StartError".to_owned();
            container.message = TASK_LOST.to_owned();
            let uid = container.uid.clone();
            self.emit(RuntimeEventKind::Stopped, id.as_str(), &uid);
            return;
        }
        container.starting = true;
        let at = after(now, CUT_OFF_TIME);
        container.end = Some(End {
            at,
            exit_code: START_FAILED,
            oom: false,
        });
        self.ends.insert((at, id.clone()));
        self.timers.push(CUT_OFF_TIME);
    }

    /// Fails for a container whose start is being cleaned up or has lost its task.
    pub(super) fn check_removable(&self, id: &ContainerId) -> Result<(), CallError> {
        let container = self.containers.get(id);
        if container.is_some_and(|container| container.starting) {
            let message = "container is in starting state, can't be removed".to_owned();
            return Err((CriCode::Other, message));
        }
        if container.is_some_and(|container| container.task_lost) {
            let message = format!("cannot delete running task {id}: failed precondition");
            return Err((CriCode::InvalidArgument, message));
        }
        Ok(())
    }
}
