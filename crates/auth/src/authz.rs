//! Authorization.

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

/// Upstream also keeps 8192 entries; each takes some 100 bytes. All callers are authenticated.
const ACCESS_CACHE_LIMITS: CacheLimits = CacheLimits {
    max_entries: 8192,
    max_in_flight: 256,
    max_unauthenticated: 0,
    max_per_network: 0,
};
/// SubjectAccessReviews per second and burst: the defaults of `kubeAPIQPS` and `kubeAPIBurst`.
const RATE_LIMIT: (f64, u32) = (50.0, 100);

/// `authorization`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authorization {
    /// Authenticated callers have all permissions.
    AlwaysAllow,
    /// The API server decides, by SubjectAccessReview.
    Webhook {
        /// TTL of a granted permission.
        allowed: Duration,
        /// TTL of a denied permission.
        refused: Duration,
    },
}

/// An authorization failure.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum AuthzError {
    #[error("{0}")]
    Review(Arc<ApiError>),
    #[error("SubjectAccessReview timed out")]
    Timeout,
    #[error("too many SubjectAccessReviews in flight")]
    Overloaded,
    #[error("SubjectAccessReview is both allowed and denied")]
    Contradiction,
}

/// Decides whether a user has a permission.
#[derive(Debug)]
pub(crate) enum Authorizer {
    /// Every user has every permission.
    AlwaysAllow,
    /// No user has any permission: there is no API server.
    AlwaysDeny,
    /// The API server decides.
    Webhook(AccessReviewCache),
}

impl Authorizer {
    pub(crate) async fn allows(
        &self,
        user: &UserInfo,
        permission: NodePermission,
    ) -> Result<bool, AuthzError> {
        match self {
            Self::AlwaysAllow => Ok(true),
            Self::AlwaysDeny => Ok(false),
            Self::Webhook(reviews) => reviews.review(user, permission).await,
        }
    }
}

/// Authorizes users with SubjectAccessReviews and caches the results.
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
    /// `ttl` has the TTLs of a granted and of a denied permission.
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

    async fn review(
        &self,
        user: &UserInfo,
        permission: NodePermission,
    ) -> Result<bool, AuthzError> {
        let key = cache_key(user, permission);
        let lookup = Arc::clone(&self.lookup);
        let fetch = || lookup.review(user.clone(), permission, key);
        match self
            .cache
            .get(key, CallerClass::RecentlyAuthenticated, fetch)
            .await
        {
            Lookup::Hit(result) | Lookup::Fetched(result) => result,
            Lookup::Overloaded => Err(AuthzError::Overloaded),
        }
    }
}

/// Returns the digest of user and permission.
fn cache_key(user: &UserInfo, permission: NodePermission) -> Key {
    let counts = [user.groups.len().to_string()];
    let fixed = [
        permission.verb,
        permission.subresource,
        &user.name,
        &user.uid,
    ];
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
        permission: NodePermission,
        key: Key,
    ) -> (Result<bool, AuthzError>, Duration) {
        let attempts = self.attempts(&user, permission, &key);
        match timeout(retry::LOOKUP_TIMEOUT, attempts).await {
            Ok(Ok(AccessReviewResult {
                allowed: true,
                denied: true,
            })) => (Err(AuthzError::Contradiction), Duration::ZERO),
            Ok(Ok(review)) if review.allowed => (Ok(true), self.ttl.0),
            Ok(Ok(_)) => (Ok(false), self.ttl.1),
            Ok(Err(error)) => (Err(AuthzError::Review(Arc::new(error))), Duration::ZERO),
            Err(_) => (Err(AuthzError::Timeout), Duration::ZERO),
        }
    }

    async fn attempts(
        &self,
        user: &UserInfo,
        permission: NodePermission,
        key: &Key,
    ) -> Result<AccessReviewResult, ApiError> {
        let mut backoffs = retry::backoffs(key);
        loop {
            if let Some(rate_limit) = &self.rate_limit {
                rate_limit.take().await;
            }
            let started = tokio::time::Instant::now();
            let result = self.reviews.review(user, permission, &self.node).await;
            self.metrics
                .observe_authz(retry::code(&result), started.elapsed());
            match (result, backoffs.next()) {
                (Err(error), Some(pause)) if retry::is_retryable(&error) => sleep(pause).await,
                (result, _) => return result,
            }
        }
    }
}
