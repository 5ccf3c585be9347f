//! Exec, attach and port-forward: proxies a client's upgraded connection to the container runtime's
//! streaming server.
//!
//! For a server between clients and a container runtime (or any server that upgrades connections)
//! that decides which clients may connect.
//!
//! *owns* the limit of open sessions · *invariant* SPDY and WebSockets that the runtime serves are
//! copied unchanged. When either side ends, both connections are closed immediately · *bound*
//! [`Limits::sessions`], two buffers of [`BUFFER_BYTES`] for each, and one message of at most
//! [`MAX_MESSAGE_BYTES`] for a WebSocket that is served here; while a side does not read, the other
//! is not read either · *restart* sessions end with the process, as upstream's.
//!
//! # Entry points
//!
//! * [`Sessions`] has the limit; [`Sessions::reserve`] checks that a request is an upgrade and
//!   reserves a session
//! * [`SessionPermit::proxy`] replays the request to the runtime's URL and copies both ways after
//!   the 101
//! * [`SessionPermit::translate`] serves `v5.channel.k8s.io` with a SPDY connection to the runtime,
//!   see [`is_remote_command_v5`]; [`SessionPermit::tunnel`] serves SPDY in a WebSocket, see
//!   [`is_tunneled_spdy`]
//! * [`Limits`] are the limits; [`StreamError`] has the status code and the text for the client
//!
//! # Example
//!
//! ```
//! use windlass_streams::{Limits, Sessions};
//!
//! let one = Limits { sessions: 1, ..Limits::default() };
//! let sessions = Sessions::new(one, Default::default());
//! let permit = sessions.acquire()?;
//! let error = sessions.acquire().err().ok_or("no error")?;
//! assert_eq!(error.status(), 429);
//! drop(permit);
//! assert_eq!(sessions.open(), 0);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! A handler has three lines:
//!
//! ```no_run
//! # use windlass_streams::Sessions;
//! # async fn handle(sessions: &Sessions, request: http::Request<axum::body::Body>)
//! #     -> Result<http::Response<axum::body::Body>, windlass_streams::StreamError> {
//! let permit = sessions.reserve(&request)?;
//! // get a URL from the runtime, then:
//! let url = "http://127.0.0.1:34567/exec/token";
//! permit.proxy(request, url, None).await
//! # }
//! ```
//!
//! `cargo run -p windlass-streams --example join_a_stream` plays client, node and runtime.
//!
//! # Limits
//!
//! Authentication and authorization happen before (`windlass_auth`; a `GET` that is an upgrade
//! needs the verb `create` there). Credentials are removed before the request reaches the runtime.
//! TLS towards the runtime and HTTP/2 are not supported, and an interrupted stream is not resumed.

mod copy;
mod error;
mod headers;
mod session;
mod spdy;
mod translate;
mod tunnel;
mod websocket;

#[cfg(test)]
mod tests;

pub use copy::BUFFER_BYTES;
pub use error::StreamError;
pub use session::{Limits, SessionPermit, Sessions};
pub use translate::CommandStreams;
pub use websocket::{MAX_MESSAGE_BYTES, is_remote_command_v5, is_tunneled_spdy};
