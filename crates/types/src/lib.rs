//! Names, identifiers and pure data shared by every Windlass crate.
//!
//! For whoever writes a program around one of the other crates: a pod source, a watcher of a
//! runtime, a checker of manifests. Desired state is the Kubernetes API's own [`Pod`], observed
//! state is [`ObservedPod`], what is asked of a container runtime is in [`cri`]. The API's types
//! come from `k8s-openapi` and are here under the names that everybody uses: [`corev1`],
//! [`metav1`], …
//!
//! # The way in
//!
//! * [`PodExt`] asks a [`Pod`] the usual questions; a missing field reads as its default
//! * [`PodUpdate`] is a change to the set of desired pods, [`PodLifecycleEvent`] one that was seen
//! * [`PodUid`], [`SandboxId`] and [`ContainerId`] keep identifiers apart that are all text
//! * [`Clock`] and [`EventRecorder`] are the two ports that a crate may hold without knowing more
//! * [`Retry`] is what every error of Windlass answers: what trying again would bring
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
//! assert!(!pod.is_static(), "without a mark it is the API server's");
//! ```
//!
//! `cargo run -p windlass-types --example describe_pod -- pod.json` shows what a pod says of
//! itself.
//!
//! # What it promises
//!
//! A type carries its meaning, its unit and where upstream names the same thing. What users see
//! ([`Reason`], [`PodOp`], the phases of [`view`]) is spelled as Kubernetes spells it. `Debug` of
//! requests to a runtime and of credentials shows no secret; that of a [`Pod`], which is
//! `k8s-openapi`'s, shows everything.
//!
//! # What it does not do
//!
//! Nothing here decides, waits, reads a clock or touches the outside. Nothing is validated:
//! identifiers are the text they were made of, a [`Pod`] may be any that can be decoded. Manifests
//! are read, defaulted and checked by `windlass-core`.

mod ids;
pub mod pod;
mod time;

mod access;
mod event;
mod update;

pub mod cri;
mod expansion;
mod observed;
mod phase;
mod probe;
mod volume;

pub mod names;
mod port;
mod reason;
mod retry;
pub mod span;
pub mod top;
pub mod view;
pub mod explain;

pub use access::{NodePermission, UserInfo};
pub use event::{PodLifecycleEvent, PodLifecycleEventKind};
pub use expansion::{ExpansionTask, ExpansionError, ExpansionDecision};
pub use ids::{ContainerId, PodFullName, PodUid, SandboxId};
pub use observed::{ContainerState, ObservedContainer, ObservedPod, ObservedSandbox, ObservedUser};
pub use phase::{Phase, PhaseOverride};
pub use pod::{Pod, PodExt, RestartPolicy, SharedPod};
pub use port::{Clock, EventRecorder};
pub use probe::{ContainerProbeResult, PodProbeResults, ProbeKind};
pub use reason::Reason;
pub use retry::Retry;
pub use span::{FinishedSpan, SpanId, SpanKind, SpanSink, TraceId, TraceParent};
pub use time::{Timestamp, api_time, later};
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
/// The Kubernetes storage.k8s.io/v1 types (`CSIDriver`, `VolumeAttachment`, …), from `k8s-openapi`.
pub use k8s_openapi::api::storage::v1 as storagev1;
/// The Kubernetes meta/v1 types (`ObjectMeta`, `Time`, …), from `k8s-openapi`.
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1 as metav1;
/// Numbers or names, as ports are given.
pub use k8s_openapi::apimachinery::pkg::util::intstr;
