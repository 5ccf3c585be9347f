//! The Container Runtime Interface as ports in our own types, and the client that speaks it.
//!
//! For whoever talks to containerd or CRI-O: start pods, list and inspect containers, pull images,
//! follow events. Nothing outside this crate names protobuf types, except the fake runtime's server
//! in `windlass-testing`, which uses [`convert`] backwards.
//!
//! # The way in
//!
//! * [`CriClient`] connects to a socket and is both ports
//! * [`RuntimeService`] and [`ImageService`] are the ports: use them as `Arc<dyn …>` and give tests
//!   a runtime of their own
//! * [`CriError`] has a class ([`CriCode`]) and says what trying again would bring
//! * [`TrackedRuntime`] is a port around a port that notes calls which hang in [`HungCalls`]
//!
//! # Example
//!
//! ```no_run
//! use windlass_cri::{CriClient, CriOptions, RuntimeService};
//! use windlass_metrics::Metrics;
//! use windlass_types::cri::ListFilter;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let options = CriOptions::new(Metrics::new()?);
//! let runtime = CriClient::connect("unix:///run/containerd/containerd.sock", options)?;
//! println!("{:?}", runtime.version().await?);
//! for sandbox in runtime.list_pod_sandboxes(&ListFilter::default()).await? {
//!     println!("{} {} ready={}", sandbox.namespace, sandbox.name, sandbox.ready);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run -p windlass-cri --example list_pods -- /run/containerd/containerd.sock` lists pods
//! with their containers, and says what keeps the runtime or its network from being ready.
//!
//! # What it promises
//!
//! * Every call has a deadline ([`CriOptions::timeout`], 2 min; RunPodSandbox twice that,
//!   StopContainer its grace period on top), but for image pulls and the event stream, which end
//!   when they are dropped.
//! * The connection is made with the first call and again after each loss, at once and then after
//!   100 ms doubling to 3 s; a call meanwhile fails with [`CriCode::Unavailable`].
//! * What is to be stopped or removed and is not there is success.
//! * Events are CRI's own where the runtime has them, else containerd's; they are hints, and a
//!   broken stream is told as its last item.
//! * A message is at most 16 MiB. A list that is larger is read as a stream, if the runtime can stream
//!   lists. Calls are counted under upstream's operation names.
//!
//! # What it does not do
//!
//! It retries no call, caches nothing and decides nothing: `windlass-pleg` keeps what a runtime
//! has, `windlass-runtime` carries out what a pod needs. Only Unix sockets are spoken. Fields of
//! the CRI that Windlass does not use are not in the ports.

pub mod error;
pub mod port;

mod client;
mod endpoint;
mod lists;

mod hung;
mod stats;
mod streams;
mod tracked;

pub mod convert;
mod events;
mod transport;

pub use client::{CriClient, CriOptions};
pub use endpoint::EndpointError;
pub use error::{CriCode, CriError, CriResult};
pub use hung::{CallObject, HungCall, HungCalls, RuntimeLoad};
pub use port::{ImageService, RuntimeEventStream, RuntimeService};
pub use stats::{ImageFsInfo, RuntimeFs, RuntimeStats, TrackedStats};
pub use streams::{RuntimeStreams, StreamSet, TrackedStreams};
pub use tracked::{TrackedImages, TrackedRuntime, for_pod};
