//! The allocation for one pod: a sequence of decisions and of calls to device plugins. Pure.
//!
//! An allocation begins when the previous pod with the same UID, as static pods have, has ended, and
//! when the containers of the pod are known: a pod that runs is not rejected.
//!
//! Containers are served in order, init containers first. Each gets a placement from the hints of
//! all managers, then devices, CPUs and memory, as upstream. Devices are reserved before their
//! plugin is called, so allocations of several pods run concurrently.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;

use windlass_resource_managers::devices::{
    Choice, DeviceError, DeviceRequest, DeviceResponse, PreferredQuestion,
};
use windlass_resource_managers::hints::{Hint, NotAdmitted};
use windlass_status::PodStatusEntry;
use windlass_types::mutation::{Mutation, mutated};
use windlass_types::view::PodWorkerState;
use windlass_types::{ObservedPod, PodExt, PodUid, SharedPod};

use crate::managers::Managers;

/// Max time for which a pod waits for a plugin.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(45);

/// Call of a device plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PluginCall {
    /// `GetPreferredAllocation`.
    Preferred(PreferredQuestion),
    /// `Allocate`.
    Allocate(BTreeSet<String>),
}

impl PluginCall {
    /// Name of the call.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Preferred(_) => "GetPreferredAllocation",
            Self::Allocate(_) => "Allocate",
        }
    }
}

/// Result of a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CallResult {
    /// Preferred devices.
    Preferred(BTreeSet<String>),
    /// Response for a container.
    Allocated(DeviceResponse),
    /// The call failed.
    Failed(String),
}

/// What an allocation does next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Wait for the end of the previous pod with this UID.
    WaitForEnd,
    /// Observe the containers of the pod.
    Observe,
    /// Call the plugin of a resource.
    Call(String, PluginCall),
    /// Wait for the plugin of a resource.
    Wait(String),
    /// The pod has all resources.
    Done,
    /// The pod does not get its resources.
    Reject(NotAdmitted),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WaitForEnd => f.write_str("wait for end"),
            Self::Observe => f.write_str("observe"),
            Self::Call(resource, call) => write!(f, "{}({resource}", call.as_str())
                .and_then(|()| match call {
                    PluginCall::Preferred(question) => write!(f, " {}", question.size),
                    PluginCall::Allocate(ids) => ids.iter().try_for_each(|id| write!(f, " {id}")),
                })
                .and_then(|()| f.write_str(")")),
            Self::Wait(resource) => write!(f, "wait({resource})"),
            Self::Done => f.write_str("done"),
            Self::Reject(error) => write!(f, "reject({}: {error})", error.reason),
        }
    }
}

/// An allocation in progress.
#[derive(Clone, Debug)]
pub(crate) struct Allocation {
    /// The pod.
    pub(crate) pod: SharedPod,
    start: Start,
    /// Rejects a pod that the managers admit and that does not run.
    pub(crate) rejection: Option<NotAdmitted>,
    /// Number of the call in progress.
    pub(crate) call: Option<u64>,
    /// Monotonic time at which it began.
    pub(crate) since: Duration,
    /// Placement of all containers, with the scope `pod`.
    pod_hint: Option<Hint>,
    /// Number of containers that are served.
    served: usize,
    /// The container that is being served.
    current: Option<Current>,
}

/// Whether an allocation has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// The containers of the pod are not known.
    Unknown,
    /// The previous pod with this UID has not ended.
    AfterPrevious,
    /// It has begun. A pod that runs is not rejected.
    Begun { runs: bool },
}

/// A container that gets its resources.
#[derive(Clone, Debug)]
struct Current {
    hint: Hint,
    devices: VecDeque<DeviceRequest>,
    preferred: Option<BTreeSet<String>>,
}

impl Allocation {
    /// Creates the allocation of a pod without a worker. `rejection` rejects it in any case, after
    /// the managers.
    pub(crate) fn new(pod: SharedPod, rejection: Option<NotAdmitted>) -> Self {
        Self {
            pod,
            start: Start::Unknown,
            rejection,
            call: None,
            since: Duration::ZERO,
            pod_hint: None,
            served: 0,
            current: None,
        }
    }

    /// Creates the allocation of a pod that runs.
    pub(crate) fn of_running(pod: SharedPod, now: Duration) -> Self {
        Self {
            start: Start::Begun { runs: true },
            since: now,
            ..Self::new(pod, None)
        }
    }

    /// Records whether the pod runs, with which the allocation begins.
    pub(crate) fn observed(&mut self, pod: &ObservedPod, now: Duration) {
        self.begin(pod.is_alive(), now);
    }

    fn begin(&mut self, runs: bool, now: Duration) {
        let runs = runs && !mutated(Mutation::RestartFailsDevicePods);
        self.start = Start::Begun { runs };
        self.since = now;
    }

    /// True if the allocation has begun: what the pod has is its own.
    pub(crate) fn has_begun(&self) -> bool {
        matches!(self.start, Start::Begun { .. })
    }

    /// True if the pod is known to run.
    pub(crate) fn runs(&self) -> bool {
        self.start == Start::Begun { runs: true }
    }

    /// UID of the pod.
    pub(crate) fn uid(&self) -> PodUid {
        self.pod.uid()
    }

