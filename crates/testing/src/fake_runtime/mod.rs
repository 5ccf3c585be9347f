//! A deterministic in-memory model of a CRI runtime.
//!
//! [`FakeRuntime`] implements both ports in process and can be served over a Unix socket. It uses
//! the given clock and tokio time, which is usually paused. Runs with equal seeds and inputs are
//! equal, call by call. Responses and errors match containerd.
//!
//! Containers follow scripts ([`Behavior`]), calls fail by plan ([`Fault`]) and are logged
//! ([`Call`]), and violations are recorded ([`FakeRuntime::assert_invariants`]).

mod behavior;
mod change;
pub mod convert;
mod exec;
mod fault;
mod operation;

mod identity;
mod images;
mod logs;
mod model;

mod driver;
mod events;
mod port;
mod resize;
mod server;
mod stats;

pub use behavior::{Behavior, Pull};
pub use change::{RuntimeChange, RuntimeChangeKind};
pub use events::EventMode;
pub use exec::Exec;
pub use fault::Fault;
pub use operation::{Call, Operation, Outcome};
pub use resize::ReportedResources;
pub use server::ServeGuard;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use windlass_cri::CriResult;
use windlass_runtime::files::MemoryFiles;
use windlass_types::cri::{ImageInfo, RuntimeHandler};
use windlass_types::{Clock, ContainerId, ContainerState, PodUid, SandboxId, Timestamp};

use driver::SimDriver;
use logs::Logs;

/// Handle to a fake runtime; clones share it.
#[derive(Clone)]
pub struct FakeRuntime {
    driver: Arc<SimDriver>,
}

impl fmt::Debug for FakeRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeRuntime").finish_non_exhaustive()
    }
}

/// A container instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerView {
    /// ID.
    pub id: ContainerId,
    /// Sandbox.
    pub sandbox: SandboxId,
    /// Pod UID, from the sandbox.
    pub uid: PodUid,
    /// Name in the pod spec.
    pub name: String,
    /// Attempt.
    pub attempt: u32,
    /// State.
    pub state: ContainerState,
    /// Exit code; 0 unless exited.
    pub exit_code: i32,
    /// When it started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

impl fmt::Display for ContainerView {
    /// `name#attempt state`, with the exit code of an exited one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{} {:?}", self.name, self.attempt, self.state)?;
        match self.state {
            ContainerState::Exited => write!(f, "({})", self.exit_code),
            _ => Ok(()),
        }
    }
}

/// Creation and scripts.
impl FakeRuntime {
    /// Creates a ready runtime without images; pulls succeed immediately.
    pub fn new(clock: Arc<dyn Clock>, seed: u64) -> Self {
        Self {
            driver: Arc::new(SimDriver::new(clock, seed)),
        }
    }

    /// Serves `runtime.v1` (and the event service of containerd, see [`EventMode`]) on a Unix socket
    /// in a separate thread, until the guard is dropped. Requires real time.
    pub fn serve(&self, path: impl AsRef<Path>) -> io::Result<ServeGuard> {
        server::serve(self.clone(), path.as_ref())
    }

    /// Sets the behavior of containers. `key` is `namespace/pod/container`, a container name or an
    /// image reference of the pod spec; the first match counts.
    pub fn set_behavior(&self, key: &str, behavior: Behavior) {
        self.script(key, vec![behavior]);
    }

    /// Sets one behavior for each start of a container; the last one repeats.
    pub fn script(&self, key: &str, behaviors: Vec<Behavior>) {
        self.driver
            .change(|state| state.model.scripts.insert(key.to_owned(), behaviors));
    }

    /// Creates the log of each started container in these files, as the runtime does before the
    /// container runs; its removal leaves the log.
    pub(crate) fn create_logs_in(&self, files: MemoryFiles) {
        self.driver
            .change(|state| state.model.logs = Logs::in_files(files));
    }

    /// Has a kill of the agent cut off stops in progress, as containerd does: a container that
    /// ignores the signal runs on. Default: they complete.
    pub fn cut_off_stops(&self) {
        self.driver
            .change(|state| state.model.cuts_off_stops = true);
    }

