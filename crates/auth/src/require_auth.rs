//! Authentication and authorization in front of a service.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::access::{AccessSettings, PathError, required_permissions};
use axum::body::Body;
use axum::response::IntoResponse;
use http::header::RETRY_AFTER;
use http::{HeaderValue, Request, Response, StatusCode};
use tower::{Service, ServiceExt};
use windlass_https::Peer;
use windlass_metrics::AccessMetrics;
use windlass_types::{Clock, NodePermission, UserInfo};

use crate::authn::{Authenticator, AuthnError, TokenReviewCache};
use crate::authz::{AccessReviewCache, Authorization, Authorizer, AuthzError};
use crate::reviews::Reviews;

/// Settings of authentication and authorization. `windlass_https` verifies certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthSettings {
    /// The node whose subresources are protected.
    pub node_name: String,
    /// `authentication.anonymous.enabled`.
    pub anonymous: bool,
    /// `authentication.webhook.cacheTTL`; `None` without `authentication.webhook.enabled`.
    pub token_ttl: Option<Duration>,
    /// `authorization`.
    pub authorization: Authorization,
    /// Rules for permissions.
    pub access: AccessSettings,
}

/// Authenticates and authorizes requests. Clones share the caches.
#[derive(Clone, Debug)]
pub struct Auth(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    authenticator: Authenticator,
    authorizer: Authorizer,
    access: AccessSettings,
}

/// Why a request is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthRejection {
    /// 401. The caller does not learn the reason.
    Unauthorized,
    /// 429: too many reviews are in flight.
    TooManyRequests,
    /// 400: the path is ambiguous.
    Path(PathError),
    /// 403.
    Forbidden {
        /// Name of the caller.
        user: String,
        /// The permissions of which one is required.
        permissions: Vec<NodePermission>,
    },
    /// 500: the access review failed.
    ReviewFailed {
        /// Name of the caller.
        user: String,
        /// The requested permission.
        permission: NodePermission,
    },
}

impl Auth {
    /// Without `reviews` there is no API server: see the crate documentation.
    pub fn new(
        settings: AuthSettings,
        reviews: Option<Reviews>,
        metrics: AccessMetrics,
        clock: Arc<dyn Clock>,
    ) -> Self {
        for (field, text) in warnings(&settings, reviews.is_some()) {
            tracing::warn!(field, "{text}");
        }
        let tokens = reviews.as_ref().zip(settings.token_ttl);
        let tokens = tokens.map(|(reviews, keep)| {
            TokenReviewCache::new(reviews.tokens.clone(), keep, metrics.clone())
        });
        let authorizer = match (settings.authorization, reviews) {
            (Authorization::AlwaysAllow, _) => Authorizer::AlwaysAllow,
            (Authorization::Webhook { .. }, None) => Authorizer::AlwaysDeny,
            (Authorization::Webhook { allowed, refused }, Some(reviews)) => {
                let keep = (allowed, refused);
                let node = settings.node_name;
                Authorizer::Webhook(AccessReviewCache::new(
                    reviews.access,
                    node,
                    keep,
                    metrics.clone(),
                ))
            }
        };
        Self(Arc::new(Inner {
            authenticator: Authenticator {
                tokens,
                anonymous: settings.anonymous,
                metrics,
                clock,
            },
            authorizer,
            access: settings.access,
        }))
    }

    /// Returns the caller of this request. Removes a header with an accepted token.
    ///
    /// # Errors
    /// See [`AuthRejection`].
    pub async fn authorize<B>(&self, request: &mut Request<B>) -> Result<UserInfo, AuthRejection> {
        let peer = request.extensions().get::<Peer>().cloned();
        let authenticator = &self.0.authenticator;
        let known = authenticator.authenticate(peer.as_ref(), request.headers_mut());
        let user = known.await.map_err(|error| {
            let address = peer.as_ref().map(Peer::address);
            tracing::debug!(?address, %error, "unauthorized");
            match error {
                AuthnError::Overloaded => AuthRejection::TooManyRequests,
                _ => AuthRejection::Unauthorized,
            }
        })?;
        let method = request.method().as_str();
        let permissions = required_permissions(method, request.uri().path(), self.0.access)
            .map_err(AuthRejection::Path)?;
        for permission in &permissions {
            match self.0.authorizer.allows(&user, *permission).await {
                Ok(true) => {
                    if let Some(peer) = peer {
                        peer.mark_authenticated();
                    }
                    return Ok(user);
                }
                Ok(false) => {}
                Err(AuthzError::Overloaded) => return Err(AuthRejection::TooManyRequests),
                Err(error) => {
                    let user = user.name;
                    tracing::warn!(user, %permission, %error, "SubjectAccessReview failed");
                    return Err(AuthRejection::ReviewFailed {
                        user,
                        permission: *permission,
                    });
                }
            }
        }
        tracing::debug!(user = user.name, permission = ?permissions.first(), "forbidden");
        Err(AuthRejection::Forbidden {
            user: user.name,
            permissions,
        })
    }
}

