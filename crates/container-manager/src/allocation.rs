//! The allocation for one pod: a sequence of decisions and of calls to device plugins. Pure.
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
use windlass_types::{PodExt, PodUid, SharedPod};

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
    /// The pod runs also without its resources.
    pub(crate) keep: bool,
    /// Rejects a pod that the managers admit and that does not run.
    pub(crate) rejection: Option<NotAdmitted>,
    /// Number of the call in progress.
    pub(crate) call: Option<u64>,
    /// Monotonic time of the request.
    pub(crate) since: Duration,
    /// Placement of all containers, with the scope `pod`.
    pod_hint: Option<Hint>,
    /// Number of containers that are served.
    served: usize,
    /// The container that is being served.
    current: Option<Current>,
}

/// A container that gets its resources.
#[derive(Clone, Debug)]
struct Current {
    hint: Hint,
    devices: VecDeque<DeviceRequest>,
    preferred: Option<BTreeSet<String>>,
}

impl Allocation {
    /// Creates an allocation that has not begun.
    pub(crate) fn new(pod: SharedPod, keep: bool, now: Duration) -> Self {
        Self {
            pod,
            keep,
            rejection: None,
            call: None,
            since: now,
            pod_hint: None,
            served: 0,
            current: None,
        }
    }

    /// UID of the pod.
    pub(crate) fn uid(&self) -> PodUid {
        self.pod.uid()
    }

    /// Continues until a call is due, a plugin is missing, or the end.
    pub(crate) fn advance(&mut self, managers: &mut Managers, now: Duration) -> Step {
        if self.served == 0
            && self.current.is_none()
            && now < self.since + MAX_WAIT
            && (self.keep || self.rejection.is_none())
            && let Some(resource) = managers.missing_plugin(&self.pod, self.keep)
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
            (result, _) if self.keep => Ok(result.err()),
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
                    (hint, self.keep),
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
