//! Authentication.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};
use windlass_client::ApiError;
use windlass_https::{CertificateError, Peer};
use windlass_metrics::AccessMetrics;
use windlass_pacing::RateLimit;
use windlass_types::{Clock, UserInfo};

use crate::bearer::{self, HeaderError};
use crate::certificate::{SubjectError, user_from_certificate};
use crate::retry;
use crate::review_cache::{CacheLimits, CallerClass, Key, Lookup, ReviewCache, key};
use crate::reviews::{TokenReviewResult, TokenReviews};
use crate::ttl_cache::TtlCache;

/// Users with 1 KiB of groups and extra each: 4 MiB. A quarter of the reviews in flight is
/// reserved for recently accepted tokens. One network may use a quarter, so three networks are
/// needed to use up the share of unknown tokens.
const TOKEN_CACHE_LIMITS: CacheLimits = CacheLimits {
    max_entries: 4096,
    max_in_flight: 64,
    max_unauthenticated: 48,
    max_per_network: 16,
};
/// How long an accepted token counts as recent; tokens of service accounts live for an hour. One
/// entry takes some 150 bytes, the full cache 600 KiB.
const RECENT_PERIOD: Duration = Duration::from_secs(3600);
/// TokenReviews per second and burst: less than half of the default `kubeAPIQPS`. With 64 in
/// flight, the last one waits for 3.2 s.
const RATE_LIMIT: (f64, u32) = (20.0, 50);
/// TTL of a rejection with an error.
const REJECTION_TTL: Duration = Duration::from_secs(10);