    /// Continues until a call is due, something is missing, or the end. `published` is the status
    /// entry of this UID: an allocation that has not begun finds that of a previous pod.
    pub(crate) fn advance(
        &mut self,
        managers: &mut Managers,
        published: Option<&PodStatusEntry>,
        now: Duration,
    ) -> Step {
        match self.start {
            Start::Begun { .. } => {}
            _ if published.is_some_and(PodStatusEntry::is_active) => {
                self.start = Start::AfterPrevious;
                return Step::WaitForEnd;
            }
            Start::AfterPrevious => self.begin(false, now),
            Start::Unknown => return Step::Observe,
        }
        if self.served == 0
            && self.current.is_none()
            && now < self.since + MAX_WAIT
            && (self.runs() || self.rejection.is_none())
            && let Some(resource) = managers.missing_plugin(&self.pod, self.runs())
        {
            return Step::Wait(resource);
        }
        loop {
            match self.next(managers) {
                Ok(Some(step)) => return step,
                Ok(None) => {}
                Err(error) => return Step::Reject(error),
            }
        }
    }

    /// Returns how the pod continues after the decision of the managers: it runs, without resources
    /// if there is an error in `Ok`, or it is rejected.
    pub(crate) fn outcome(
        &mut self,
        result: Result<(), NotAdmitted>,
    ) -> Result<Option<NotAdmitted>, NotAdmitted> {
        match (result, self.rejection.take()) {
            (result, _) if self.runs() => Ok(result.err()),
            (Err(error), _) | (Ok(()), Some(error)) => Err(error),
            (Ok(()), None) => Ok(None),
        }
    }

    /// Records the result of a call; the allocation continues with [`Self::advance`].
    ///
    /// # Errors
    /// The plugin failed, which ends the allocation.
    pub(crate) fn called(
        &mut self,
        managers: &mut Managers,
        result: CallResult,
    ) -> Result<(), NotAdmitted> {
        let Some(current) = &mut self.current else {
            return Ok(());
        };
        match result {
            CallResult::Preferred(ids) => current.preferred = Some(ids),
            CallResult::Allocated(response) => {
                let Some(request) = current.devices.pop_front() else {
                    return Ok(());
                };
                let DeviceRequest {
                    pod,
                    container,
                    resource,
                    ..
                } = &request;
                managers.devices.assign(pod, container, resource, response);
            }
            CallResult::Failed(error) => return Err(DeviceError::Plugin(error).into()),
        }
        Ok(())
    }

    /// One decision; `None` if the next one follows at once.
    fn next(&mut self, managers: &mut Managers) -> Result<Option<Step>, NotAdmitted> {
        let all = self
            .pod
            .init_containers()
            .iter()
            .chain(self.pod.containers());
        let Some(container) = all.clone().nth(self.served) else {
            return Ok(Some(Step::Done));
        };
        let Some(current) = &mut self.current else {
            let hint = match self.pod_hint {
                Some(hint) => hint,
                None => managers.place(&self.pod, container, self.served)?,
            };
            self.pod_hint = Some(hint).filter(|_| managers.places_pods());
            self.current = Some(Current {
                hint,
                devices: managers.device_requests(
                    &self.pod,
                    container,
                    self.served,
                    (hint, self.start == Start::Begun { runs: true }),
                ),
                preferred: None,
            });
            return Ok(None);
        };
        let Some(request) = current.devices.front() else {
            managers.allocate(&self.pod, container, current.hint)?;
            self.current = None;
            self.served += 1;
            return Ok(None);
        };
        let choice = managers
            .devices
            .choose(request, current.preferred.as_ref())?;
        current.preferred = None;
        Ok(match choice {
            Choice::Kept => {
                current.devices.pop_front();
                None
            }
            Choice::AskPlugin(question) => Some(Step::Call(
                request.resource.clone(),
                PluginCall::Preferred(question),
            )),
            Choice::Take(ids) => {
                let DeviceRequest {
                    pod,
                    container,
                    resource,
                    ..
                } = request;
                managers.devices.reserve(pod, container, resource, &ids);
                Some(Step::Call(resource.clone(), PluginCall::Allocate(ids)))
            }
        })
    }
}

/// Whether the containers of a pod can run, on which its resources depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// They can run.
    Open,
    /// None can run: the resources are released.
    Ended,
    /// Not known: the runtime may not have listed its pods in this agent run.
    Unknown,
}

/// Whether the containers of a pod can run. `published` is the status entry of its worker, `None`
/// without a worker. A pod that is starting has resources, and no worker yet: what ends is the
/// previous pod with its UID.
pub(crate) fn end_of(
    published: Option<&PodStatusEntry>,
    is_starting: bool,
    observed: Option<&ObservedPod>,
) -> End {
    let can_run = match (published, observed) {
        _ if is_starting => true,
        (Some(entry), _) => entry.is_active(),
        (None, Some(observed)) => observed.is_alive(),
        (None, None) => return End::Unknown,
    };
    match can_run {
        true => End::Open,
        false => End::Ended,
    }
}

/// True if devices are allocated to a running pod that has none, because their state file was lost
/// (upstream `needsReAllocate`).
pub(crate) fn is_reallocated(
    published: &PodStatusEntry,
    allocates: bool,
    managers: &Managers,
) -> bool {
    let runs = published.observed && published.worker_state == PodWorkerState::SyncPod;
    runs && !allocates && managers.lacks_devices(&published.pod)
}

#[cfg(test)]
mod tests;
