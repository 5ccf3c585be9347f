//! The Container Runtime Interface as ports in our own types, and the client that speaks it.
//!
//! [`port`] is what the rest of Windlass sees; nothing outside this crate names protobuf types.

pub mod error;
pub mod port;

pub use error::{CriCode, CriError, CriResult};
pub use port::{ImageService, RuntimeEventStream, RuntimeService};
