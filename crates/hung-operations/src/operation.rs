//! What hangs, as a value and as text.

use std::fmt;

use windlass_types::{PodUid, Timestamp, api_time};

windlass_types::text_enum! {
    /// Kind of an operation. Its text is the value of the label `kind`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum OperationKind {
        /// A call of the container runtime.
        RuntimeCall = "runtime_call",
        /// A pull of an image, which includes unpacking it.
        ImagePull = "image_pull",
        /// A mount, unmount or expansion of a volume without a CSI driver.
        Volume = "volume",
        /// A call of a CSI driver.
        Csi = "csi",
        /// A read of the usage of a volume (`statfs`).
        VolumeUsage = "volume_usage",
        /// A call of a device plugin.
        DevicePlugin = "device_plugin",
        /// A call of a DRA driver.
        DraDriver = "dra_driver",
        /// A lifecycle hook of a container.
        Hook = "hook",
        /// A probe whose attempts take longer than its timeout.
        Probe = "probe",
        /// A read of a container log.
        LogRead = "log_read",
    }
}

impl OperationKind {
    /// True if such an operation may be slow without a fault: the runtime reports no progress of a
    /// pull, so a large image looks like a hung one. Causes no event of the node.
    pub fn may_be_slow(self) -> bool {
        self == Self::ImagePull
    }
}

/// An operation. Equal ones are attempts of the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Operation {
    /// Kind.
    pub kind: OperationKind,
    /// Pod that waits for it; `None` if the node does.
    pub pod: Option<PodUid>,
    /// What it does, such as `mount of volume data`; equal for all attempts.
    pub name: String,
}

impl Operation {
    /// Creates an operation of a pod.
    pub fn of_pod(kind: OperationKind, pod: &PodUid, name: impl Into<String>) -> Self {
        Self {
            kind,
            pod: Some(pod.clone()),
            name: name.into(),
        }
    }
}

/// An operation that hangs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HungOperation {
    /// The operation.
    pub operation: Operation,
    /// Start of the first attempt without an answer.
    pub since: Timestamp,
}

impl fmt::Display for HungOperation {
    /// Does not change while the operation hangs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, since) = (&self.operation.name, api_time(self.since));
        match self.operation.kind.may_be_slow() {
            true => write!(f, "{name} in progress since {since}"),
            false => write!(f, "{name} hung since {since}"),
        }
    }
}
