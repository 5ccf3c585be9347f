//! A deterministic in-memory model of a CRI runtime.
//!
//! [`FakeRuntime`] implements both ports in process, on tokio's (usually paused) time, and can be
//! served over a Unix socket for the real client. Latencies are tokio sleeps, the present is the
//! given clock's, IDs come from the seed and every collection is ordered: two runs with the same
//! seed and inputs are the same, call by call. Answers and refusals follow containerd's.
//!
//! Containers follow scripts ([`Behavior`]), calls go wrong by plan ([`Fault`]), every call is
//! logged ([`Call`]), and what an agent must never do is recorded
//! ([`FakeRuntime::assert_invariants`]).

mod behavior;
mod exec;
mod fault;
mod operation;

mod images;
mod model;

mod events;
mod port;
mod server;
mod driver;

pub use behavior::{Behavior, Pull};
pub use events::EventMode;
pub use exec::Exec;
pub use fault::Fault;
pub use operation::{Call, Operation, Outcome};
pub use server::ServeGuard;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use windlass_types::cri::{ImageInfo, RuntimeHandler};
use windlass_types::{Clock, ContainerId, ContainerState, PodUid, SandboxId, Timestamp};

use driver::SimDriver;

/// Handle to a model runtime; clones share it.
#[derive(Clone)]
pub struct FakeRuntime {
    driver: Arc<SimDriver>,
}

impl fmt::Debug for FakeRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeRuntime").finish_non_exhaustive()
    }
}

/// One container instance as a test sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerView {
    /// ID.
    pub id: ContainerId,
    /// Its sandbox.
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

/// Making one, and scripting what it does.
impl FakeRuntime {
    /// An empty runtime, ready, without images; images can be pulled at once.
    pub fn new(clock: Arc<dyn Clock>, seed: u64) -> Self {
        Self {
            driver: Arc::new(SimDriver::new(clock, seed)),
        }
    }

    /// Serves `runtime.v1` (and containerd's event service, see [`EventMode`]) on a Unix socket,
    /// on a thread of its own and in real time, until the guard is dropped. Must not be combined
    /// with paused time.
    pub fn serve(&self, path: impl AsRef<Path>) -> io::Result<ServeGuard> {
        server::serve(self.clone(), path.as_ref())
    }

    /// What containers do once started. `key` is `namespace/pod/container`, a container name or
    /// an image reference as the pod has it; the first that matches counts.
    pub fn set_behavior(&self, key: &str, behavior: Behavior) {
        self.script(key, vec![behavior]);
    }

    /// One behavior for each start of a container of a pod; the last goes for all further ones.
    pub fn script(&self, key: &str, behaviors: Vec<Behavior>) {
        self.driver
            .change(|state| state.model.scripts.insert(key.to_owned(), behaviors));
    }

    /// How long calls of one operation take.
    pub fn set_latency(&self, operation: Operation, latency: Duration) {
        self.driver
            .change(|state| state.latencies.insert(operation, latency));
    }

    /// Serves one call at a time, in the order in which they arrived, each for `time` before its own
    /// latency; the event stream and what a stop waits for do not count.
    pub fn serve_one_at_a_time(&self, time: Duration) {
        self.driver.change(|state| state.serial_time = Some(time));
    }

    /// `runtimeRequestTimeout`, 2 min unless set: calls that hang longer fail with
    /// `DeadlineExceeded`, as the port promises.
    pub fn set_request_timeout(&self, timeout: Duration) {
        self.driver.change(|state| state.timeout = timeout);
    }

    /// Puts an image on the node and returns its ID.
    pub fn add_image(&self, reference: &str) -> String {
        self.driver.change(|state| state.model.images.add(reference))
    }

    /// Puts an image on the node, with what the model cannot guess (user, size, pinned).
    pub fn add_image_with(&self, reference: &str, change: impl FnOnce(&mut ImageInfo)) {
        self.driver
            .change(|state| state.model.images.change(reference, change));
    }

