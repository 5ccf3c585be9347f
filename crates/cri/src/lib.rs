//! The Container Runtime Interface as ports in our own types, and the client that speaks it.
//!
//! [`port`] is what the rest of Windlass sees; nothing outside this crate names protobuf types,
//! except the fake runtime's server in `windlass-testing`, which uses [`convert`] backwards.

pub mod error;
pub mod port;

pub mod client;
pub mod endpoint;

pub mod hung;
pub mod stats;
pub mod streams;
pub mod watched;

pub mod convert;
mod events;
mod transport;

pub use client::{CriClient, CriOptions};
pub use endpoint::EndpointError;
pub use error::{CriCode, CriError, CriResult};
pub use hung::{CallObject, HungCall, HungCalls};
pub use port::{ImageService, RuntimeEventStream, RuntimeService};
pub use stats::{ImageFsInfo, RuntimeFs, RuntimeStats, WatchedStats};
pub use streams::{RuntimeStreams, StreamSet, WatchedStreams};
pub use watched::{WatchedImages, WatchedRuntime, for_pod};
