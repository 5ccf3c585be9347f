//! Image pulls: shared between pods, limited in number and in rate.
//!
//! *owns* the pulls under way and the rate limiter · *invariant* one image is pulled once at a
//! time, however many pods want it, and the pull lives as long as one of them waits · *bound* one
//! entry for each image being pulled; callers over the limit wait in order · *restart* nothing to
//! restore: the runtime keeps the layers it has.
//!
//! Upstream refuses a pull over the rate (`pull QPS exceeded`) and puts the pod into back-off;
//! here it waits for its turn, which no user has to understand.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use windlass_cri::error::CriResult;
use windlass_cri::port::ImageService;
use windlass_types::cri::{ImageAuth, SandboxConfig};

/// Limits of image pulls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PullOptions {
    /// `serializeImagePulls`: one pull at a time.
    pub serialize: bool,
    /// `maxParallelImagePulls`; `None` is no limit. Not used if `serialize`.
    pub max_parallel: Option<u32>,
    /// `registryPullQPS`; 0 is no limit.
    pub qps: f32,
    /// `registryBurst`: pulls that may begin at once after a quiet time.
    pub burst: u32,
}

impl Default for PullOptions {
    /// Upstream's defaults.
    fn default() -> Self {
        Self {
            serialize: true,
            max_parallel: None,
            qps: 5.0,
            burst: 10,
        }
    }
}

/// A finished pull.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pulled {
    /// Reference to run.
    pub(crate) image_ref: String,
    /// Time of the pull itself.
    pub(crate) pulling: Duration,
}

type PullFuture = BoxFuture<'static, CriResult<Pulled>>;
type SharedPull = Shared<PullFuture>;

/// Pulls images for all pods.
#[derive(Debug)]
pub(crate) struct Puller {
    images: Arc<dyn ImageService>,
    /// Fair: the longest waiting caller is next.
    slots: Option<Arc<Semaphore>>,
    rate: Arc<TokenBucket>,
    under_way: Mutex<HashMap<String, WeakShared<PullFuture>>>,
}

impl Puller {
    pub(crate) fn new(images: Arc<dyn ImageService>, options: PullOptions) -> Self {
        let slots = if options.serialize {
            Some(1)
        } else {
            options.max_parallel.map(|n| n.max(1) as usize)
        };
        Self {
            images,
            slots: slots.map(|n| Arc::new(Semaphore::new(n))),
            rate: Arc::new(TokenBucket::new(options.qps, options.burst)),
            under_way: Mutex::default(),
        }
    }

    /// Pulls an image or joins the pull of it that is under way.
    pub(crate) async fn pull(
        &self,
        image: &str,
        auth: Option<&ImageAuth>,
        sandbox_config: &SandboxConfig,
    ) -> CriResult<Pulled> {
        self.join(image, auth, sandbox_config).await
    }

    fn join(
        &self,
        image: &str,
        auth: Option<&ImageAuth>,
        sandbox_config: &SandboxConfig,
    ) -> SharedPull {
        let mut under_way = self
            .under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        under_way.retain(|_, pull| pull.upgrade().is_some_and(|pull| pull.peek().is_none()));
        // pulls with credentials are not shared: one pod's secret must not serve another
        let shareable = auth.is_none();
        if shareable && let Some(pull) = under_way.get(image).and_then(WeakShared::upgrade) {
            return pull;
        }
        let pull = self
            .start(image.to_owned(), auth.cloned(), sandbox_config.clone())
            .shared();
        if shareable && let Some(weak) = pull.downgrade() {
            under_way.insert(image.to_owned(), weak);
        }
        pull
    }

    fn start(
        &self,
        image: String,
        auth: Option<ImageAuth>,
        sandbox_config: SandboxConfig,
    ) -> PullFuture {
        let (images, slots, rate) = (self.images.clone(), self.slots.clone(), self.rate.clone());
        async move {
            let _slot = match &slots {
                Some(slots) => slots.acquire().await.ok(),
                None => None,
            };
            rate.take().await;
            let begun = Instant::now();
            let image_ref = images
                .pull_image(&image, auth.as_ref(), &sandbox_config)
                .await?;
            Ok(Pulled {
                image_ref,
                pulling: begun.elapsed(),
            })
        }
        .boxed()
    }
}

/// Lets `qps` callers a second through, `burst` at once; the others wait in order of arrival.
#[derive(Debug)]
struct TokenBucket {
    qps: f64,
    burst: f64,
    /// When the bucket would have been full at the latest; tokens are the time since.
    state: Mutex<Option<(f64, Instant)>>,
}

impl TokenBucket {
    fn new(qps: f32, burst: u32) -> Self {
        Self {
            qps: f64::from(qps),
            burst: f64::from(burst.max(1)),
            state: Mutex::new(None),
        }
    }

    async fn take(&self) {
        let wait = self.reserve(Instant::now());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }

    /// Takes a token, on credit if there is none, and returns how long it takes to earn it.
    fn reserve(&self, now: Instant) -> Duration {
        if self.qps <= 0.0 {
            return Duration::ZERO;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (tokens, since) = state.unwrap_or((self.burst, now));
        let earned = now.saturating_duration_since(since).as_secs_f64() * self.qps;
        let left = (tokens + earned).min(self.burst) - 1.0;
        *state = Some((left, now));
        if left >= 0.0 {
            return Duration::ZERO;
        }
        Duration::from_secs_f64(-left / self.qps)
    }
}

#[cfg(test)]
mod tests;
