//! Exec, attach and port-forward: a client's upgraded connection, joined to the container runtime's
//! streaming server byte for byte.
//!
//! For whoever stands between clients and a container runtime (or any server that upgrades) and wants to
//! decide who gets in, without a word of SPDY or WebSocket.
//!
//! *owns* the sessions' places · *invariant* nothing in here understands what is said: SPDY and
//! WebSocket pass as they come, so that every client works that works with the runtime. When either
//! side is done, both connections are closed at once, and what runs in the container is the runtime's
//! again · *bound* [`Limits::sessions`], two buffers of [`BUFFER_BYTES`] for each; a full side
//! is not read for (the container waits for a slow client, and the other way round) · *restart*
//! sessions end with the process, as upstream's.
//!
//! # The way in
//!
//! * [`Sessions`] has the places; [`Sessions::reserve`] takes one for a request that is an upgrade
//! * [`Place::join`] replays the request to the runtime's URL and joins both ends behind the 101
//! * [`Limits`] says how many, how long and how much; [`StreamError`] has the status code and words for the
//!   client
//!
//! # Example
//!
//! ```
//! use windlass_streams::{Limits, Sessions};
//!
//! let one = Limits { sessions: 1, ..Limits::default() };
//! let sessions = Sessions::new(one, Default::default());
//! let place = sessions.take()?;
//! let refused = sessions.take().err().ok_or("there was one place")?;
//! assert_eq!(refused.status(), 429);
//! drop(place);
//! assert_eq!(sessions.open(), 0);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! A handler is three lines:
//!
//! ```no_run
//! # use windlass_streams::Sessions;
//! # async fn answer(sessions: &Sessions, request: http::Request<axum::body::Body>)
//! #     -> Result<http::Response<axum::body::Body>, windlass_streams::StreamError> {
//! let place = sessions.reserve(&request)?;
//! // ask the runtime for a URL, then:
//! let url = "http://127.0.0.1:34567/exec/token";
//! place.join(request, url, None).await
//! # }
//! ```
//!
//! `cargo run -p windlass-streams --example join_a_stream` plays client, node and runtime.
//!
//! # What it does not do
//!
//! It asks nobody who the client is: that is decided before (`windlass_auth`; a `GET` that is an upgrade
//! needs the verb `create` there, as it runs something). Credentials are taken out before the runtime sees
//! the request. TLS towards the runtime is not spoken, HTTP/2 has no upgrades, and a stream that was cut is
//! not taken up again.

mod copy;
mod error;
mod headers;
mod session;

#[cfg(test)]
mod tests;

pub use copy::BUFFER_BYTES;
pub use error::StreamError;
pub use session::{Limits, Place, Sessions};
