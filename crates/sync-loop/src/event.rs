//! The closed list of what makes the loop turn.

use windlass_actors::{PodChanged, ProbeUpdate, VolumesChanged};
use windlass_pod_lifecycle::housekeeping::HousekeepingPlan;
use windlass_cri::CriResult;
use windlass_types::cri::RuntimeStatus;
use windlass_types::{PodUid, PodUpdate};

/// One cause of one iteration.
#[derive(Debug)]
pub enum SyncLoopEvent {
    /// The set of desired pods changed (ADD, UPDATE, REMOVE, RECONCILE, DELETE, SET, RESTORE).
    Config(PodUpdate),
    /// The PLEG saw a pod change.
    Pleg(PodUid, PodChanged),
    /// Something that a pod refers to came, changed or went.
    Objects(PodUid),
    /// Volumes of a pod became ready, failed, or hold more than they may.
    Volumes(PodUid, VolumesChanged),
    /// Verdicts of probes changed.
    Probe(PodUid, ProbeUpdate),
    /// A second has passed.
    SyncTick,
    /// Two seconds have passed.
    HousekeepingTick,
    /// The snapshots of a clean-up are compared.
    HousekeepingPlanned(HousekeepingPlan),
    /// A clean-up has ended.
    HousekeepingDone,
    /// The version of the runtime is unknown; it is requested again after the next check.
    GapsUnknown,
    /// The runtime was asked how it is.
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
            Self::SyncTick
            | Self::HousekeepingTick
            | Self::HousekeepingPlanned(_)
            | Self::HousekeepingDone
            | Self::GapsUnknown
            | Self::RuntimeChecked(_) => false,
        }
    }

    /// The cause in one word, for the log and `windlass_sync_loop_events_total`.
    pub fn cause(&self) -> &'static str {
        match self {
            Self::Config(_) => "config",
            Self::Pleg(_, _) => "pleg",
            Self::Objects(_) => "objects",
            Self::Volumes(_, _) => "volumes",
            Self::Probe(_, _) => "probe",
            Self::SyncTick => "sync",
            Self::HousekeepingTick | Self::HousekeepingPlanned(_) | Self::HousekeepingDone => {
                "housekeeping"
            }
            Self::RuntimeChecked(_) | Self::GapsUnknown => "runtime",
        }
    }
}
