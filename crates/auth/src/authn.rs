//! Who asks.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::HeaderMap;
use tokio::time::{sleep, timeout};
use windlass_client::ApiError;
use windlass_https::{CertificateError, Peer};
use windlass_metrics::AccessMetrics;
use windlass_pacing::RateLimit;
use windlass_types::{Clock, UserInfo};

use crate::bearer::{self, HeaderError};
use crate::certificate::{SubjectError, user_from_certificate};
use crate::retry;
use crate::review_cache::{CacheLimits, CallerClass, Key, Lookup, ReviewCache, key, lock};
use crate::reviews::{TokenReviewResult, TokenReviews};
use crate::ttl_cache::TtlCache;

/// Users with 1 KiB of groups and extra each: 4 MiB. Of the questions under way a quarter is for
/// tokens that were good lately, and a quarter the most for strangers of one network: it takes
/// three networks to take the strangers' places, and however many take none of the others.
const TOKEN_CACHE_LIMITS: CacheLimits = CacheLimits {
    max_entries: 4096,
    max_in_flight: 64,
    max_unauthenticated: 48,
    max_per_network: 16,
};
/// For how long a token was good lately; those of service accounts live for an hour. Each takes
/// some 150 bytes, as many as there are answers 600 KiB.
const RECENT_PERIOD: Duration = Duration::from_secs(3600);
/// TokenReviews a second, and at once: a tenth of what the node's other requests may be. Who is
/// the last of 64 in line waits for 3.2 s.
const RATE_LIMIT: (f64, u32) = (20.0, 50);
/// How long an answer with an error is kept.
const REFUSED_WITH_ERROR: Duration = Duration::from_secs(10);

const ANONYMOUS: &str = "system:anonymous";
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// Why nobody is known to ask. Not for the caller, who is told nothing.
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
    #[error("the token could not be reviewed: {0}")]
    Review(Arc<ApiError>),
    #[error("the token was not reviewed in time")]
    Timeout,
    #[error("too many tokens are being reviewed")]
    Overloaded,
}

/// Says who asks.
#[derive(Debug)]
pub(crate) struct Authenticator {
    pub(crate) tokens: Option<TokenReviewCache>,
    pub(crate) anonymous: bool,
    pub(crate) metrics: AccessMetrics,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Authenticator {
    /// The caller. Takes a token that was accepted out of `headers`.
    pub(crate) async fn authenticate(
        &self,
        peer: Option<&Peer>,
        headers: &mut HeaderMap,
    ) -> Result<UserInfo, AuthnError> {
        let mut first = None;
        let mut failed = |error: AuthnError| match error {
            // who comes again may be let in: that has to be said
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
        let named = user_from_certificate(&certificate.der)?;
        let left = named.not_after.as_second() - self.clock.now().as_second();
        self.metrics.observe_certificate_ttl(left);
        Ok(named.user)
    }
}

/// Adds the group of everybody who is somebody.
fn authenticated(mut user: UserInfo) -> UserInfo {
    let said = |group: &String| group == AUTHENTICATED || group == UNAUTHENTICATED;
    if user.name != ANONYMOUS && !user.groups.iter().any(said) {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    user
}

/// TokenReviewCache, reviewed once and remembered.
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
        let caller = match lock(&lookup.recent_tokens).get(&key) {
            Some(()) => CallerClass::RecentlyAuthenticated,
            None => CallerClass::Unauthenticated(network),
        };
        let lookup_result = self.cache.get(key, caller, || lookup.review(token, key));
        match lookup_result.await {
            Lookup::Hit(answer) => {
                metrics.count_token_cache(true);
                answer
            }
            Lookup::Fetched(answer) => {
                metrics.count_token_cache(false);
                answer
            }
            Lookup::Overloaded => {
                metrics.count_token_cache(false);
                Err(AuthnError::Overloaded)
            }
        }
    }
}

impl TokenLookup {
    /// Asks until there is an answer, and says how long that may be kept.
    async fn review(
        self: Arc<Self>,
        token: String,
        key: Key,
    ) -> (Result<UserInfo, AuthnError>, Duration) {
        let answer = timeout(retry::LOOKUP_TIMEOUT, self.attempts(&token, &key)).await;
        self.metrics.count_token_fetch(matches!(
            &answer,
            Ok(Ok(
                TokenReviewResult::Authenticated(_) | TokenReviewResult::Rejected(None)
            ))
        ));
        match answer {
            Ok(Ok(TokenReviewResult::Authenticated(user))) => {
                lock(&self.recent_tokens).insert(key, (), RECENT_PERIOD);
                (Ok(user), self.ttl)
            }
            Ok(Ok(TokenReviewResult::Rejected(error))) => {
                lock(&self.recent_tokens).remove(&key);
                let ttl = match error {
                    Some(_) => self.ttl.min(REFUSED_WITH_ERROR),
                    None => self.ttl,
                };
                (Err(AuthnError::Token(error)), ttl)
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "token not reviewed");
                (Err(AuthnError::Review(Arc::new(error))), Duration::ZERO)
            }
            Err(_) => {
                tracing::warn!(limit = ?retry::LOOKUP_TIMEOUT, "token not reviewed in time");
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
            let begun = tokio::time::Instant::now();
            let result = self.reviews.review(token).await;
            self.metrics
                .observe_authn(retry::code(&result), begun.elapsed());
            match (result, backoffs.next()) {
                (Err(error), Some(pause)) if retry::is_retryable(&error) => sleep(pause).await,
                (result, _) => return result,
            }
        }
    }
}
