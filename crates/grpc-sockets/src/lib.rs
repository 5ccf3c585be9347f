//! Unix sockets for gRPC servers of one host.
//!
//! For a service such as the kubelet's PodResources, whose clients are written in several languages
//! and run as root or as the user of the server.
//!
//! # Entry points
//!
//! * [`bind_socket`] opens a socket that only root and the own user can connect to
//! * [`incoming`] returns the connections of trusted peers
//! * [`AnyAuthority`] accepts clients that send the path of the socket as authority, as gRPC for Go,
//!   Java and Python does
//!
//! # Example
//!
//! ```no_run
//! use futures::StreamExt;
//! use windlass_grpc_sockets::{AnyAuthority, bind_socket, incoming};
//!
//! # async fn serve(router: tonic::transport::server::Router) -> Result<(), Box<dyn std::error::Error>> {
//! let listener = bind_socket("/run/pump/pump.sock".as_ref())?;
//! let connections = incoming(listener).map(|it| it.map(AnyAuthority::new));
//! router.serve_with_incoming(connections).await?;
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run -p windlass-grpc-sockets --example open_a_socket` opens one and shows its mode.
//!
//! # Guarantees
//!
//! * The socket has mode 0600 before it has a name. A stale socket is replaced, one of a running
//!   server is not.
//! * A client never decides how much memory its headers take: frames are bounded as in `h2`.
//!
//! # Limits
//!
//! [`AnyAuthority`] exists because `h2` 0.4 rejects an authority that is not one of a URL
//! (hyperium/h2#442). It can go when `h2` accepts them.

pub mod any_authority;
mod socket;

pub use any_authority::AnyAuthority;
pub use socket::{BindError, bind_socket, incoming};
