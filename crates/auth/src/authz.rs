//! Whether they may.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use windlass_client::ApiError;
use windlass_metrics::AccessMetrics;
use windlass_pacing::RateLimit;
use windlass_types::{NodePermission, UserInfo};

use crate::retry;
use crate::review_cache::{CacheLimits, CallerClass, Key, Lookup, ReviewCache, key};
use crate::reviews::{AccessReviewResult, AccessReviews};

/// Upstream keeps 8192; some 100 bytes each here. Nobody who asks is a stranger.
const ACCESS_CACHE_LIMITS: CacheLimits = CacheLimits {
    max_entries: 8192,
    max_in_flight: 256,
    max_unauthenticated: 0,
    max_per_network: 0,
};
/// SubjectAccessReviews a second, and at once: `kubeAPIQPS` and `kubeAPIBurst` as they are by default.
const RATE_LIMIT: (f64, u32) = (50.0, 100);

/// `authorization`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authorization {
    /// Whoever is known may do everything.
    AlwaysAllow,
    /// The API server is asked.
    Webhook {
        /// How long a yes is kept.
        allowed: Duration,
        /// How long a no is kept.
        refused: Duration,
    },
}

/// There is no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum AuthzError {
    #[error("{0}")]
    Review(Arc<ApiError>),
    #[error("no answer in time")]
    Timeout,
    #[error("too many rights are being asked for")]
    Overloaded,
    #[error("the API server says both yes and no")]
    Contradiction,
}

/// Says whether a user has a right.
#[derive(Debug)]
pub(crate) enum Authorizer {
    /// Everybody has every right.
    AlwaysAllow,
    /// Nobody has any: there is nobody to ask.
    AlwaysDeny,
    /// As the API server says.
    Webhook(AccessReviewCache),
}

impl Authorizer {
    pub(crate) async fn allows(
        &self,
        user: &UserInfo,
        right: NodePermission,
    ) -> Result<bool, AuthzError> {
        match self {
            Self::AlwaysAllow => Ok(true),
            Self::AlwaysDeny => Ok(false),
            Self::Webhook(rights) => rights.review(user, right).await,
        }
    }
}

/// AccessReviewCache, reviewed once and remembered.
#[derive(Debug)]
pub(crate) struct AccessReviewCache {
    lookup: Arc<AccessLookup>,
    cache: ReviewCache<Result<bool, AuthzError>>,
}

#[derive(Debug)]
struct AccessLookup {
    reviews: Arc<dyn AccessReviews>,
    node: String,
    ttl: (Duration, Duration),
    rate_limit: Option<RateLimit>,
    metrics: AccessMetrics,
}

impl AccessReviewCache {
    /// `ttl` is how long a yes and a no are kept.
    pub(crate) fn new(
        reviews: Arc<dyn AccessReviews>,
        node: String,
        ttl: (Duration, Duration),
        metrics: AccessMetrics,
    ) -> Self {
        Self {
            lookup: Arc::new(AccessLookup {
                reviews,
                node,
                ttl,
                rate_limit: RateLimit::new(RATE_LIMIT.0, RATE_LIMIT.1),
                metrics,
            }),
            cache: ReviewCache::new(ACCESS_CACHE_LIMITS),
        }
    }

    async fn review(&self, user: &UserInfo, right: NodePermission) -> Result<bool, AuthzError> {
        let key = question(user, right);
        let lookup = Arc::clone(&self.lookup);
        let fetch = || lookup.review(user.clone(), right, key);
        match self
            .cache
            .get(key, CallerClass::RecentlyAuthenticated, fetch)
            .await
        {
            Lookup::Hit(answer) | Lookup::Fetched(answer) => answer,
            Lookup::Overloaded => Err(AuthzError::Overloaded),
        }
    }
}

/// The digest of user and right.
fn question(user: &UserInfo, right: NodePermission) -> Key {
    let counts = [user.groups.len().to_string()];
    let fixed = [right.verb, right.subresource, &user.name, &user.uid];
    let groups = counts.iter().chain(&user.groups).map(String::as_str);
    let values: Vec<_> = user
        .extra
        .iter()
        .map(|(name, values)| (name, values.len().to_string(), values))
        .collect();
    let extra = values.iter().flat_map(|(name, count, values)| {
        [name.as_str(), count.as_str()]
            .into_iter()
            .chain(values.iter().map(String::as_str))
    });
    key(fixed.into_iter().chain(groups).chain(extra))
}

impl AccessLookup {
    async fn review(
        self: Arc<Self>,
        user: UserInfo,
        right: NodePermission,
        key: Key,
    ) -> (Result<bool, AuthzError>, Duration) {
        let attempts = self.attempts(&user, right, &key);
        match timeout(retry::LOOKUP_TIMEOUT, attempts).await {
            Ok(Ok(AccessReviewResult {
                allowed: true,
                denied: true,
            })) => (Err(AuthzError::Contradiction), Duration::ZERO),
            Ok(Ok(verdict)) if verdict.allowed => (Ok(true), self.ttl.0),
            Ok(Ok(_)) => (Ok(false), self.ttl.1),
            Ok(Err(error)) => (Err(AuthzError::Review(Arc::new(error))), Duration::ZERO),
            Err(_) => (Err(AuthzError::Timeout), Duration::ZERO),
        }
    }

    async fn attempts(
        &self,
        user: &UserInfo,
        right: NodePermission,
        key: &Key,
    ) -> Result<AccessReviewResult, ApiError> {
        let mut backoffs = retry::backoffs(key);
        loop {
            if let Some(rate_limit) = &self.rate_limit {
                rate_limit.take().await;
            }
            let begun = tokio::time::Instant::now();
            let result = self.reviews.review(user, right, &self.node).await;
            self.metrics
                .observe_authz(retry::code(&result), begun.elapsed());
            match (result, backoffs.next()) {
                (Err(error), Some(pause)) if retry::is_retryable(&error) => sleep(pause).await,
                (result, _) => return result,
            }
        }
    }
}
