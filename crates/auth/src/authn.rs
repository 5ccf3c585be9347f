//! Who asks.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::HeaderMap;
use tokio::time::{sleep, timeout};
use windlass_client::ApiError;
use windlass_https::{CertificateFault, Peer};
use windlass_metrics::AccessMetrics;
use windlass_pacing::RateLimit;
use windlass_types::{Clock, UserInfo};

use crate::answers::{Answers, Asker, Bounds, Got, Key, key, lock};
use crate::bearer::{self, HeaderFault};
use crate::certificate::{SubjectFault, named};
use crate::kept::Kept;
use crate::retry;
use crate::reviews::{TokenReviews, TokenVerdict};

/// Users with 1 KiB of groups and extra each: 4 MiB. Of the questions under way a quarter is for
/// tokens that were good lately, and a quarter the most for strangers of one network: it takes
/// three networks to take the strangers' places, and however many take none of the others.
const TOKENS: Bounds = Bounds {
    kept: 4096,
    asked: 64,
    of_strangers: 48,
    of_one_network: 16,
};
/// For how long a token was good lately; those of service accounts live for an hour. Each takes
/// some 150 bytes, as many as there are answers 600 KiB.
const LATELY: Duration = Duration::from_secs(3600);
/// TokenReviews a second, and at once: a tenth of what the node's other requests may be. Who is
/// the last of 64 in line waits for 3.2 s.
const PACE: (f64, u32) = (20.0, 50);
/// How long an answer with an error is kept.
const REFUSED_WITH_ERROR: Duration = Duration::from_secs(10);

