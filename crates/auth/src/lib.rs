//! Authenticates and authorizes the callers of a node.
//!
//! A request passes when an authenticator returns a user and the authorizer allows one of the
//! permissions from [`access`]. Without a decision a request is rejected.
//!
//! For services on a node that the cluster's users and RBAC protect. The protected service may be
//! any `tower` service of axum's bodies.
//!
//! # Entry points
//!
//! * [`require_auth`] wraps a service; [`Auth::authorize`] checks a single request
//! * [`Auth`] is built from [`AuthSettings`] and [`Reviews`], the source of token and access
//!   reviews
//! * [`Reviews::from_client`] uses an API server; [`TokenReviews`] and [`AccessReviews`] are for
//!   others
//! * [`AuthRejection`] has upstream's status code and body
//!
//! # Authentication
//!
//! In upstream's order. The first authenticator that returns a user decides; the next one runs
//! even if one failed:
//!
//! 1. a client certificate: CN is the name, each O a group, the UID attribute the UID; verified
//!    for each request ([`windlass_https::Peer::certificate`]);
//! 2. a bearer token, in `Authorization` or as a WebSocket subprotocol: a TokenReview. A header
//!    with an accepted token is removed from the request;
//! 3. `system:anonymous`, if enabled and nothing above failed. A wrong token is 401, not
//!    anonymous.
//!
//! # Review cache
//!
//! | result | TTL | max entries |
//! |---|---|---|
//! | a token is valid or invalid | `authentication.webhook.cacheTTL`, 2 min | 4096 tokens |
//! | a token was rejected with an error, as by kube-apiserver | 10 s; upstream does not cache it | |
//! | a permission is granted | `authorization.webhook.cacheAuthorizedTTL`, 5 min | 8192 permissions of users |
//! | a permission is denied | `authorization.webhook.cacheUnauthorizedTTL`, 30 s | |
//! | the review failed | not cached | |
//!
//! Cache keys are SHA-256 digests; tokens are never logged. Concurrent requests with one token
//! share one review. Reviews have their own client, so unauthenticated callers cannot delay the
//! heartbeat or the statuses. Their rate limits are 20 TokenReviews per second with at most 64 in
//! flight, and 50 SubjectAccessReviews per second with at most 256 in flight. Requests over a
//! limit receive HTTP 429. Of the 64
//!
//! * 16 are reserved for tokens accepted within the last hour, which may also use the others;
//! * at most 16 are for unknown tokens from one network, /24 of IPv4 or /64 of IPv6.
//!
//! A flood of unknown tokens from one or two networks delays another unknown token by at most 64 /
//! 20 = 3.2 s. A flood from more networks can keep unknown tokens out. Neither affects recently
//! accepted tokens and certificates. If the API server does not respond, the request is rejected
//! with 401.
//!
//! # Standalone mode
//!
//! Without an API server all tokens are rejected. With `authorization.mode: Webhook` all requests
//! are rejected (upstream does not start). With `authorization.mode: AlwaysAllow`, certificates
//! and anonymous callers work. [`Auth::new`] logs these limits.
//!
//! # Example
//!
//! ```no_run
//! use std::sync::Arc;
//! use std::time::Duration;
//! use windlass_auth::{Auth, AuthSettings, Authorization, Reviews, require_auth};
//! use windlass_client::ApiClients;
//! use windlass_auth::access::AccessSettings;
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
//! `cargo run -p windlass-auth --example protect_a_router` sends valid and invalid tokens to a protected router.
//!
//! # Limits
//!
//! It grants no permissions: the API server does. It does not listen and has no TLS;
//! `windlass_https` does both and verifies certificates. It knows only permissions on this node,
//! as `nodes/<subresource>`. It never returns the reason why a token was rejected.

pub mod access;

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