    /// How pulls of an image go.
    pub fn set_pull(&self, reference: &str, pull: Pull) {
        self.driver
            .change(|state| state.model.images.set_pull(reference, pull));
    }

    /// What `Status` says of handlers and of `supplementalGroupsPolicy: Strict`; without this it
    /// says nothing of either, like an old runtime.
    pub fn set_features(&self, handlers: Vec<RuntimeHandler>, strict_groups: Option<bool>) {
        self.driver.change(|state| {
            state.model.handlers = handlers;
            state.model.strict_groups = strict_groups;
        });
    }

    /// What `Status` says of the network and why sandboxes cannot be made; `None` is ready.
    pub fn set_network_error(&self, error: Option<&str>) {
        self.driver
            .change(|state| state.model.network_error = error.map(str::to_owned));
    }
}

/// Making it go wrong.
impl FakeRuntime {
    /// Plans a fault.
    pub fn inject(&self, fault: Fault) {
        self.driver.change(|state| state.faults.add(fault));
    }

    /// Lets the hanging calls of an operation go on and plans no more hangs of it.
    pub fn release(&self, operation: Operation) {
        self.driver.change(|state| state.faults.release(operation));
    }

    /// Forgets all planned faults; hanging calls go on.
    pub fn clear_faults(&self) {
        self.driver.change(|state| state.faults.clear());
    }

    /// Whether every call answers `Unavailable`. Containers go on; event streams end.
    pub fn set_down(&self, down: bool) {
        self.driver.change(|state| {
            state.down = down;
            if down {
                state.events.disconnect();
            }
        });
    }

    /// Which event service there is. Changing it ends open streams.
    pub fn set_event_mode(&self, mode: EventMode) {
        self.driver.change(|state| state.events.set_mode(mode));
    }

    /// The served socket also streams lists.
    pub fn stream_lists(&self) {
        self.driver.change(|state| state.stream_lists = true);
    }

    /// Ends open event streams as a lost connection does.
    pub fn disconnect_events(&self) {
        self.driver.change(|state| state.events.disconnect());
    }

    /// The next `count` events reach nobody.
    pub fn drop_events(&self, count: usize) {
        self.driver.change(|state| state.events.drop_next = count);
    }

    /// The next `count` events arrive twice.
    pub fn duplicate_events(&self, count: usize) {
        self.driver
            .change(|state| state.events.duplicate_next = count);
    }

    /// From now on events arrive this late.
    pub fn delay_events(&self, delay: Duration) {
        self.driver.change(|state| state.events.late = Some(delay));
    }

    /// Ends a running container from outside.
    pub fn kill_container(&self, id: &ContainerId, exit_code: i32) {
        self.driver
            .step(|model, now| drop(model.end_container(id, exit_code, false, now)));
    }

    /// The kernel kills a running container for memory.
    pub fn oom_kill(&self, id: &ContainerId) {
        self.driver
            .step(|model, now| drop(model.end_container(id, 137, true, now)));
    }

    /// A sandbox dies with what runs in it, as after the loss of its pause process.
    pub fn kill_sandbox(&self, id: &SandboxId) {
        self.driver
            .step(|model, now| drop(model.stop_sandbox(id, now)));
    }

    /// Loses a sandbox and leaves its containers, as a runtime with a damaged store does.
    pub fn lose_sandbox(&self, id: &SandboxId) {
        self.driver.step(|model, _| drop(model.sandboxes.remove(id)));
    }

    /// Removes a container from outside, as `crictl rm -f` does.
    pub fn lose_container(&self, id: &ContainerId) {
        self.driver
            .step(|model, now| drop(model.remove_container(id, now)));
    }

    /// The runtime no longer knows what a running container does.
    pub fn set_unknown(&self, id: &ContainerId) {
        self.driver.step(|model, _| {
            if let Some(container) = model.containers.get_mut(id).filter(|c| c.is_live()) {
                container.state = ContainerState::Unknown;
            }
        });
    }

