//! The records of image pulls, read and written around each pull.
//!
//! *owns* the open records · *invariant* no pull starts without its intent on the disk · *bound* a
//! caller waits for the disk until [`DEADLINE`] at most · *restart* the first access reconciles the
//! intents of the previous run with the images on the node.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::OnceCell;
use tokio::time::timeout;
use windlass_credentials::credentials::{Keyring, TrackedAuth};
use windlass_credentials::image_access::{
    ImageAccess, ImagePullCredentials, PullHistory, image_access,
};
use windlass_cri::port::ImageService;
use windlass_manifests::image_name::ImageName;
use windlass_metrics::Metrics;
use windlass_store::{PullFiles, PullRecords, StoreError};
use windlass_types::{Clock, Pod, Timestamp};

use crate::options::{ImageAccessOptions, PodRuntimeDeps};
use windlass_runtime_config::port::ImageCredentials;

/// Max time that a hung disk delays a pod.
const DEADLINE: Duration = Duration::from_secs(10);
/// Interval between removals of stale records (upstream's image garbage collection).
const PRUNE_PERIOD: Duration = Duration::from_secs(5 * 60);

/// An access to the records failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordsError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("disk access timed out")]
    Timeout,
}

/// The credentials that plugins have for an image and a pod, requested when they are first needed.
///
/// One request serves the check of a present image and its pull: a plugin may forbid that its
/// response is cached.
#[derive(Debug)]
pub(crate) struct PluginCredentials<'a> {
    plugins: Option<&'a dyn ImageCredentials>,
    pod: &'a Pod,
    pub(crate) image: &'a ImageName,
    keyring: OnceCell<Keyring>,
}

impl<'a> PluginCredentials<'a> {
    pub(crate) fn new(
        plugins: Option<&'a dyn ImageCredentials>,
        pod: &'a Pod,
        image: &'a ImageName,
    ) -> Self {
        Self {
            plugins,
            pod,
            image,
            keyring: OnceCell::new(),
        }
    }

    pub(crate) async fn keyring(&self) -> &Keyring {
        let request = || async {
            match self.plugins {
                Some(plugins) => plugins.keyring(self.image, self.pod).await,
                None => Keyring::default(),
            }
        };
        self.keyring.get_or_init(request).await
    }
}

/// Records of image pulls; without options nothing is recorded or verified.
#[derive(Debug)]
pub(crate) struct ImageRecords {
    options: Option<ImageAccessOptions>,
    records: OnceCell<Arc<OpenRecords>>,
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

    /// Returns true if a pod with this keyring may use an image that is on the node.
    pub(crate) async fn allows(
        &self,
        image: &str,
        id: &str,
        keyring: &Keyring,
        plugins: &PluginCredentials<'_>,
    ) -> bool {
        let Some(options) = &self.options else {
            return true;
        };
        let name = plugins.image;
        let history = match self.history(image, id).await {
            Ok(history) => history,
            Err(error) => {
                tracing::warn!(%error, image, "image pulled record not read");
                PullHistory::Unreadable
            }
        };
        let mut credentials = keyring.lookup_tracked(image);
        let mut access = image_access(&options.policy, name, &history, &credentials);
        // other credentials of plugins are the node's, which verify nothing
        if access == ImageAccess::MustAuthenticate && history.has_service_accounts(name) {
            let of_plugins = plugins.keyring().await;
            credentials.extend(of_plugins.lookup_tracked(image));
            access = image_access(&options.policy, name, &history, &credentials);
        }
        self.metrics.starts.count_image_check(&access.to_string());
        if let ImageAccess::Recorded { add: Some(secret) } = &access {
            let credentials = ImagePullCredentials::secret(secret.clone());
            let (image, id, now) = (image.to_owned(), id.to_owned(), self.clock.now());
            let added = self
                .on_disk(move |records| {
                    records.change(|store| store.add(&image, &id, credentials, now))
                })
                .await;
            if let Err(error) = added {
                tracing::warn!(%error, "image pulled record not written");
            }
        }
        access.is_allowed()
    }