    /// Has a kill of the agent lose the tasks of starts in progress, as containerd may: the
    /// containers have exited and cannot be removed. Default: they can, after 2.2 s.
    pub fn lose_tasks(&self) {
        self.driver.change(|state| state.model.loses_tasks = true);
    }

    pub(crate) fn cuts_off_stops(&self) -> bool {
        self.driver.change(|state| state.model.cuts_off_stops)
    }

    /// Sets the latency of an operation.
    pub fn set_latency(&self, operation: Operation, latency: Duration) {
        self.driver
            .change(|state| state.latencies.insert(operation, latency));
    }

    /// Serializes the calls, each for `time` plus its latency; except event streams and stop waits.
    pub fn serve_one_at_a_time(&self, time: Duration) {
        self.driver.change(|state| state.serial_time = Some(time));
    }

    /// Sets `runtimeRequestTimeout` (default 2 min), after which hung calls fail with
    /// `DeadlineExceeded`.
    pub fn set_request_timeout(&self, timeout: Duration) {
        self.driver.change(|state| state.timeout = timeout);
    }

    /// Adds an image and returns its ID.
    pub fn add_image(&self, reference: &str) -> String {
        self.driver
            .change(|state| state.model.images.add(reference))
    }

    /// Adds an image with its user, size or pinned flag.
    pub fn add_image_with(&self, reference: &str, change: impl FnOnce(&mut ImageInfo)) {
        self.driver
            .change(|state| state.model.images.change(reference, change));
    }

    /// Sets the size of the file system of the images, and the bytes of other files on it.
    pub fn set_image_disk(&self, capacity: u64, other_bytes: u64) {
        self.driver.change(|state| {
            state.model.images.capacity = capacity;
            state.model.images.other_bytes = other_bytes;
        });
    }

    /// Names the image of the sandboxes; it is on the node.
    pub fn set_sandbox_image(&self, reference: &str) {
        self.driver.change(|state| {
            state.model.images.add(reference);
            state.model.images.sandbox_image = Some(reference.to_owned());
        });
    }

    /// Returns the tags of all images on the node, sorted.
    pub fn image_tags(&self) -> Vec<String> {
        let images = self.driver.change(|state| state.model.images.list());
        let mut tags: Vec<_> = images.into_iter().flat_map(|it| it.repo_tags).collect();
        tags.sort();
        tags
    }

    pub(crate) fn sandbox_image(&self) -> Option<String> {
        self.driver
            .change(|state| state.model.images.sandbox_image.clone())
    }

    /// Returns size and free bytes of the file system of the images.
    pub(crate) async fn image_disk(&self) -> CriResult<(u64, u64)> {
        let operation = Operation::ImageFsInfo;
        self.driver
            .call(operation, String::new(), |model, _| {
                Ok(model.images.space())
            })
            .await
    }

    /// Sets the result of pulls of an image.
    pub fn set_pull(&self, reference: &str, pull: Pull) {
        self.driver
            .change(|state| state.model.images.set_pull(reference, pull));
    }

    /// Sets the handlers and `supplementalGroupsPolicy: Strict` in `Status`; by default absent, as in
    /// old runtimes.
    pub fn set_features(&self, handlers: Vec<RuntimeHandler>, strict_groups: Option<bool>) {
        self.driver.change(|state| {
            state.model.handlers = handlers;
            state.model.strict_groups = strict_groups;
        });
    }

    /// Sets the network error of `Status` and of sandbox creation; `None` is ready.
    pub fn set_network_error(&self, error: Option<&str>) {
        self.driver
            .change(|state| state.model.network_error = error.map(str::to_owned));
    }
}

/// Fault injection.
impl FakeRuntime {
    /// Injects a fault.
    pub fn inject(&self, fault: Fault) {
        self.driver.change(|state| state.faults.add(fault));
    }

    /// Releases the hung calls of an operation and removes its planned hangs.
    pub fn release(&self, operation: Operation) {
        self.driver.change(|state| state.faults.release(operation));
    }

