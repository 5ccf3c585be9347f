//! Whether they may.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use windlass_client::ApiError;
use windlass_metrics::AccessMetrics;
use windlass_pacing::RateLimit;
use windlass_types::{NodePermission, UserInfo};

use crate::answers::{Answers, Asker, Bounds, Got, Key, key};
use crate::retry;
use crate::reviews::{AccessReviews, AccessVerdict};

/// Upstream keeps 8192; some 100 bytes each here. Nobody who asks is a stranger.
const RIGHTS: Bounds = Bounds {
    kept: 8192,
    asked: 256,
    of_strangers: 0,
    of_one_network: 0,
};
/// SubjectAccessReviews a second, and at once: `kubeAPIQPS` and `kubeAPIBurst` as they are by default.
const PACE: (f64, u32) = (50.0, 100);

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
pub(crate) enum AuthzFault {
    #[error("{0}")]
    Review(Arc<ApiError>),
    #[error("no answer in time")]
    Slow,
    #[error("too many rights are being asked for")]
    Busy,
    #[error("the API server says both yes and no")]
    Both,
}

/// Says whether a user has a right.
#[derive(Debug)]
pub(crate) enum Authorizer {
    /// Everybody has every right.
    Everything,
    /// Nobody has any: there is nobody to ask.
    Nothing,
    /// As the API server says.
    Rights(Rights),
}

impl Authorizer {
    pub(crate) async fn allows(
        &self,
        user: &UserInfo,
        right: NodePermission,
    ) -> Result<bool, AuthzFault> {
        match self {
            Self::Everything => Ok(true),
            Self::Nothing => Ok(false),
            Self::Rights(rights) => rights.review(user, right).await,
        }
    }
}

/// Rights, reviewed once and remembered.
#[derive(Debug)]
pub(crate) struct Rights {
    ask: Arc<Ask>,
    answers: Answers<Result<bool, AuthzFault>>,
}

#[derive(Debug)]
struct Ask {
    reviews: Arc<dyn AccessReviews>,
    node: String,
    keep: (Duration, Duration),
    pace: Option<RateLimit>,
    metrics: AccessMetrics,
}

impl Rights {
    /// `keep` is how long a yes and a no are kept.
    pub(crate) fn new(
        reviews: Arc<dyn AccessReviews>,
        node: String,
        keep: (Duration, Duration),
        metrics: AccessMetrics,
    ) -> Self {
        Self {
            ask: Arc::new(Ask {
                reviews,
                node,
                keep,
                pace: RateLimit::new(PACE.0, PACE.1),
                metrics,
            }),
            answers: Answers::new(RIGHTS),
        }
    }

    async fn review(&self, user: &UserInfo, right: NodePermission) -> Result<bool, AuthzFault> {
        let key = question(user, right);
        let ask = Arc::clone(&self.ask);
        let ask = || ask.review(user.clone(), right, key);
        match self.answers.get(key, Asker::Known, ask).await {
            Got::Kept(answer) | Got::Asked(answer) => answer,
            Got::Busy => Err(AuthzFault::Busy),
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

impl Ask {
    async fn review(
        self: Arc<Self>,
        user: UserInfo,
        right: NodePermission,
        key: Key,
    ) -> (Result<bool, AuthzFault>, Duration) {
        let attempts = self.attempts(&user, right, &key);
        match timeout(retry::LONGEST, attempts).await {
            Ok(Ok(AccessVerdict {
                allowed: true,
                denied: true,
            })) => (Err(AuthzFault::Both), Duration::ZERO),
            Ok(Ok(verdict)) if verdict.allowed => (Ok(true), self.keep.0),
            Ok(Ok(_)) => (Ok(false), self.keep.1),
            Ok(Err(error)) => (Err(AuthzFault::Review(Arc::new(error))), Duration::ZERO),
            Err(_) => (Err(AuthzFault::Slow), Duration::ZERO),
        }
    }

    async fn attempts(
        &self,
        user: &UserInfo,
        right: NodePermission,
        key: &Key,
    ) -> Result<AccessVerdict, ApiError> {
        let mut pauses = retry::pauses(key);
        loop {
            if let Some(pace) = &self.pace {
                pace.take().await;
            }
            let begun = tokio::time::Instant::now();
            let result = self.reviews.review(user, right, &self.node).await;
            self.metrics
                .observe_authz(retry::code(&result), begun.elapsed());
            match (result, pauses.next()) {
                (Err(error), Some(pause)) if retry::is_worth_it(&error) => sleep(pause).await,
                (result, _) => return result,
            }
        }
    }
}
