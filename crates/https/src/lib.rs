//! An HTTPS server for a node, with a replaceable certificate and client CA, optional client
//! certificates, and limits for unauthenticated clients.
//!
//! It serves any `tower` service and adds a [`Peer`] to the extensions of each request. It has no
//! Kubernetes types. HTTP/1.1 (with upgrades) and HTTP/2 over TLS; HTTP/1.1 without.
//!
//! # Entry points
//!
//! * [`serve`] serves a listener until a token is cancelled, within [`Limits`]
//! * [`Transport`] is TLS from a [`TlsSource`], or plain
//! * [`ServingCertificate`] and [`ClientCa`] come from a `watch`; [`files`] updates both from
//!   files
//! * [`Peer`] is the client, for authentication
//!
//! # Certificates
//!
//! * Each handshake uses the current serving certificate. Without one, handshakes fail.
//! * A handshake proves only that the client has the key of its certificate. As upstream, a client
//!   with an invalid certificate may still present a token. [`Peer::certificate`] verifies the
//!   certificate for each request with the current client CA and time; a rejection is cached for
//!   10 s. A connection thus does not outlive its certificate or the CA. TLS sessions are never
//!   resumed.
//! * Files are read again when they change ([`files`]).
//!
//! # Unauthenticated clients
//!
//! A connection is unauthenticated until it presents a valid certificate or is marked by
//! [`Peer::mark_authenticated`]. Unauthenticated connections have their own limits ([`Limits`]). A
//! connection over the limit is accepted and evicts the oldest idle unauthenticated connection of
//! the network with the most of them. A new connection of the API server is therefore accepted,
//! and is authenticated after its handshake.
//!
//! | resource | limit |
//! |---|---|
//! | a TLS handshake | 10 s |
//! | the header of the first request | 30 s after the handshake |
//! | the next header, and idle time | 90 s, upstream's idle timeout |
//! | header size | 1 MiB with HTTP/1.1 as upstream; 64 KiB per stream with HTTP/2 |
//! | request body | 60 s, 1 MiB: more than any node API request needs |
//! | streams of an HTTP/2 connection | 250 as upstream; 20 that were reset and are still processed |
//! | an unreachable client | 150 s (TCP keep-alive, as Go) |
//!
//! # Example
//!
//! ```no_run
//! use std::sync::Arc;
//! use tokio::sync::watch;
//! use tokio_util::sync::CancellationToken;
//! use windlass_https::{
//!     ClientCa, Limits, ServingCertificate, TlsChoice, TlsProfile, TlsSource, Transport, files,
//!     serve,
//! };
//!
//! # async fn run(clock: Arc<dyn windlass_types::Clock>, router: axum::Router)
//! #     -> Result<(), Box<dyn std::error::Error>> {
//! // tlsCertFile and tlsPrivateKeyFile
//! let pair = files::Pair::new("tls.crt", "tls.key");
//! let (sender, certificate) = watch::channel(Some(pair.read().await?));
//! tokio::spawn(pair.follow(sender));
//! // authentication.x509.clientCAFile
//! let bundle = files::Bundle::new("ca.crt");
//! let (sender, client_ca) = watch::channel(bundle.read().await?);
//! tokio::spawn(bundle.follow(sender));
//!
//! let tls = TlsSource {
//!     certificate,
//!     client_ca: Some(client_ca),
//!     profile: TlsProfile::new(&TlsChoice::default())?,
//!     clock,
//! };
//! let listener = tokio::net::TcpListener::bind("0.0.0.0:10250").await?;
//! let shutdown = CancellationToken::new();
//! serve(listener, router, Transport::Tls(tls), Limits::default(), shutdown).await;
//! # Ok(())
//! # }
//! ```
//!
//! A certificate from another source, such as a CSR, is also a `watch`:
//! `tokio::spawn(files::parse_each(pairs, |pair| pair.pem().to_vec(), sender))`.
//!
//! `cargo run -p windlass-https --example replace_the_certificate` replaces one under open connections.
//!
//! # Limits
//!
//! It never rejects a client for lack of a certificate and does not check tokens: `windlass_auth`
//! does, with the [`Peer`]. No HTTP/3, no session resumption, no revocation lists. If a file
//! becomes unreadable, its last content stays in use.

pub mod files;
mod peer;
mod tls;

mod body;
mod connection;
mod connections;
mod limits;
mod serve;

pub use limits::Limits;
pub use peer::{CertificateError, ClientCertificate, Peer};
pub use serve::{Transport, serve};
pub use tls::{ClientCa, ServingCertificate, TlsChoice, TlsError, TlsProfile, TlsSource};
