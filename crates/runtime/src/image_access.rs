//! The records of image pulls, read and written around each pull.
//!
//! *owns* the open records · *invariant* no pull begins without its intent on the disk · *bound*
//! each access to the disk ends after [`DEADLINE`] for whoever waits · *restart* the first access
//! reconciles the intents that are left over with the images on the node.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::OnceCell;
use tokio::time::timeout;
use windlass_core::credentials::{Keyring, TrackedAuth};
use windlass_core::image_access::{ImageAccess, ImagePullCredentials, PullHistory, image_access};
use windlass_core::image_name::ImageName;
use windlass_cri::port::ImageService;
use windlass_metrics::Metrics;
use windlass_store::{PullRecords, StoreError};
use windlass_types::{Clock, Timestamp};

use crate::options::{ImageAccessOptions, PodRuntimeDeps};

/// A disk that hangs delays a pod by no more than this.
const DEADLINE: Duration = Duration::from_secs(10);
/// Between two looks for records of images that are gone (upstream's garbage collection).
const PRUNE_PERIOD: Duration = Duration::from_secs(5 * 60);

/// The records could not be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordsError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the disk did not answer in time")]
    Timeout,
}

/// Records of image pulls, if they are kept.
#[derive(Debug)]
pub(crate) struct ImageRecords {
    options: Option<ImageAccessOptions>,
    records: OnceCell<Arc<PullRecords>>,
    images: Arc<dyn ImageService>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    pruned: Mutex<Option<Timestamp>>,
}

impl ImageRecords {
    pub(crate) fn new(deps: &PodRuntimeDeps) -> Self {
        Self {
            options: deps.options.image_access.clone(),
            records: OnceCell::new(),
            images: Arc::clone(&deps.images),
            clock: Arc::clone(&deps.clock),
            metrics: deps.metrics.clone(),
            pruned: Mutex::default(),
        }
    }

    /// Whether a pod with these pull secrets may use an image that is on the node.
    pub(crate) async fn allows(&self, image: &str, id: &str, keyring: &Keyring) -> bool {
        let Some(options) = &self.options else {
            return true;
        };
        let Ok(name) = ImageName::parse(image) else {
            return false;
        };
        let history = match self.history(image, id).await {
            Ok(history) => history,
            Err(error) => {
                tracing::warn!(%error, image, "records of image pulls not read");
                PullHistory::Unreadable
            }
        };
        let credentials = keyring.lookup_tracked(image);
        let access = image_access(&options.policy, &name, &history, &credentials);
        self.metrics.starts.count_image_check(&access.to_string());
        if let ImageAccess::Recorded { add: Some(secret) } = &access {
            let credentials = ImagePullCredentials::secret(secret.clone());
            let (image, id, now) = (image.to_owned(), id.to_owned(), self.clock.now());
            let added = self
                .on_disk(move |records| records.add(&image, &id, credentials, now))
                .await;
            if let Err(error) = added {
                tracing::warn!(%error, "image pulled record not written");
            }
        }
        access.is_allowed()
    }

    /// A pull begins.
    pub(crate) async fn begin(&self, image: &str) -> Result<PullIntent, RecordsError> {
        let mut intent = PullIntent {
            image: image.to_owned(),
            clock: Arc::clone(&self.clock),
            records: None,
        };
        if self.options.is_none() {
            return Ok(intent);
        }
        let records = self.opened().await?;
        // the intent is made where it is counted, so that it is dropped if nobody waits for it
        blocking(move || {
            records.begin(&intent.image)?;
            intent.records = Some(records);
            Ok(intent)
        })
        .await
    }

    /// Removes records of images that are gone, not more often than every five minutes.
    pub(crate) async fn prune(&self) {
        let now = self.clock.now();
        if self.options.is_none() || !self.is_prune_due(now) {
            return;
        }
        let images = match self.images.list_images().await {
            Ok(images) => images,
            Err(error) => {
                tracing::warn!(%error, "images not listed, records of pulls stay");
                return;
            }
        };
        let pruned = self.on_disk(move |records| records.prune(&images, now));
        if let Err(error) = pruned.await {
            tracing::warn!(%error, "records of image pulls not removed");
        }
    }

