//! Who asks this node, and whether they may.
//!
//! A request passes when an authenticator says who makes it and the authorizer allows one of the
//! rights that [`windlass_credentials::access`] names for it. Everything fails closed: no answer is no.
//!
//! For whoever serves something on a node that the cluster's users and RBAC are to guard. The service
//! behind the gate may be any `tower` service of axum's bodies.
//!
//! # The way in
//!
//! * [`require_auth`] puts the gate in front of a service; [`Auth::authorize`] is the gate alone
//! * [`Auth`] is made of [`AuthSettings`] and [`Reviews`]: whom to ask about tokens and rights
//! * [`Reviews::from_client`] asks an API server; [`TokenReviews`] and [`AccessReviews`] are for others
//! * [`AuthRejection`] has the status code and upstream's words
//!
//! # Who asks
//!
//! In upstream's order; the first that knows the caller decides, and the next is asked also if one
//! failed:
//!
//! 1. a client certificate: CN is the name, each O a group, the UID attribute the UID; judged
//!    again for each request ([`windlass_https::Peer::certificate`]);
//! 2. a bearer token, in `Authorization` or as a WebSocket subprotocol: a TokenReview. A header that
//!    carried an accepted token is taken out, so that it goes no further;
//! 3. nobody: `system:anonymous`, if that is turned on and nothing above failed. A wrong token is
//!    401, not anonymous.
//!
//! # ReviewCache of the API server
//!
//! | | kept for | at most |
//! |---|---|---|
//! | a token is good, or plainly not | `authentication.webhook.cacheTTL`, 2 min | 4096 tokens |
//! | a token was refused with an error, as kube-apiserver does with a wrong one | 10 s; upstream asks again each time | |
//! | a right is there | `authorization.webhook.cacheAuthorizedTTL`, 5 min | 8192 rights of users |
//! | a right is not there | `authorization.webhook.cacheUnauthorizedTTL`, 30 s | |
//! | no answer | not at all | |
//!
//! TokenReviewCache are kept by their SHA-256 and never logged. A thousand requests with one token are one
//! question. Questions have a client of their own, so that strangers who invent tokens cost the node
//! neither its heartbeat nor its statuses, and their own rate_limit: 20 TokenReviews a second, 64 under way;
//! 50 SubjectAccessReviews a second, 256 under way. Whoever comes beyond these is told to come again
//! (429), and of the 64
//!
//! * 16 are kept for tokens that were good within the last hour, which may have all the others too;
//! * 16 are the most for tokens of strangers of one network, /24 of IPv4 or /64 of IPv6.
//!
//! So a flood of invented tokens from one or two networks delays a token that is not known yet by
//! 64 / 20 = 3.2 s at most, one from more networks can keep it out; neither keeps out a token that was
//! good lately, nor anybody with a certificate. An API server that does not answer is no such case:
//! who is asked about then is refused (401).
//!
//! # Without an API server
//!
//! Nobody can be asked: tokens are refused, and with `authorization.mode: Webhook` so is everybody
//! (upstream does not start). Certificates and anonymous callers work with
//! `authorization.mode: AlwaysAllow`. [`Auth::new`] says so in the log.
//!
//! # Example
//!
//! ```no_run
//! use std::sync::Arc;
//! use std::time::Duration;
//! use windlass_auth::{Auth, AuthSettings, Authorization, Reviews, require_auth};
//! use windlass_client::ApiClients;
//! use windlass_credentials::access::AccessSettings;
//!
//! # async fn run(
//! #     clients: Option<ApiClients>, metrics: windlass_metrics::Metrics,
//! #     clock: Arc<dyn windlass_types::Clock>, router: axum::Router,
//! #     listener: tokio::net::TcpListener, transport: windlass_https::Transport,
//! # ) {
//! let settings = AuthSettings {
//!     node_name: "n1".to_owned(),
//!     anonymous: false,
//!     token_ttl: Some(Duration::from_secs(120)), // None: authentication.webhook.enabled is false
//!     authorization: Authorization::Webhook {
//!         allowed: Duration::from_secs(300),
//!         refused: Duration::from_secs(30),
//!     },
//!     access: AccessSettings { exec_needs_create: true },
//! };
//! let reviews = clients.map(|clients| Reviews::from_client(&clients.reviews));
//! let auth = Auth::new(settings, reviews, metrics.access.clone(), clock);
//! let limits = windlass_https::Limits::default();
//! let shutdown = Default::default();
//! windlass_https::serve(listener, require_auth(router, auth), transport, limits, shutdown).await;
//! # }
//! ```
//!
//! Handlers find the caller in the request's extensions, as `Extension<UserInfo>`.
//!
//! `cargo run -p windlass-auth --example protect_a_router` knocks at such a gate with good tokens and
//! bad ones.
//!
//! # What it does not do
//!
//! It grants nothing: rights are the API server's. It serves nothing and speaks no TLS
//! (`windlass_https` does, and judges certificates). It knows rights on the one node only, as
//! `nodes/<subresource>`, and tells nobody why a token was refused.

mod authn;
mod authz;
mod bearer;
mod certificate;
mod require_auth;
mod retry;
mod review_cache;
mod reviews;
mod ttl_cache;

pub use authz::Authorization;
pub use bearer::{HeaderError, token_from_authorization, token_from_websocket};
pub use certificate::{CertificateUser, SubjectError, user_from_certificate};
pub use require_auth::{Auth, AuthRejection, AuthService, AuthSettings, require_auth};
pub use reviews::{AccessReviewResult, AccessReviews, Reviews, TokenReviewResult, TokenReviews};