    /// Removes all planned faults and releases hung calls.
    pub fn clear_faults(&self) {
        self.driver.change(|state| state.faults.clear());
    }

    /// While down, every call fails with `Unavailable`; containers keep running, event streams end.
    pub fn set_down(&self, down: bool) {
        self.driver.change(|state| {
            state.down = down;
            if down {
                state.events.disconnect();
            }
        });
    }

    /// Sets the event service and ends open streams.
    pub fn set_event_mode(&self, mode: EventMode) {
        self.driver.change(|state| state.events.set_mode(mode));
    }

    /// Enables streamed lists on the served socket.
    pub fn stream_lists(&self) {
        self.driver.change(|state| state.stream_lists = true);
    }

    /// Ends open event streams with a connection error.
    pub fn disconnect_events(&self) {
        self.driver.change(|state| state.events.disconnect());
    }

    /// Drops the next `count` events.
    pub fn drop_events(&self, count: usize) {
        self.driver.change(|state| state.events.drop_next = count);
    }

    /// Duplicates the next `count` events.
    pub fn duplicate_events(&self, count: usize) {
        self.driver
            .change(|state| state.events.duplicate_next = count);
    }

    /// Delays all further events.
    pub fn delay_events(&self, delay: Duration) {
        self.driver.change(|state| state.events.late = Some(delay));
    }

    /// Terminates a running container.
    pub fn kill_container(&self, id: &ContainerId, exit_code: i32) {
        self.driver
            .step(|model, now| drop(model.end_container(id, exit_code, false, now)));
    }

    /// OOM-kills a running container.
    pub fn oom_kill(&self, id: &ContainerId) {
        self.driver
            .step(|model, now| drop(model.end_container(id, 137, true, now)));
    }

    /// Kills a sandbox with its containers, like the loss of the pause process.
    pub fn kill_sandbox(&self, id: &SandboxId) {
        self.driver
            .step(|model, now| drop(model.stop_sandbox(id, now)));
    }

    /// Removes a sandbox without its containers, like a damaged store.
    pub fn lose_sandbox(&self, id: &SandboxId) {
        self.driver
            .step(|model, _| drop(model.sandboxes.remove(id)));
    }

    /// Removes a container, like `crictl rm -f`.
    pub fn lose_container(&self, id: &ContainerId) {
        self.driver
            .step(|model, now| drop(model.remove_container(id, now)));
    }

    /// Sets a running container to the unknown state.
    pub fn set_unknown(&self, id: &ContainerId) {
        self.driver.step(|model, _| {
            if let Some(container) = model.containers.get_mut(id).filter(|c| c.is_live()) {
                container.state = ContainerState::Unknown;
            }
        });
    }

    /// Reboots the host: sandboxes are not ready, containers exited, names stay reserved.
    pub fn reboot(&self) {
        self.driver.step(|model, now| {
            for id in model.sandboxes.keys().cloned().collect::<Vec<_>>() {
                drop(model.stop_sandbox(&id, now));
            }
        });
        self.disconnect_events();
    }
}

/// Inspection.
impl FakeRuntime {
    /// Calls `observer` with every change of a sandbox or container, in order.
    pub fn observe(&self, observer: impl Fn(RuntimeChange) + Send + Sync + 'static) {
        self.driver
            .change(|state| state.observer = Some(Arc::new(observer)));
    }

    /// Returns true if a container of the pod runs.
    pub fn is_pod_running(&self, uid: &PodUid) -> bool {
        self.driver.step(|model, _| {
            let mut containers = model.containers.values();
            containers.any(|c| c.uid == *uid && c.state == ContainerState::Running)
        })
    }

    /// Returns all calls in order of arrival.
    pub fn calls(&self) -> Vec<Call> {
        self.driver.change(|state| state.log.clone())
    }

    /// Returns the calls of an operation with a subject prefix.
    pub fn calls_of(&self, operation: Operation, subject: &str) -> Vec<Call> {
        let mut calls = self.calls();
        calls.retain(|call| call.operation == operation && call.subject.starts_with(subject));
        calls
    }

