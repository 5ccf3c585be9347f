//! Image pulls: shared between pods, limited in number and in rate.
//!
//! *owns* the running pulls and the rate limiter · *invariant* one pull per image
//! and credentials, shared by all waiting pods; without a waiting pod it is dropped · *bound* one
//! entry for each image and credentials being pulled; callers over the limit wait in order ·
//! *restart* nothing to restore: the runtime keeps the layers it has.
//!
//! Upstream rejects a pull over the rate (`pull QPS exceeded`) and puts the pod into back-off; the
//! agent delays the pull instead.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use windlass_cri::error::{CriError, CriResult};
use windlass_cri::port::ImageService;
use windlass_hung_operations::{HungOperations, Operation, OperationKind};
use windlass_pacing::{RateLimit, run_with_permit};
use windlass_types::cri::{ImageAuth, SandboxConfig};

/// A pull that takes longer gives up its permit and continues, and the next one starts: a registry
/// that hangs must not block all other pulls, as it does upstream.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(120);
/// A pull that takes longer is listed: the runtime reports no progress, so a large image and one
/// that is not unpacked look the same.
const SLOW_PULL_THRESHOLD: Duration = Duration::from_secs(4);

/// Limits of image pulls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PullOptions {
    /// `serializeImagePulls`: no concurrent pulls.
    pub serialize: bool,
    /// `maxParallelImagePulls`; `None` for no limit. Not used if `serialize`.
    pub max_parallel: Option<u32>,
    /// `registryPullQPS`; 0 for no limit.
    pub qps: f32,
    /// `registryBurst`: max pulls that start together after an idle period.
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
    /// Duration of the pull itself.
    pub(crate) pulling: Duration,
}

/// Image and credentials.
type PullKey = (String, Option<ImageAuth>);
type PullFuture = BoxFuture<'static, CriResult<Pulled>>;

/// A pull that pods share.
#[derive(Clone, Debug)]
struct SharedPull {
    pull: Shared<PullFuture>,
    /// True once it has its permit.
    began: watch::Receiver<bool>,
}

/// An entry of the running pulls; ends with its last waiting pod.
#[derive(Debug)]
struct RunningPull {
    pull: WeakShared<PullFuture>,
    began: watch::Receiver<bool>,
}

impl RunningPull {
    /// The pull, while it has waiting pods.
    fn share(&self) -> Option<SharedPull> {
        Some(SharedPull {
            pull: self.pull.upgrade()?,
            began: self.began.clone(),
        })
    }

    fn is_running(&self) -> bool {
        let pull = self.pull.upgrade();
        pull.is_some_and(|pull| pull.peek().is_none())
    }
}

/// Pulls images for all pods.
#[derive(Debug)]
pub(crate) struct Puller {
    images: Arc<dyn ImageService>,
    /// Fair: the caller that has waited longest is next.
    slots: Option<Arc<Semaphore>>,
    rate: Option<Arc<RateLimit>>,
    running: Mutex<HashMap<PullKey, RunningPull>>,
    hung: HungOperations,
}

impl Puller {
    pub(crate) fn new(
        images: Arc<dyn ImageService>,
        options: PullOptions,
        hung: HungOperations,
    ) -> Self {
        let slots = if options.serialize {
            Some(1)
        } else {
            options.max_parallel.map(|n| n.max(1) as usize)
        };
        Self {
            images,
            slots: slots.map(|n| Arc::new(Semaphore::new(n))),
            rate: RateLimit::new(options.qps.into(), options.burst).map(Arc::new),
            running: Mutex::default(),
            hung,
        }
    }

