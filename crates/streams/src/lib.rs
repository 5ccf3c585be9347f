//! Exec, attach and port-forward: a client's upgraded connection, joined to the container runtime's
//! streaming server byte for byte.
//!
//! *owns* the sessions' places · *invariant* nothing in here understands what is said: SPDY and
//! WebSocket pass as they come, so that every client works that works with the runtime. When either
//! side is done, both connections are closed at once, and what runs in the container is the runtime's
//! again · *bound* [`Limits::sessions`], two buffers of [`BUFFER_BYTES`] for each; a full side
//! is not read for (the container waits for a slow client, and the other way round) · *restart*
//! sessions end with the process, as upstream's.
//!
//! Who may ask is decided before (`windlass_auth`): a `GET` that is an upgrade needs the verb
//! `create` there, as it runs something.
//!
//! # Example
//!
//! ```no_run
//! use windlass_streams::{Limits, Sessions};
//!
//! # async fn answer(sessions: &Sessions, request: http::Request<axum::body::Body>)
//! #     -> Result<http::Response<axum::body::Body>, windlass_streams::StreamError> {
//! let place = sessions.reserve(&request)?;
//! // ask the runtime for a URL, then:
//! let url = "http://127.0.0.1:34567/exec/token";
//! place.join(request, url, None).await
//! # }
//! ```

mod copy;
mod error;
mod headers;
mod session;

#[cfg(test)]
mod tests;

pub use copy::BUFFER_BYTES;
pub use error::StreamError;
pub use session::{Limits, Place, Sessions};
