//! Names, identifiers and pure data shared by every Windlass crate.
//!
//! Nothing here decides, waits or touches the outside: a type carries its meaning, its unit and
//! where upstream names the same thing. Desired state is the Kubernetes API's own [`Pod`];
//! observed state is [`observed`]; what is asked of a container runtime is [`cri`].

pub mod ids;
pub mod pod;
pub mod time;

pub mod access;
pub mod event;
pub mod update;

pub mod cri;
pub mod growth;
pub mod observed;
pub mod probe;
pub mod volume;

pub mod names;
pub mod port;
pub mod reason;
pub mod retry;
pub mod span;
pub mod view;
pub mod why;

pub use access::{NodeRight, UserInfo};
pub use event::{PodLifecycleEvent, PodLifecycleEventKind};
pub use growth::{Growing, GrowthFault, GrowthTurn};
pub use ids::{ContainerId, PodFullName, PodUid, SandboxId};
pub use observed::{ContainerState, ObservedContainer, ObservedPod, ObservedSandbox, ObservedUser};
pub use pod::{Pod, PodExt, RestartPolicy, SharedPod};
pub use port::{Clock, EventRecorder};
pub use probe::{ContainerVerdict, PodVerdicts, ProbeKind};
pub use reason::Reason;
pub use retry::Retry;
pub use span::{FinishedSpan, SpanId, SpanKind, SpanSink, TraceId, TraceParent};
pub use time::{Timestamp, api_time, later};
pub use update::{PodOp, PodSource, PodUpdate};
pub use volume::{
    DeviceName, FoundVolume, MountedContent, MountedVolume, MountedVolumes, ReadyVolumes,
    VolumesNotReady,
};

/// The Kubernetes certificates.k8s.io/v1beta1 types (`ClusterTrustBundle`), from `k8s-openapi`.
pub use k8s_openapi::api::certificates::v1beta1 as certificatesv1beta1;
/// The Kubernetes coordination.k8s.io/v1 types (`Lease`), from `k8s-openapi`.
pub use k8s_openapi::api::coordination::v1 as coordinationv1;
/// The Kubernetes core/v1 types (`Container`, `PodSpec`, …), from `k8s-openapi`.
pub use k8s_openapi::api::core::v1 as corev1;
/// The Kubernetes node.k8s.io/v1 types (`RuntimeClass`), from `k8s-openapi`.
pub use k8s_openapi::api::node::v1 as nodev1;
/// The Kubernetes storage.k8s.io/v1 types (`CSIDriver`, `VolumeAttachment`, …), from `k8s-openapi`.
pub use k8s_openapi::api::storage::v1 as storagev1;
/// The Kubernetes meta/v1 types (`ObjectMeta`, `Time`, …), from `k8s-openapi`.
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1 as metav1;
/// Numbers or names, as ports are given.
pub use k8s_openapi::apimachinery::pkg::util::intstr;
