//! The phase of a pod, observed or decided.

use crate::corev1::PodStatus;

crate::text_enum! {
    /// `status.phase`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Phase {
        /// Not everything has started yet.
        Pending = "Pending",
        /// Everything has started; something runs or will again.
        Running = "Running",
        /// All containers ended well.
        Succeeded = "Succeeded",
        /// All containers ended, one of them badly.
        Failed = "Failed",
    }
}

impl Phase {
    /// Returns the phase in a pod status.
    pub fn from_status(status: &PodStatus) -> Option<Self> {
        status.phase.as_deref().and_then(Self::from_text)
    }

    /// True for a pod status with a terminal phase.
    pub fn is_terminal_in(status: &PodStatus) -> bool {
        Self::from_status(status).is_some_and(Self::is_terminal)
    }

    /// True for the phases that are never left.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// A phase that was decided, not observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseOverride {
    /// Usually [`Phase::Failed`].
    pub phase: Phase,
    /// `status.reason`, for example `DeadlineExceeded`.
    pub reason: String,
    /// `status.message`.
    pub message: String,
    /// Message of the condition `DisruptionTarget`, if the pod could have continued and the
    /// node terminates it (shutdown, eviction). A rejected pod was never disrupted.
    pub disruption: Option<String>,
}