    /// Records the intent of a pull.
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
        // created on the thread that counts it: it is dropped there if the caller has given up
        blocking(move || {
            records.change(|store| store.begin(&intent.image))?;
            intent.records = Some(records);
            Ok(intent)
        })
        .await
    }

    /// Removes records of images that are no longer on the node, at most every five minutes.
    pub(crate) async fn prune(&self) {
        let now = self.clock.now();
        if self.options.is_none() || !self.is_prune_due(now) {
            return;
        }
        let images = match self.images.list_images().await {
            Ok(images) => images,
            Err(error) => {
                tracing::warn!(%error, "listing images failed, image pulled records kept");
                return;
            }
        };
        let pruned = self.on_disk(move |records| records.change(|store| store.prune(&images, now)));
        if let Err(error) = pruned.await {
            tracing::warn!(%error, "stale image pulled records not removed");
        }
    }

    fn is_prune_due(&self, now: Timestamp) -> bool {
        let mut pruned = self.pruned.lock();
        let due = pruned.is_none_or(|last| now >= windlass_types::later(last, PRUNE_PERIOD));
        if due {
            *pruned = Some(now);
        }
        due
    }

    async fn history(&self, image: &str, id: &str) -> Result<PullHistory, RecordsError> {
        let (image, id) = (image.to_owned(), id.to_owned());
        self.on_disk(move |records| records.store.history(&image, &id))
            .await
    }

    async fn on_disk<T: Send + 'static>(
        &self,
        access: impl FnOnce(&OpenRecords) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, RecordsError> {
        let records = self.opened().await?;
        blocking(move || access(&records)).await
    }

    async fn opened(&self) -> Result<Arc<OpenRecords>, RecordsError> {
        let open = || async {
            let root_dir = self.options.as_ref().map(|o| o.root_dir.clone());
            let metrics = self.metrics.clone();
            let records = blocking(move || {
                let store = PullRecords::open(&root_dir.unwrap_or_default())?;
                let records = OpenRecords { store, metrics };
                let files = records.show_count()?;
                Ok((Arc::new(records), files))
            });
            let (records, files) = records.await?;
            if files.intents > 0 {
                self.reconcile(&records).await?;
            }
            Ok(records)
        };
        self.records.get_or_try_init(open).await.cloned()
    }

    /// Without a list the intents stay, and pods that use their images must verify.
    async fn reconcile(&self, records: &Arc<OpenRecords>) -> Result<(), RecordsError> {
        match self.images.list_images().await {
            Ok(images) => {
                let (records, now) = (Arc::clone(records), self.clock.now());
                let reconcile = move || records.change(|store| store.reconcile(&images, now));
                blocking(reconcile).await
            }
            Err(error) => {
                tracing::warn!(%error, "listing images failed, image pull intents kept");
                Ok(())
            }
        }
    }
}

/// The records on the disk, and the metrics of their number.
#[derive(Debug)]
struct OpenRecords {
    store: PullRecords,
    metrics: Metrics,
}

impl OpenRecords {
    /// Changes files and updates the metrics. Blocks on the disk.
    fn change(
        &self,
        change: impl FnOnce(&PullRecords) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let changed = change(&self.store);
        if let Err(error) = self.show_count() {
            tracing::debug!(%error, "image pull records not counted");
        }
        changed
    }

    fn show_count(&self) -> Result<PullFiles, StoreError> {
        let files = self.store.count()?;
        let starts = &self.metrics.starts;
        starts.set_pull_files(files.intents, files.records);
        Ok(files)
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

/// A running pull. If it is dropped without a result, the intent stays on the disk.
#[derive(Debug)]
pub(crate) struct PullIntent {
    image: String,
    clock: Arc<dyn Clock>,
    records: Option<Arc<OpenRecords>>,
}

impl PullIntent {
    /// Records that the pull failed.
    pub(crate) async fn fail(mut self) {
        let Some(records) = self.records.take() else {
            return;
        };
        let image = self.image.clone();
        if let Err(error) = blocking(move || records.change(|store| store.fail(&image))).await {
            tracing::warn!(%error, image = self.image, "image pull intent not removed");
        }
    }

    /// Records that the pull succeeded with these credentials; `None` was anonymous.
    pub(crate) async fn succeed(mut self, id: &str, used: Option<&TrackedAuth>) {
        let Some(records) = self.records.take() else {
            return;
        };
        let credentials = ImagePullCredentials::for_pull(used);
        let (image, id, now) = (self.image.clone(), id.to_owned(), self.clock.now());
        let recorded =
            blocking(move || records.change(|store| store.succeed(&image, &id, credentials, now)));
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
            // waits for the lock that other disk accesses hold
            handle.spawn_blocking(move || {
                if let Err(error) = records.change(|store| store.abandon(&image)) {
                    tracing::debug!(%error, image, "image pull not abandoned");
                }
            });
        }
    }
}

#[cfg(test)]
mod tests;
