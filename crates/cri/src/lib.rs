//! The Container Runtime Interface (CRI): ports in plain Rust types, and a gRPC client.
//!
//! For programs that use containerd or CRI-O: start pods, list and inspect containers, pull images,
//! follow events. Callers see no protobuf types.
//!
//! # The way in
//!
//! * [`CriClient`] connects to a socket and implements both ports
//! * [`RuntimeService`] and [`ImageService`] are the ports: use them as `Arc<dyn …>`, with a fake
//!   in tests
//! * [`CriError`] has a class ([`CriCode`]) and a retry class
//! * [`TrackedRuntime`] wraps a port and records hung calls in [`HungCalls`]
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
//! let options = CriOptions::new(Metrics::new()?.runtime_calls);
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
//! with their containers, and prints why the runtime or its network is not ready.
//!
//! # What it promises
//!
//! * Every call has a deadline: [`CriOptions::timeout`] (2 min), twice that for RunPodSandbox, and
//!   the stop timeout on top for StopContainer. Image pulls and the event stream end when dropped.
//! * The client connects with the first call and reconnects after a loss: immediately, then with a
//!   back-off from 100 ms to 3 s. Calls in that time fail with [`CriCode::Unavailable`].
//! * Stopping or removing an object that does not exist succeeds.
//! * Events come from the CRI event stream or, without one, from containerd. The last item of a
//!   broken stream is an error.
//! * A message is at most 16 MiB. Larger lists are read as a stream if the runtime supports that.
//!   Calls are counted under upstream's operation names.
//!
//! # What it does not do
//!
//! It does not retry calls, cache results or make decisions: `windlass-pleg` caches the observed
//! state, `windlass-runtime` executes the actions of a pod. It supports only Unix sockets, and only
//! the CRI fields that Windlass uses.

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
pub use error::{CriCode, CriError, CriResult, ImageErrorCause};
pub use hung::{CallObject, HungCall, HungCalls, RuntimeLoad};
pub use port::{ImageService, RuntimeEventStream, RuntimeService};
pub use stats::{ImageFsInfo, RuntimeFs, RuntimeStats, TrackedStats};
pub use streams::{RuntimeStreams, StreamSet, TrackedStreams};
pub use tracked::{TrackedImages, TrackedRuntime, for_pod};
