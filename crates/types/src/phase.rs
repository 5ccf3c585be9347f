//! The phase of a pod, observed or decided.

use std::fmt;

/// `status.phase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not everything has started yet.
    Pending,
    /// Everything has started; something runs or will again.
    Running,
    /// All containers ended well.
    Succeeded,
    /// All containers ended, one of them badly.
    Failed,
}

impl Phase {
    /// The API's text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    /// Reads the API's text.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Pending, Self::Running, Self::Succeeded, Self::Failed]
            .into_iter()
            .find(|p| p.as_str() == text)
    }

    /// True for the phases that are never left.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
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
