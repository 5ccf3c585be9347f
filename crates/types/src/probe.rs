//! Probe kinds and probe results of a pod.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::ContainerId;
use crate::mutation::{Mutation, mutated};

crate::text_enum! {
    /// Kind of a container probe.
    ///
    /// Its text is the name in metrics and logs, with a capital (upstream `probeType.String()`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum ProbeKind {
        /// A failure restarts the container.
        Liveness = "Liveness",
        /// A failure removes the container from traffic.
        Readiness = "Readiness",
        /// A failure restarts the container; the other probes start after success.
        Startup = "Startup",
    }
}

/// A probe of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerProbe<'a> {
    /// Name of the container.
    pub container: &'a str,
    /// Kind of the probe.
    pub kind: ProbeKind,
}

/// The result of one probe of one container instance, after its thresholds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerProbeResult {
    /// The container instance; the result does not apply to a later one.
    pub id: ContainerId,
    /// True for success, false for failure.
    pub success: bool,
}

/// Probe results of a pod by container name; a probe without a result is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodProbeResults {
    /// Results of liveness probes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub liveness: BTreeMap<String, ContainerProbeResult>,
    /// Results of readiness probes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub readiness: BTreeMap<String, ContainerProbeResult>,
    /// Results of startup probes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub startup: BTreeMap<String, ContainerProbeResult>,
}

impl PodProbeResults {
    pub(crate) fn for_kind(&self, kind: ProbeKind) -> &BTreeMap<String, ContainerProbeResult> {
        match kind {
            ProbeKind::Liveness => &self.liveness,
            ProbeKind::Readiness => &self.readiness,
            ProbeKind::Startup => &self.startup,
        }
    }

    /// Returns the results of one kind for changes.
    pub fn for_kind_mut(&mut self, kind: ProbeKind) -> &mut BTreeMap<String, ContainerProbeResult> {
        match kind {
            ProbeKind::Liveness => &mut self.liveness,
            ProbeKind::Readiness => &mut self.readiness,
            ProbeKind::Startup => &mut self.startup,
        }
    }

    /// Returns the result for exactly this container instance, if there is one.
    pub fn result(&self, kind: ProbeKind, container: &str, id: &ContainerId) -> Option<bool> {
        let result = self.for_kind(kind).get(container)?;
        let applies = result.id == *id || mutated(Mutation::ProbeResultOfOldInstance);
        applies.then_some(result.success)
    }

    /// True if no probe has a result.
    pub fn is_empty(&self) -> bool {
        let mut kinds = ProbeKind::ALL.iter();
        kinds.all(|kind| self.for_kind(*kind).is_empty())
    }
}
