//! What the probes of a pod's containers have found.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::ContainerId;

/// The three probes that a container may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ProbeKind {
    /// A container that fails it is restarted.
    Liveness,
    /// A container that fails it gets no traffic.
    Readiness,
    /// The other two wait for it; a container that fails it is restarted.
    Startup,
}

impl ProbeKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Liveness, Self::Readiness, Self::Startup];

    /// Name in metrics and logs, with a capital (upstream `probeType.String()`).
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
            Self::Startup => "Startup",
        }
    }
}

impl fmt::Display for ProbeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What one probe of one container instance has come to, after its thresholds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerProbeResult {
    /// The instance it is about; it says nothing of a later one.
    pub id: ContainerId,
    /// Succeeds.
    pub ok: bool,
}

/// The verdicts on a pod's containers by container name. A probe that has not come to one is
/// absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodProbeResults {
    /// Of the liveness probes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub liveness: BTreeMap<String, ContainerProbeResult>,
    /// Of the readiness probes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub readiness: BTreeMap<String, ContainerProbeResult>,
    /// Of the startup probes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub startup: BTreeMap<String, ContainerProbeResult>,
}

impl PodProbeResults {
    /// The verdicts of one kind.
    pub fn of(&self, kind: ProbeKind) -> &BTreeMap<String, ContainerProbeResult> {
        match kind {
            ProbeKind::Liveness => &self.liveness,
            ProbeKind::Readiness => &self.readiness,
            ProbeKind::Startup => &self.startup,
        }
    }

    /// The verdicts of one kind, to be changed.
    pub fn of_mut(&mut self, kind: ProbeKind) -> &mut BTreeMap<String, ContainerProbeResult> {
        match kind {
            ProbeKind::Liveness => &mut self.liveness,
            ProbeKind::Readiness => &mut self.readiness,
            ProbeKind::Startup => &mut self.startup,
        }
    }

    /// What a probe says of this very instance; `None` if it has not come to a verdict.
    pub fn verdict(&self, kind: ProbeKind, container: &str, id: &ContainerId) -> Option<bool> {
        let verdict = self.of(kind).get(container)?;
        (verdict.id == *id).then_some(verdict.ok)
    }

    /// True if no probe has come to a verdict.
    pub fn is_empty(&self) -> bool {
        ProbeKind::ALL.iter().all(|kind| self.of(*kind).is_empty())
    }
}
