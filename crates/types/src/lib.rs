//! Names, identifiers and pure data shared by every Windlass crate.
//!
//! Use it with any other crate of this workspace. Desired state is the Kubernetes [`Pod`], observed
//! state is [`ObservedPod`], requests to the container runtime are in [`cri`]. The API types come
//! from `k8s-openapi` under their usual names: [`corev1`], [`metav1`], …
//!
//! # The way in
//!
//! * [`PodExt`] reads common fields of a [`Pod`]; a missing field reads as its default
//! * [`PodUpdate`] is a change to the desired pods, [`PodLifecycleEvent`] an observed change
//! * [`PodUid`], [`SandboxId`] and [`ContainerId`] are distinct types for identifiers
//! * [`Clock`] and [`EventRecorder`] are ports that any crate may use
//! * [`Retry`] is the retry class of every error
//! * [`text_enum!`] declares an enum whose variants have one text each
//!
//! # Example
//!
//! ```
//! use windlass_types::{Pod, PodExt, RestartPolicy};
//!
//! let mut pod = Pod::default();
//! pod.metadata.name = Some("web".to_owned());
//! pod.metadata.namespace = Some("shop".to_owned());
//! assert_eq!(pod.full_name().to_string(), "web_shop");
//! assert_eq!(pod.restart_policy(), RestartPolicy::Always);
//! assert_eq!(pod.termination_grace_seconds(), 30);
//! assert!(!pod.is_static(), "without the annotation it is from the API server");
//! ```
//!
//! `cargo run -p windlass-types --example describe_pod -- pod.json` prints the main fields of a
//! pod.
//!
//! # What it promises
//!
//! User-visible names ([`Reason`], [`PodOp`], the states in [`view`]) are spelled as in Kubernetes.
//! `Debug` of runtime requests and credentials omits secrets; that of a [`Pod`] shows everything.
//!
//! # What it does not do
//!
//! The crate contains no decisions, I/O or clocks. Nothing is validated:
//! identifiers are plain text, and a [`Pod`] is any decodable pod. `windlass-manifests` reads,
//! defaults and validates manifests.

mod ids;
pub mod pod;
mod text_enum;
mod time;

mod access;
mod allocated;
mod event;
mod update;

pub mod cri;
mod expansion;
mod image_holds;
pub mod mutation;
mod observed;
mod phase;
mod plugin_resources;
mod probe;
mod volume;

pub mod explain;
pub mod names;
mod port;
mod reason;
mod retry;
mod sizes;
pub mod span;
pub mod top;
pub mod view;

pub use access::{NodePermission, UserInfo};
pub use allocated::AllocatedResources;
pub use event::{PodLifecycleEvent, PodLifecycleEventKind};
pub use expansion::{ExpansionDecision, ExpansionError, ExpansionTask};
pub use ids::{ContainerId, PodFullName, PodUid, SandboxId};
pub use image_holds::{ImageHold, ImageHolds};
pub use observed::{
    ContainerState, ObservedContainer, ObservedPod, ObservedSandbox, ObservedUser, OomKills,
};
pub use phase::{Phase, PhaseOverride};
pub use plugin_resources::PluginResources;
pub use pod::{Pod, PodExt, RestartPolicy, SharedPod};
pub use port::{Clock, EventRecorder};
pub use probe::{ContainerProbe, ContainerProbeResult, PodProbeResults, ProbeKind};
pub use reason::Reason;
pub use retry::Retry;
pub use sizes::ContainerSizes;
pub use span::{FinishedSpan, SpanId, SpanKind, SpanSink, TraceId, TraceParent};
pub use time::{ClockReading, Timestamp, api_time, later};
pub use update::{PodOp, PodSource, PodUpdate};
pub use volume::{
    DeviceName, DiscoveredVolume, MountedContent, MountedVolume, MountedVolumes, ReadyVolumes,
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
/// The Kubernetes resource.k8s.io/v1 types (`ResourceClaim`, `ResourceSlice`, …), from `k8s-openapi`.
pub use k8s_openapi::api::resource::v1 as resourcev1;
/// The Kubernetes storage.k8s.io/v1 types (`CSIDriver`, `VolumeAttachment`, …), from `k8s-openapi`.
pub use k8s_openapi::api::storage::v1 as storagev1;
/// The Kubernetes meta/v1 types (`ObjectMeta`, `Time`, …), from `k8s-openapi`.
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1 as metav1;
/// The Kubernetes `IntOrString` type of ports.
pub use k8s_openapi::apimachinery::pkg::util::intstr;