    /// Clears the call log.
    pub fn clear_calls(&self) {
        self.driver.clear_log();
    }

    /// Returns the sandboxes with pod UID, attempt and readiness.
    pub fn sandboxes(&self) -> Vec<(SandboxId, PodUid, u32, bool)> {
        self.driver.step(|model, _| {
            let rows = model.sandboxes.iter();
            rows.map(|(id, s)| (id.clone(), s.config.uid.clone(), s.config.attempt, s.ready))
                .collect()
        })
    }

    /// Returns the container instances of a pod by name, then attempt.
    pub fn containers(&self, uid: &PodUid) -> Vec<ContainerView> {
        let mut views = self.all_containers();
        views.retain(|view| view.uid == *uid);
        views
    }

    /// Returns all container instances by name, then attempt.
    pub fn all_containers(&self) -> Vec<ContainerView> {
        let mut views: Vec<ContainerView> = self.driver.step(|model, _| {
            let rows = model.containers.iter();
            rows.map(|(id, container)| ContainerView {
                id: id.clone(),
                sandbox: container.sandbox.clone(),
                uid: container.uid.clone(),
                name: container.config.name.clone(),
                attempt: container.config.attempt,
                state: container.state,
                exit_code: container.exit_code,
                started_at: container.started_at,
                finished_at: container.finished_at,
            })
            .collect()
        });
        views.sort_by(|a, b| (&a.name, a.attempt, &a.id).cmp(&(&b.name, b.attempt, &b.id)));
        views
    }

    /// Returns the running instance of a container.
    pub fn running(&self, uid: &PodUid, name: &str) -> Option<ContainerView> {
        self.containers(uid)
            .into_iter()
            .find(|view| view.name == name && view.state == ContainerState::Running)
    }

    /// Returns the configuration of a container.
    pub fn container_config(
        &self,
        id: &ContainerId,
    ) -> Option<windlass_types::cri::ContainerConfig> {
        self.driver
            .step(|model, _| model.containers.get(id).map(|c| c.config.clone()))
    }

    /// Returns the configuration of a sandbox.
    pub fn sandbox_config(&self, id: &SandboxId) -> Option<windlass_types::cri::SandboxConfig> {
        self.driver
            .step(|model, _| model.sandboxes.get(id).map(|s| s.config.clone()))
    }

    /// Returns the number of starts of a container.
    pub fn starts(&self, uid: &PodUid, name: &str) -> u32 {
        let key = (uid.clone(), name.to_owned());
        self.driver
            .step(|model, _| model.starts.get(&key).copied().unwrap_or(0))
    }

    /// Returns the starts of a container with another live instance.
    pub(crate) fn duplicate_live_instances(&self) -> Vec<String> {
        self.driver.step(|model, _| model.duplicates.clone())
    }

    /// Returns the start attempts in sandboxes that were not ready.
    pub(crate) fn starts_in_unready_sandbox(&self) -> Vec<String> {
        self.driver.step(|model, _| model.unready_starts.clone())
    }

    /// Panics if a container ever had two live instances.
    pub fn assert_no_duplicate_live_instances(&self) {
        let duplicates = self.duplicate_live_instances();
        assert!(
            duplicates.is_empty(),
            "duplicate live instances: {duplicates:#?}"
        );
    }

    /// Panics if a start was ever attempted in a sandbox that was not ready.
    pub(crate) fn assert_no_start_in_unready_sandbox(&self) {
        let starts = self.starts_in_unready_sandbox();
        assert!(
            starts.is_empty(),
            "starts in sandboxes that were not ready: {starts:#?}"
        );
    }

    /// Checks both invariants. Tests that kill sandboxes at arbitrary times use only the first.
    pub fn assert_invariants(&self) {
        self.assert_no_duplicate_live_instances();
        self.assert_no_start_in_unready_sandbox();
    }
}

#[cfg(test)]
mod tests;