    /// Pulls an image with the first credentials that work, or anonymously if there are none. As
    /// upstream, a pod with credentials for a registry does not fall back to none. Joins a running
    /// pull. Also returns the index of the credentials that worked.
    pub(crate) async fn pull(
        &self,
        image: &str,
        credentials: &[ImageAuth],
        sandbox_config: &SandboxConfig,
    ) -> CriResult<(Pulled, Option<usize>)> {
        let Some((first, rest)) = credentials.split_first() else {
            let pulled = self.join(image, None, sandbox_config);
            let pulled = self.wait(pulled, image, sandbox_config).await?;
            return Ok((pulled, None));
        };
        let pull = self.join(image, Some(first), sandbox_config);
        let mut result = self.wait(pull, image, sandbox_config).await;
        let mut used = 0;
        let mut messages = Vec::new();
        for auth in rest {
            match result {
                Ok(_) => break,
                Err(error) => messages.push(error.go_text()),
            }
            let pull = self.join(image, Some(auth), sandbox_config);
            result = self.wait(pull, image, sandbox_config).await;
            used += 1;
        }
        match result {
            Ok(pulled) => Ok((pulled, Some(used))),
            Err(error) => Err(joined(messages, error)),
        }
    }

    /// Waits for a pull; lists it while it takes long, for each pod that waits.
    async fn wait(
        &self,
        pull: SharedPull,
        image: &str,
        sandbox_config: &SandboxConfig,
    ) -> CriResult<Pulled> {
        let SharedPull { pull, mut began } = pull;
        let mut pull = std::pin::pin!(pull);
        // the wait for a permit is not a pull
        tokio::select! {
            biased;
            result = &mut pull => return result,
            _ = began.wait_for(|began| *began) => {}
        }
        let operation = || {
            let name = format!("pull of image {image}");
            Operation::of_pod(OperationKind::ImagePull, &sandbox_config.uid, name)
        };
        let hung = &self.hung;
        hung.track(SLOW_PULL_THRESHOLD, operation, |_| true, pull)
            .await
    }

    fn join(
        &self,
        image: &str,
        auth: Option<&ImageAuth>,
        sandbox_config: &SandboxConfig,
    ) -> SharedPull {
        let mut running = self.running.lock();
        running.retain(|_, pull| pull.is_running());
        // one pod's secret must not serve another: only equal credentials share a pull
        let key = (image.to_owned(), auth.cloned());
        if let Some(pull) = running.get(&key).and_then(RunningPull::share) {
            return pull;
        }
        let (sender, began) = watch::channel(false);
        let (image, auth, config) = (image.to_owned(), auth.cloned(), sandbox_config.clone());
        let pull = self.start(image, auth, config, sender).shared();
        if let Some(weak) = pull.downgrade() {
            let began = began.clone();
            running.insert(key, RunningPull { pull: weak, began });
        }
        SharedPull { pull, began }
    }

    fn start(
        &self,
        image: String,
        auth: Option<ImageAuth>,
        sandbox_config: SandboxConfig,
        began: watch::Sender<bool>,
    ) -> PullFuture {
        let (images, slots, rate) = (self.images.clone(), self.slots.clone(), self.rate.clone());
        async move {
            let slot = match &slots {
                Some(slots) => slots.acquire().await.ok(),
                None => None,
            };
            if let Some(rate) = &rate {
                rate.take().await;
            }
            began.send_replace(true);
            let begun = Instant::now();
            let pull = images.pull_image(&image, auth.as_ref(), &sandbox_config);
            let image_ref = run_with_permit(slot, PERMIT_TIMEOUT, pull).await?;
            Ok(Pulled {
                image_ref,
                pulling: begun.elapsed(),
            })
        }
        .boxed()
    }
}

/// Returns the last error with the texts of the earlier attempts, each text once.
fn joined(mut messages: Vec<String>, last: CriError) -> CriError {
    if messages.is_empty() {
        return last;
    }
    messages.push(last.go_text());
    let mut seen = BTreeSet::new();
    messages.retain(|message| seen.insert(message.clone()));
    let message = match messages.as_slice() {
        [only] => only.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    CriError {
        message,
        status: None,
        ..last
    }
}