    /// The machine restarts: sandboxes are not ready, containers have ended, names stay taken.
    pub fn reboot(&self) {
        self.driver.step(|model, now| {
            for id in model.sandboxes.keys().cloned().collect::<Vec<_>>() {
                drop(model.stop_sandbox(&id, now));
            }
        });
        self.disconnect_events();
    }
}

/// Looking at what came of it.
impl FakeRuntime {
    /// Every call so far, in the order of arrival.
    pub fn calls(&self) -> Vec<Call> {
        self.driver.change(|state| state.log.clone())
    }

    /// Calls of one operation whose subject begins so.
    pub fn calls_of(&self, operation: Operation, subject: &str) -> Vec<Call> {
        let mut calls = self.calls();
        calls.retain(|call| call.operation == operation && call.subject.starts_with(subject));
        calls
    }

    /// Forgets the calls so far.
    pub fn clear_calls(&self) {
        self.driver.clear_log();
    }

    /// Sandboxes with the UID of their pod, their attempt and whether they are ready.
    pub fn sandboxes(&self) -> Vec<(SandboxId, PodUid, u32, bool)> {
        self.driver.step(|model, _| {
            let rows = model.sandboxes.iter();
            rows.map(|(id, s)| (id.clone(), s.config.uid.clone(), s.config.attempt, s.ready))
                .collect()
        })
    }

    /// Container instances of a pod by name, then attempt.
    pub fn containers(&self, uid: &PodUid) -> Vec<ContainerView> {
        let mut views = self.all_containers();
        views.retain(|view| view.uid == *uid);
        views
    }

    /// Container instances of all pods by name, then attempt.
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

    /// The one running instance of a container.
    pub fn running(&self, uid: &PodUid, name: &str) -> Option<ContainerView> {
        self.containers(uid)
            .into_iter()
            .find(|view| view.name == name && view.state == ContainerState::Running)
    }

    /// The configuration a container was created with.
    pub fn container_config(
        &self,
        id: &ContainerId,
    ) -> Option<windlass_types::cri::ContainerConfig> {
        self.driver
            .step(|model, _| model.containers.get(id).map(|c| c.config.clone()))
    }

    /// The configuration a sandbox was made with.
    pub fn sandbox_config(&self, id: &SandboxId) -> Option<windlass_types::cri::SandboxConfig> {
        self.driver
            .step(|model, _| model.sandboxes.get(id).map(|s| s.config.clone()))
    }

    /// How often a container of a pod was started.
    pub fn starts(&self, uid: &PodUid, name: &str) -> u32 {
        let key = (uid.clone(), name.to_owned());
        self.driver
            .step(|model, _| model.starts.get(&key).copied().unwrap_or(0))
    }

    /// Starts of a container while another live instance of it existed; must stay empty.
    pub(crate) fn duplicate_live_instances(&self) -> Vec<String> {
        self.driver.step(|model, _| model.duplicates.clone())
    }

    /// Starts that were tried in a sandbox that was not ready.
    pub(crate) fn starts_in_unready_sandbox(&self) -> Vec<String> {
        self.driver.step(|model, _| model.unready_starts.clone())
    }

    /// Panics if ever two live instances of one container of one pod existed.
    pub fn assert_no_duplicate_live_instances(&self) {
        let duplicates = self.duplicate_live_instances();
        assert!(
            duplicates.is_empty(),
            "duplicate live instances: {duplicates:#?}"
        );
    }

    /// Panics if ever a start was tried in a sandbox that was not ready.
    pub(crate) fn assert_no_start_in_unready_sandbox(&self) {
        let starts = self.starts_in_unready_sandbox();
        assert!(
            starts.is_empty(),
            "starts in sandboxes that were not ready: {starts:#?}"
        );
    }

    /// Both assertions. Tests that kill sandboxes at arbitrary moments use only the first: an
    /// agent cannot know of a death that happens between its look and its call.
    pub fn assert_invariants(&self) {
        self.assert_no_duplicate_live_instances();
        self.assert_no_start_in_unready_sandbox();
    }
}

#[cfg(test)]
mod tests;
