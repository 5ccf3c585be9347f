//! Changes of the model, for an observer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use windlass_types::PodUid;

use super::model::Container;

/// A change of a sandbox or container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeChange {
    /// The change.
    pub kind: RuntimeChangeKind,
    /// ID of the sandbox or container.
    pub id: String,
    /// Pod UID.
    pub uid: PodUid,
    /// `namespace/pod` of a sandbox, `namespace/pod/container#attempt` of a container.
    pub subject: String,
    /// Paths of the container's devices on the host.
    pub devices: Vec<String>,
}

/// Kinds of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeChangeKind {
    /// A sandbox became ready.
    SandboxStarted,
    /// A sandbox is no longer ready.
    SandboxEnded,
    /// A container started.
    Started,
    /// A caller requested the stop of a container that runs, with this grace period.
    StopRequested(Duration),
    /// A container ended with this exit code.
    Ended(i32),
    /// A container was removed.
    Removed,
}

impl RuntimeChange {
    pub(super) fn of_container(kind: RuntimeChangeKind, id: &str, container: &Container) -> Self {
        let devices = container.config.devices.iter();
        Self {
            kind,
            id: id.to_owned(),
            uid: container.uid.clone(),
            subject: container.subject.clone(),
            devices: devices.map(|device| device.host_path.clone()).collect(),
        }
    }
}

/// Receives changes in their order.
pub(super) type Observer = Arc<dyn Fn(RuntimeChange) + Send + Sync>;

impl fmt::Display for RuntimeChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subject = &self.subject;
        match self.kind {
            RuntimeChangeKind::SandboxStarted => write!(f, "sandbox of {subject} started"),
            RuntimeChangeKind::SandboxEnded => write!(f, "sandbox of {subject} ended"),
            RuntimeChangeKind::Started => write!(f, "{subject} started"),
            RuntimeChangeKind::StopRequested(grace) => {
                write!(f, "stop of {subject} within {} s", grace.as_secs_f64())
            }
            RuntimeChangeKind::Ended(code) => write!(f, "{subject} ended with {code}"),
            RuntimeChangeKind::Removed => write!(f, "{subject} removed"),
        }
    }
}