const ANONYMOUS: &str = "system:anonymous";
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// An authentication failure. The text is for the log, not for the caller.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum AuthnError {
    #[error("no credentials")]
    NoCredentials,
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error(transparent)]
    Subject(#[from] SubjectError),
    #[error(transparent)]
    Header(#[from] HeaderError),
    #[error("invalid bearer token{}", .0.as_ref().map(|error| format!(": {error}")).unwrap_or_default())]
    Token(Option<String>),
    #[error("TokenReview failed: {0}")]
    Review(Arc<ApiError>),
    #[error("TokenReview timed out")]
    Timeout,
    #[error("too many TokenReviews in flight")]
    Overloaded,
}

/// Authenticates callers.
#[derive(Debug)]
pub(crate) struct Authenticator {
    pub(crate) tokens: Option<TokenReviewCache>,
    pub(crate) anonymous: bool,
    pub(crate) metrics: AccessMetrics,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Authenticator {
    /// Returns the caller. Removes an accepted token from `headers`.
    pub(crate) async fn authenticate(
        &self,
        peer: Option<&Peer>,
        headers: &mut HeaderMap,
    ) -> Result<UserInfo, AuthnError> {
        let mut first = None;
        let mut failed = |error: AuthnError| match error {
            // a retry may succeed, so this error must reach the caller
            AuthnError::Overloaded => first = Some(error),
            error => drop(first.get_or_insert(error)),
        };
        let network = peer.map(Peer::network);
        match self.by_certificate(peer) {
            Ok(Some(user)) => return Ok(authenticated(user)),
            Ok(None) => {}
            Err(error) => failed(error),
        }
        if let Some(tokens) = &self.tokens {
            match bearer::token_from_authorization(headers) {
                Ok(Some(token)) => match tokens.review(token, network).await {
                    Ok(user) => {
                        bearer::drop_authorization(headers);
                        return Ok(authenticated(user));
                    }
                    Err(error) => failed(error),
                },
                Ok(None) => {}
                Err(error) => failed(error.into()),
            }
            match bearer::token_from_websocket(headers) {
                Ok(Some((token, others))) => match tokens.review(token, network).await {
                    Ok(user) => {
                        bearer::drop_protocol(headers, &others);
                        return Ok(authenticated(user));
                    }
                    Err(error) => failed(error),
                },
                Ok(None) => {}
                Err(error) => failed(error.into()),
            }
        }
        match first {
            Some(error) => Err(error),
            None if self.anonymous => Ok(UserInfo {
                name: ANONYMOUS.to_owned(),
                groups: vec![UNAUTHENTICATED.to_owned()],
                ..UserInfo::default()
            }),
            None => Err(AuthnError::NoCredentials),
        }
    }

    fn by_certificate(&self, peer: Option<&Peer>) -> Result<Option<UserInfo>, AuthnError> {
        let Some(certificate) = peer.map(Peer::certificate).transpose()?.flatten() else {
            return Ok(None);
        };
        let certificate = user_from_certificate(&certificate.der)?;
        let left = certificate.not_after.as_second() - self.clock.now().as_second();
        self.metrics.observe_certificate_ttl(left);
        Ok(certificate.user)
    }
}

/// Adds the group of all authenticated users.
fn authenticated(mut user: UserInfo) -> UserInfo {
    let present = |group: &String| group == AUTHENTICATED || group == UNAUTHENTICATED;
    if user.name != ANONYMOUS && !user.groups.iter().any(present) {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    user
}

/// Authenticates tokens with TokenReviews and caches the results.
#[derive(Debug)]
pub(crate) struct TokenReviewCache {
    lookup: Arc<TokenLookup>,
    cache: ReviewCache<Result<UserInfo, AuthnError>>,
}

#[derive(Debug)]
struct TokenLookup {
    reviews: Arc<dyn TokenReviews>,
    ttl: Duration,
    rate_limit: Option<RateLimit>,
    metrics: AccessMetrics,
    recent_tokens: Mutex<TtlCache<()>>,
}

impl TokenReviewCache {
    pub(crate) fn new(
        reviews: Arc<dyn TokenReviews>,
        ttl: Duration,
        metrics: AccessMetrics,
    ) -> Self {
        Self {
            lookup: Arc::new(TokenLookup {
                reviews,
                ttl,
                rate_limit: RateLimit::new(RATE_LIMIT.0, RATE_LIMIT.1),
                metrics,
                recent_tokens: Mutex::new(TtlCache::new(TOKEN_CACHE_LIMITS.max_entries)),
            }),
            cache: ReviewCache::new(TOKEN_CACHE_LIMITS),
        }
    }

    async fn review(&self, token: String, network: Option<IpAddr>) -> Result<UserInfo, AuthnError> {
        let key = key([token.as_str()]);
        let lookup = Arc::clone(&self.lookup);
        let metrics = &self.lookup.metrics;
        let caller = match lookup.recent_tokens.lock().get(&key) {
            Some(()) => CallerClass::RecentlyAuthenticated,
            None => CallerClass::Unauthenticated(network),
        };
        match self
            .cache
            .get(key, caller, || lookup.review(token, key))
            .await
        {
            Lookup::Hit(result) => {
                metrics.count_token_cache(true);
                result
            }
            Lookup::Fetched(result) => {
                metrics.count_token_cache(false);
                result
            }
            Lookup::Overloaded => {
                metrics.count_token_cache(false);
                Err(AuthnError::Overloaded)
            }
        }
    }
}

impl TokenLookup {
    /// Returns the result of a review, and for how long it may be cached.
    async fn review(
        self: Arc<Self>,
        token: String,
        key: Key,
    ) -> (Result<UserInfo, AuthnError>, Duration) {
        let result = timeout(retry::LOOKUP_TIMEOUT, self.attempts(&token, &key)).await;
        self.metrics.count_token_fetch(matches!(
            &result,
            Ok(Ok(
                TokenReviewResult::Authenticated(_) | TokenReviewResult::Rejected(None)
            ))
        ));
        match result {
            Ok(Ok(TokenReviewResult::Authenticated(user))) => {
                self.recent_tokens.lock().insert(key, (), RECENT_PERIOD);
                (Ok(user), self.ttl)
            }
            Ok(Ok(TokenReviewResult::Rejected(error))) => {
                self.recent_tokens.lock().remove(&key);
                let ttl = match error {
                    Some(_) => self.ttl.min(REJECTION_TTL),
                    None => self.ttl,
                };
                (Err(AuthnError::Token(error)), ttl)
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "TokenReview failed");
                (Err(AuthnError::Review(Arc::new(error))), Duration::ZERO)
            }
            Err(_) => {
                tracing::warn!(timeout = ?retry::LOOKUP_TIMEOUT, "TokenReview timed out");
                (Err(AuthnError::Timeout), Duration::ZERO)
            }
        }
    }

    async fn attempts(&self, token: &str, key: &Key) -> Result<TokenReviewResult, ApiError> {
        let mut backoffs = retry::backoffs(key);
        loop {
            if let Some(rate_limit) = &self.rate_limit {
                rate_limit.take().await;
            }
            let started = tokio::time::Instant::now();
            let result = self.reviews.review(token).await;
            self.metrics
                .observe_authn(retry::code(&result), started.elapsed());
            match (result, backoffs.next()) {
                (Err(error), Some(pause)) if retry::is_retryable(&error) => sleep(pause).await,
                (result, _) => return result,
            }
        }
    }
}