const ANONYMOUS: &str = "system:anonymous";
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// Why nobody is known to ask. Not for the caller, who is told nothing.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum AuthnFault {
    #[error("no credentials")]
    None,
    #[error(transparent)]
    Certificate(#[from] CertificateFault),
    #[error(transparent)]
    Subject(#[from] SubjectFault),
    #[error(transparent)]
    Header(#[from] HeaderFault),
    #[error("invalid bearer token{}", .0.as_ref().map(|error| format!(": {error}")).unwrap_or_default())]
    Token(Option<String>),
    #[error("the token could not be reviewed: {0}")]
    Review(Arc<ApiError>),
    #[error("the token was not reviewed in time")]
    Slow,
    #[error("too many tokens are being reviewed")]
    Busy,
}

/// Says who asks.
#[derive(Debug)]
pub(crate) struct Authenticator {
    pub(crate) tokens: Option<Tokens>,
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
    ) -> Result<UserInfo, AuthnFault> {
        let mut first = None;
        let mut failed = |fault: AuthnFault| match fault {
            // who comes again may be let in: that has to be said
            AuthnFault::Busy => first = Some(fault),
            fault => drop(first.get_or_insert(fault)),
        };
        let network = peer.map(Peer::network);
        match self.by_certificate(peer) {
            Ok(Some(user)) => return Ok(authenticated(user)),
            Ok(None) => {}
            Err(fault) => failed(fault),
        }
        if let Some(tokens) = &self.tokens {
            match bearer::of_authorization(headers) {
                Ok(Some(token)) => match tokens.review(token, network).await {
                    Ok(user) => {
                        bearer::drop_authorization(headers);
                        return Ok(authenticated(user));
                    }
                    Err(fault) => failed(fault),
                },
                Ok(None) => {}
                Err(fault) => failed(fault.into()),
            }
            match bearer::of_websocket(headers) {
                Ok(Some((token, others))) => match tokens.review(token, network).await {
                    Ok(user) => {
                        bearer::drop_protocol(headers, &others);
                        return Ok(authenticated(user));
                    }
                    Err(fault) => failed(fault),
                },
                Ok(None) => {}
                Err(fault) => failed(fault.into()),
            }
        }
        match first {
            Some(fault) => Err(fault),
            None if self.anonymous => Ok(UserInfo {
                name: ANONYMOUS.to_owned(),
                groups: vec![UNAUTHENTICATED.to_owned()],
                ..UserInfo::default()
            }),
            None => Err(AuthnFault::None),
        }
    }

    fn by_certificate(&self, peer: Option<&Peer>) -> Result<Option<UserInfo>, AuthnFault> {
        let Some(certificate) = peer.map(Peer::certificate).transpose()?.flatten() else {
            return Ok(None);
        };
        let named = named(&certificate.der)?;
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

/// Tokens, reviewed once and remembered.
#[derive(Debug)]
pub(crate) struct Tokens {
    ask: Arc<Ask>,
    answers: Answers<Result<UserInfo, AuthnFault>>,
}

#[derive(Debug)]
struct Ask {
    reviews: Arc<dyn TokenReviews>,
    keep: Duration,
    pace: Option<RateLimit>,
    metrics: AccessMetrics,
    known_lately: Mutex<Kept<()>>,
}

impl Tokens {
    pub(crate) fn new(
        reviews: Arc<dyn TokenReviews>,
        keep: Duration,
        metrics: AccessMetrics,
    ) -> Self {
        Self {
            ask: Arc::new(Ask {
                reviews,
                keep,
                pace: RateLimit::new(PACE.0, PACE.1),
                metrics,
                known_lately: Mutex::new(Kept::new(TOKENS.kept)),
            }),
            answers: Answers::new(TOKENS),
        }
    }

    async fn review(&self, token: String, network: Option<IpAddr>) -> Result<UserInfo, AuthnFault> {
        let key = key([token.as_str()]);
        let ask = Arc::clone(&self.ask);
        let metrics = &self.ask.metrics;
        let asker = match lock(&ask.known_lately).get(&key) {
            Some(()) => Asker::Known,
            None => Asker::Stranger(network),
        };
        let asking = self.answers.get(key, asker, || ask.review(token, key));
        match asking.await {
            Got::Kept(answer) => {
                metrics.count_token_cache(true);
                answer
            }
            Got::Asked(answer) => {
                metrics.count_token_cache(false);
                answer
            }
            Got::Busy => {
                metrics.count_token_cache(false);
                Err(AuthnFault::Busy)
            }
        }
    }
}

impl Ask {
    /// Asks until there is an answer, and says how long that may be kept.
    async fn review(
        self: Arc<Self>,
        token: String,
        key: Key,
    ) -> (Result<UserInfo, AuthnFault>, Duration) {
        let answer = timeout(retry::LONGEST, self.attempts(&token, &key)).await;
        self.metrics.count_token_fetch(matches!(
            &answer,
            Ok(Ok(TokenVerdict::Known(_) | TokenVerdict::Unknown(None)))
        ));
        match answer {
            Ok(Ok(TokenVerdict::Known(user))) => {
                lock(&self.known_lately).keep(key, (), LATELY);
                (Ok(user), self.keep)
            }
            Ok(Ok(TokenVerdict::Unknown(error))) => {
                lock(&self.known_lately).forget(&key);
                let keep = match error {
                    Some(_) => self.keep.min(REFUSED_WITH_ERROR),
                    None => self.keep,
                };
                (Err(AuthnFault::Token(error)), keep)
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "token not reviewed");
                (Err(AuthnFault::Review(Arc::new(error))), Duration::ZERO)
            }
            Err(_) => {
                tracing::warn!(limit = ?retry::LONGEST, "token not reviewed in time");
                (Err(AuthnFault::Slow), Duration::ZERO)
            }
        }
    }

    async fn attempts(&self, token: &str, key: &Key) -> Result<TokenVerdict, ApiError> {
        let mut pauses = retry::pauses(key);
        loop {
            if let Some(pace) = &self.pace {
                pace.take().await;
            }
            let begun = tokio::time::Instant::now();
            let result = self.reviews.review(token).await;
            self.metrics
                .observe_authn(retry::code(&result), begun.elapsed());
            match (result, pauses.next()) {
                (Err(error), Some(pause)) if retry::is_worth_it(&error) => sleep(pause).await,
                (result, _) => return result,
            }
        }
    }
}
