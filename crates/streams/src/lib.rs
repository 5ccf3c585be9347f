//! Exec, attach and port-forward: a client's upgraded connection, joined to the container runtime's
//! streaming server.
//!
//! For a server between clients and a container runtime (or any server that upgrades connections) that
//! decides which clients may connect.
//!
//! *owns* the limit of open sessions · *invariant* SPDY and WebSockets that the runtime serves pass
//! unchanged, byte for byte, so that every client works that works with the runtime. When either side
//! ends, both connections are closed at once · *bound* [`Limits::sessions`], two buffers of
//! [`BUFFER_BYTES`] for each, and one message of at most [`MAX_MESSAGE_BYTES`] for a WebSocket that is
//! served here; while a side does not read, the other is not read either · *restart* sessions end with
//! the process, as upstream's.
//!
//! # The way in
//!
//! * [`Sessions`] has the limit; [`Sessions::reserve`] checks that a request is an upgrade and reserves a session
//! * [`Place::join`] replays the request to the runtime's URL and joins both connections after the 101
//! * [`Place::translate`] serves `v5.channel.k8s.io` with a SPDY connection to the runtime, see
//!   [`is_remote_command_v5`]; [`Place::tunnel`] serves SPDY in a WebSocket, see [`is_tunneled_spdy`]
//! * [`Limits`] are the limits; [`StreamError`] has the status code and the text for the client
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
mod spdy;
mod translate;
mod tunnel;
mod websocket;

#[cfg(test)]
mod tests;

pub use copy::BUFFER_BYTES;
pub use error::StreamError;
pub use session::{Limits, Place, Sessions};
pub use translate::CommandStreams;
pub use websocket::{MAX_MESSAGE_BYTES, is_remote_command_v5, is_tunneled_spdy};