    fn is_prune_due(&self, now: Timestamp) -> bool {
        let mut pruned = self.pruned.lock().unwrap_or_else(PoisonError::into_inner);
        let due = pruned.is_none_or(|last| now >= windlass_types::later(last, PRUNE_PERIOD));
        if due {
            *pruned = Some(now);
        }
        due
    }

    async fn history(&self, image: &str, id: &str) -> Result<PullHistory, RecordsError> {
        let (image, id) = (image.to_owned(), id.to_owned());
        self.on_disk(move |records| records.history(&image, &id))
            .await
    }

    async fn on_disk<T: Send + 'static>(
        &self,
        access: impl FnOnce(&PullRecords) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, RecordsError> {
        let records = self.opened().await?;
        blocking(move || access(&records)).await
    }

    async fn opened(&self) -> Result<Arc<PullRecords>, RecordsError> {
        let open = || async {
            let root_dir = self.options.as_ref().map(|o| o.root_dir.clone());
            let records = blocking(move || {
                let records = PullRecords::open(&root_dir.unwrap_or_default())?;
                let left_over = records.has_intents()?;
                Ok((Arc::new(records), left_over))
            });
            let (records, left_over) = records.await?;
            if left_over {
                self.reconcile(&records).await?;
            }
            Ok(records)
        };
        self.records.get_or_try_init(open).await.cloned()
    }

    /// Without a list the intents stay: whoever wants their images must verify.
    async fn reconcile(&self, records: &Arc<PullRecords>) -> Result<(), RecordsError> {
        match self.images.list_images().await {
            Ok(images) => {
                let (records, now) = (Arc::clone(records), self.clock.now());
                blocking(move || records.reconcile(&images, now)).await
            }
            Err(error) => {
                tracing::warn!(%error, "images not listed, intents of pulls stay");
                Ok(())
            }
        }
    }
}

async fn blocking<T: Send + 'static>(
    access: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, RecordsError> {
    match timeout(DEADLINE, tokio::task::spawn_blocking(access)).await {
        Ok(Ok(result)) => Ok(result?),
        Ok(Err(_)) => Err(StoreError::Aborted.into()),
        Err(_) => Err(RecordsError::Timeout),
    }
}

/// A pull under way. Dropped before its end, the intent stays on the disk.
#[derive(Debug)]
pub(crate) struct PullIntent {
    image: String,
    clock: Arc<dyn Clock>,
    records: Option<Arc<PullRecords>>,
}

impl PullIntent {
    /// The pull has failed.
    pub(crate) async fn fail(mut self) {
        let Some(records) = self.records.take() else {
            return;
        };
        let image = self.image.clone();
        if let Err(error) = blocking(move || records.fail(&image)).await {
            tracing::warn!(%error, image = self.image, "image pull intent not removed");
        }
    }

    /// The pull has succeeded with these credentials; `None` was anonymous.
    pub(crate) async fn succeed(mut self, id: &str, used: Option<&TrackedAuth>) {
        let Some(records) = self.records.take() else {
            return;
        };
        let credentials = ImagePullCredentials::of(used);
        let (image, id, now) = (self.image.clone(), id.to_owned(), self.clock.now());
        let recorded = blocking(move || records.succeed(&image, &id, credentials, now));
        if let Err(error) = recorded.await {
            tracing::warn!(%error, image = self.image, "image pulled record not written");
        }
    }
}

impl Drop for PullIntent {
    fn drop(&mut self) {
        // without a runtime the process ends, and its counts with it
        if let Some(records) = self.records.take()
            && let Ok(handle) = Handle::try_current()
        {
            let image = std::mem::take(&mut self.image);
            // the count is behind the lock that disk accesses hold
            handle.spawn_blocking(move || records.abandon(&image));
        }
    }
}

#[cfg(test)]
mod tests;