/// Returns warnings as field and text, for settings without effect or without protection.
fn warnings(settings: &AuthSettings, reviews: bool) -> Vec<(&'static str, &'static str)> {
    let mut warnings = Vec::new();
    if settings.token_ttl.is_some() && !reviews {
        warnings.push((
            "authentication.webhook.enabled",
            "no --kubeconfig: all bearer tokens are rejected",
        ));
    }
    match settings.authorization {
        Authorization::Webhook { .. } if !reviews => warnings.push((
            "authorization.mode",
            "no --kubeconfig: the node API rejects every request; set AlwaysAllow to grant all \
             permissions to authenticated callers",
        )),
        Authorization::AlwaysAllow if settings.anonymous => warnings.push((
            "authentication.anonymous.enabled, authorization.mode",
            "node API allows anonymous requests with full access, including exec; set \
             authentication.anonymous.enabled: false (--anonymous-auth=false) and \
             authorization.mode: Webhook (--authorization-mode=Webhook), which are the defaults of a \
             configuration file",
        )),
        _ => {}
    }
    warnings
}

impl AuthRejection {
    fn status(&self) -> StatusCode {
        match self {
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
            Self::Path(_) => StatusCode::BAD_REQUEST,
            Self::Forbidden { .. } => StatusCode::FORBIDDEN,
            Self::ReviewFailed { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// Upstream's response body.
impl fmt::Display for AuthRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unauthorized => f.write_str("Unauthorized"),
            Self::TooManyRequests => f.write_str("Too many requests, please try again later."),
            Self::Path(error) => writeln!(f, "Bad request: {error}"),
            Self::Forbidden { user, permissions } => {
                let verb = permissions.first().map_or("", |permission| permission.verb);
                let subresources: Vec<_> = permissions
                    .iter()
                    .map(|permission| permission.subresource)
                    .collect();
                let subresources = subresources.join(" ");
                writeln!(
                    f,
                    "Forbidden (user={user}, verb={verb}, resource=nodes, \
                     subresource(s)=[{subresources}])"
                )
            }
            Self::ReviewFailed { user, permission } => write!(
                f,
                "Authorization error (user={user}, verb={}, resource=nodes, subresource={})",
                permission.verb, permission.subresource
            ),
        }
    }
}

impl IntoResponse for AuthRejection {
    fn into_response(self) -> Response<Body> {
        let mut response = (self.status(), self.to_string()).into_response();
        if self == Self::TooManyRequests {
            // the rate limit allows 20 reviews per second
            let headers = response.headers_mut();
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// A service that receives only authorized requests.
#[derive(Clone, Debug)]
pub struct AuthService<S> {
    service: S,
    auth: Auth,
}

/// Rejects unauthorized requests before `service`, so that not even its 404 is visible.
pub fn require_auth<S>(service: S, auth: Auth) -> AuthService<S> {
    AuthService { service, auth }
}

impl<S> Service<Request<Body>> for AuthService<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // the inner service is polled after authorization
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let Self { service, auth } = self.clone();
        Box::pin(async move {
            match auth.authorize(&mut request).await {
                Ok(user) => {
                    request.extensions_mut().insert(user);
                    service.oneshot(request).await
                }
                Err(rejection) => Ok(rejection.into_response()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_full_access_is_warned_about_with_both_fields() {
        let webhook = Authorization::Webhook {
            allowed: Duration::ZERO,
            refused: Duration::ZERO,
        };
        let settings = |anonymous, authorization, tokens: bool| AuthSettings {
            node_name: "n1".to_owned(),
            anonymous,
            token_ttl: tokens.then_some(Duration::ZERO),
            authorization,
            access: AccessSettings::default(),
        };
        let (tokens, mode) = ("authentication.webhook.enabled", "authorization.mode");
        let both = "authentication.anonymous.enabled, authorization.mode";
        let allow = Authorization::AlwaysAllow;
        #[rustfmt::skip]
        let cases: [(AuthSettings, bool, &[&str]); 6] = [
            (settings(true, allow, false), false, &[both]),
            (settings(true, allow, false), true, &[both]),
            (settings(false, allow, false), false, &[]),
            (settings(true, webhook, true), true, &[]),
            (settings(true, webhook, false), false, &[mode]),
            (settings(false, webhook, true), false, &[tokens, mode]),
        ];
        for (settings, reviews, expected) in cases {
            let found = warnings(&settings, reviews);
            let fields: Vec<_> = found.iter().map(|(field, _)| *field).collect();
            assert_eq!(fields, expected, "{settings:?} {reviews}");
            for (_, text) in found.iter().filter(|(field, _)| *field == both) {
                for fix in [
                    "authentication.anonymous.enabled: false",
                    "authorization.mode: Webhook",
                ] {
                    assert!(text.contains(fix), "{text}");
                }
            }
        }
    }
}
