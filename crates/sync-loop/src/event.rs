//! The closed list of events.

use windlass_actors::{PodChanged, ProbeUpdate, ResourcesAllocated, TerminatePod, VolumesChanged};
use windlass_cri::CriResult;
use windlass_pod_lifecycle::housekeeping::HousekeepingPlan;
use windlass_types::cri::RuntimeStatus;
use windlass_types::{PodUid, PodUpdate};

/// Event that causes an iteration.
#[derive(Debug)]
pub enum SyncLoopEvent {
    /// The set of desired pods changed (ADD, UPDATE, REMOVE, RECONCILE, DELETE, SET, RESTORE).
    Config(PodUpdate),
    /// PodStorage has stopped: the loop ends.
    ConfigClosed,
    /// The runtime state of a pod changed.
    Pleg(PodUid, PodChanged),
    /// A reference of a pod changed.
    Objects(PodUid),
    /// Volumes of a pod became ready, failed, or exceed their size limit.
    Volumes(PodUid, VolumesChanged),
    /// Probe results changed.
    Probe(PodUid, ProbeUpdate),
    /// A node shutdown or an eviction terminates a pod.
    Termination(PodUid, TerminatePod),
    /// The ContainerManager allocated resources to a pod, rejected it, or lets it wait.
    Allocation(PodUid, ResourcesAllocated),
    /// The sync timer fired (1 s): pods whose deadline has passed are due.
    SyncTick,
    /// The housekeeping timer fired (2 s).
    HousekeepingTick,
    /// The plan of a housekeeping round is ready.
    HousekeepingPlanned(HousekeepingPlan),
    /// A housekeeping round ended.
    HousekeepingDone,
    /// The runtime version request failed; it is retried after the next check.
    GapsUnknown,
    /// A runtime check completed.
    RuntimeChecked(CriResult<RuntimeStatus>),
}

impl SyncLoopEvent {
    /// True if a source, the runtime, a volume or a probe reports a change.
    pub(crate) fn is_change(&self) -> bool {
        match self {
            Self::Config(_)
            | Self::Pleg(_, _)
            | Self::Objects(_)
            | Self::Volumes(_, _)
            | Self::Probe(_, _) => true,
            Self::ConfigClosed
            | Self::Termination(_, _)
            | Self::Allocation(_, _)
            | Self::SyncTick
            | Self::HousekeepingTick
            | Self::HousekeepingPlanned(_)
            | Self::HousekeepingDone
            | Self::GapsUnknown
            | Self::RuntimeChecked(_) => false,
        }
    }

    /// Returns the event name for logs and `windlass_sync_loop_events_total`.
    pub fn cause(&self) -> &'static str {
        match self {
            Self::Config(_) | Self::ConfigClosed => "config",
            Self::Pleg(_, _) => "pleg",
            Self::Objects(_) => "objects",
            Self::Volumes(_, _) => "volumes",
            Self::Probe(_, _) => "probe",
            Self::Termination(_, _) => "termination",
            Self::Allocation(_, _) => "allocation",
            Self::SyncTick => "sync",
            Self::HousekeepingTick | Self::HousekeepingPlanned(_) | Self::HousekeepingDone => {
                "housekeeping"
            }
            Self::RuntimeChecked(_) | Self::GapsUnknown => "runtime",
        }
    }
}
