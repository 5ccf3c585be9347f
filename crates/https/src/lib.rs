//! An HTTPS server for a node: its certificate and its client CA may change while it serves, a
//! client may show a certificate and need not, and what a stranger can cost is bounded.
//!
//! It knows nothing of Kubernetes: it serves any `tower` service, and puts a [`Peer`] into each
//! request's extensions. HTTP/1.1 (with upgrades) and HTTP/2 over TLS; HTTP/1.1 without.
//!
//! # The way in
//!
//! * [`serve`] serves a listener until a token is cancelled, within [`Limits`]
//! * [`Transport`] is TLS from a [`TlsSource`], or none
//! * [`ServingCertificate`] and [`ClientCa`] come by a `watch`; [`files`] keeps both current from files
//! * [`Peer`] is the other end, for whoever decides who may ask
//!
//! # Certificates
//!
//! * The server's own is looked up for each handshake. While there is none, handshakes fail.
//! * A client's is not judged in the handshake, which proves only that the client has its key:
//!   as upstream, a client whose certificate is worth nothing may still show a token.
//!   [`Peer::certificate`] judges it, for each request anew, by the client CA and the time of that
//!   request; only a refusal holds for 10 s. So a connection outlives neither its certificate nor the CA, and no TLS session is
//!   ever resumed.
//! * Files are read again when they change ([`files`]).
//!
//! # What a stranger can cost
//!
//! Who has neither shown a good certificate nor been [vouched for](Peer::mark_authenticated) is a stranger.
//! Strangers have limiter of their own ([`Limits`]). One more than those is let in all the same, and
//! the oldest idle stranger of the address with the most of them has to go: the API server's next
//! connection gets in and is no stranger any more when its handshake is done.
//!
//! | what is slow or large | bound |
//! |---|---|
//! | a TLS handshake | 10 s |
//! | the header of the first request | 30 s after the handshake |
//! | the header of the next one, and being idle | 90 s, upstream's idle timeout |
//! | a header's size | 1 MiB with HTTP/1.1, upstream's; 64 KiB with HTTP/2, whose headers come by the stream |
//! | the body of a request | 60 s, 1 MiB: nothing of a node's API takes more |
//! | streams of an HTTP/2 connection | 250, upstream's; 20 that were reset and not yet noticed |
//! | a client whose machine is gone | 150 s (TCP keep-alive, Go's) |
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
//! A certificate that comes from elsewhere, such as a CSR, is a `watch` too:
//! `tokio::spawn(files::parse_each(pairs, |pair| pair.pem().to_vec(), sender))`.
//!
//! `cargo run -p windlass-https --example replace_the_certificate` replaces one under open connections.
//!
//! # What it does not do
//!
//! It refuses nobody for lack of a certificate, and asks nobody about tokens: `windlass_auth` does, with
//! the [`Peer`]. No HTTP/3, no session resumption, no revocation lists. Files that cannot be read
//! any more leave in use what they said before.

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
