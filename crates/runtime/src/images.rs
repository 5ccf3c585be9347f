//! Pulls the image of a container unless it is present (upstream `EnsureImageExists`).

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use windlass_credentials::credentials::{Keyring, TrackedAuth};
use windlass_cri::{CriError, ImageErrorCause};
use windlass_manifests::image_name::{
    ImageName, ImageNameError, PullDecision, PullPolicy, should_pull,
};
use windlass_pod_lifecycle::backoff::{BackoffPolicy, BackoffTable, pull_key};
use windlass_types::corev1::Container;
use windlass_types::cri::{ImageInfo, SandboxConfig};
use windlass_types::view::EventType;
use windlass_types::{ImageHold, Pod, PodExt, PodUid, Reason, Retry};
use windlass_units::duration::go_duration;

use crate::PodRuntime;
use crate::image_access::{PluginCredentials, RecordsError};
use crate::request::StartFailure;

/// An image that is on the node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PresentImage {
    /// Reference to run: an ID or digest.
    pub(crate) image_ref: String,
    /// Image info from the runtime.
    pub(crate) info: ImageInfo,
}

/// An image to check or pull.
#[derive(Clone, Copy)]
pub(crate) struct WantedImage<'a> {
    /// The pod.
    pub(crate) pod: &'a Pod,
    /// The container.
    pub(crate) container: &'a Container,
    /// The image, as the pod names it: its own, or one that it mounts.
    pub(crate) image: &'a str,
    /// Pull policy.
    pub(crate) policy: PullPolicy,
    /// Credentials that the pod may use.
    pub(crate) keyring: &'a Keyring,
    /// The sandbox, for runtimes that choose a snapshotter by it.
    pub(crate) sandbox_config: &'a SandboxConfig,
}

/// Images checked in this sync: containers of one pod often share one.
#[derive(Debug, Default)]
pub(crate) struct SyncImages {
    present: BTreeMap<String, PresentImage>,
    /// Keep the images from being removed before their containers exist.
    holds: Vec<ImageHold>,
    /// Total duration of its pulls.
    pub(crate) pulling: Duration,
}

/// True for the reasons of a failed pull, before its back-off.
pub(crate) fn is_failed_pull(reason: Reason) -> bool {
    let failed = [
        Reason::ErrImagePull,
        Reason::RegistryUnavailable,
        Reason::SignatureValidationFailed,
    ];
    failed.contains(&reason)
}

/// Removes duplicate credentials; keeps the first Secret of each.
fn distinct(tracked: Vec<TrackedAuth>) -> Vec<TrackedAuth> {
    let mut found: Vec<TrackedAuth> = Vec::new();
    for candidate in tracked {
        if !found.iter().any(|known| known.auth == candidate.auth) {
            found.push(candidate);
        }
    }
    found
}

/// Error of the last failed pull of an image, for the message of `ImagePullBackOff`. Not restored
/// after an agent restart.
#[derive(Debug, Default)]
pub(crate) struct PullErrors(Mutex<BTreeMap<PodUid, BTreeMap<String, String>>>);

impl PullErrors {
    fn set(&self, uid: &PodUid, image: &str, text: Option<String>) {
        let mut all = self.0.lock();
        match text {
            Some(text) => {
                let of_pod = all.entry(uid.clone()).or_default();
                of_pod.insert(image.to_owned(), text);
            }
            None => {
                if let Some(of_pod) = all.get_mut(uid) {
                    of_pod.remove(image);
                }
            }
        }
    }

    fn get(&self, uid: &PodUid, image: &str) -> Option<String> {
        let all = self.0.lock();
        all.get(uid)?.get(image).cloned()
    }

    pub(crate) fn forget(&self, uid: &PodUid) {
        let mut all = self.0.lock();
        all.remove(uid);
    }
}

impl PodRuntime {
    /// Checks the image and pulls it if its policy requires that.
    pub(crate) async fn ensure_image(
        &self,
        wanted: WantedImage<'_>,
        backoff: &mut BackoffTable,
        images: &mut SyncImages,
    ) -> Result<PresentImage, StartFailure> {
        let step = ImageStep {
            runtime: self,
            wanted,
        };
        let name = ImageName::parse(wanted.image).map_err(|error| step.invalid_name(&error))?;
        // no runtime call for a second container, unless its policy is Always
        if let Some(present) = images.present.get(wanted.image)
            && should_pull(wanted.policy, true) == PullDecision::UsePresent
        {
            step.present();
            return Ok(present.clone());
        }
        images.holds.push(self.image_holds().hold(&name.reference));
        let present = step.ensure(&name, backoff, &mut images.pulling).await?;
        let (id, image_ref) = (&present.info.id, &present.image_ref);
        images.holds.push(self.image_holds().hold(id));
        images.holds.push(self.image_holds().hold(image_ref));
        images
            .present
            .insert(wanted.image.to_owned(), present.clone());
        Ok(present)
    }
}

struct ImageStep<'a> {
    runtime: &'a PodRuntime,
    wanted: WantedImage<'a>,
}

impl ImageStep<'_> {
    async fn ensure(
        &self,
        name: &ImageName,
        backoff: &mut BackoffTable,
        pulling: &mut Duration,
    ) -> Result<PresentImage, StartFailure> {
        let (deps, policy) = (self.runtime.deps(), self.wanted.policy);
        let credentials = deps.credentials.as_deref();
        let plugins = PluginCredentials::new(credentials, self.wanted.pod, name);
        let found = deps
            .images
            .image_status(&name.reference)
            .await
            .map_err(|error| self.inspect_failed(&error))?;
        match (should_pull(policy, found.is_some()), found) {
            (PullDecision::UsePresent, Some(info)) if self.may_use(&info, &plugins).await => {
                self.present();
                Ok(PresentImage {
                    image_ref: info.id.clone(),
                    info,
                })
            }
            // as if absent: this pod may not know that it is present
            (PullDecision::UsePresent, _) if policy == PullPolicy::Never => Err(self.never_pull()),
            (PullDecision::ErrImageNeverPull, _) => Err(self.never_pull()),
            (PullDecision::Pull | PullDecision::UsePresent, _) => {
                let begun = Instant::now();
                let pulled = self.pull(&plugins, backoff).await;
                *pulling += begun.elapsed();
                pulled
            }
        }
    }

    /// True if the pod has access to an image that is on the node.
    async fn may_use(&self, info: &ImageInfo, plugins: &PluginCredentials<'_>) -> bool {
        let WantedImage { image, keyring, .. } = self.wanted;
        let records = self.runtime.image_records();
        records.allows(image, &info.id, keyring, plugins).await
    }

    async fn pull(
        &self,
        plugins: &PluginCredentials<'_>,
        backoff: &mut BackoffTable,
    ) -> Result<PresentImage, StartFailure> {
        let deps = self.runtime.deps();
        let uid = self.wanted.pod.uid();
        let key = pull_key(&uid, self.wanted.image);
        let now = deps.clock.now();
        let policy = deps.options.pull_backoff;
        if let Some(end) = backoff
            .last_failure(&key)
            .and_then(|last| backoff.until(&key, last, policy, now))
        {
            return Err(self.backing_off(end));
        }
        self.event(
            EventType::Normal,
            Reason::Pulling,
            &format!("Pulling image {:?}", self.wanted.image),
        );
        let begun = Instant::now();
        let of_plugins = plugins.keyring().await;
        let keyring = self.wanted.keyring.clone().then(of_plugins);
        let tracked = keyring.lookup_tracked(self.wanted.image);
        let tracked = distinct(tracked);
        let credentials: Vec<_> = tracked.iter().map(|t| t.auth.clone()).collect();
        let intent = match self.runtime.image_records().begin(self.wanted.image).await {
            Ok(intent) => intent,
            Err(error) => return Err(self.not_recorded(&error)),
        };
        match self
            .runtime
            .puller()
            .pull(
                &plugins.image.reference,
                &credentials,
                self.wanted.sandbox_config,
            )
            .await
        {
            Err(error) => {
                intent.fail().await;
                Err(self.pull_failed(&error, &key, policy, backoff))
            }
            Ok((pulled, used)) => {
                self.runtime
                    .pull_errors()
                    .set(&uid, self.wanted.image, None);
                let status = deps.images.image_status(&pulled.image_ref).await;
                let used = used.and_then(|used| tracked.get(used));
                // the ID that later image checks return
                let found = status.as_ref().ok().and_then(Option::as_ref);
                let id = found.map_or(&pulled.image_ref, |info| &info.id);
                intent.succeed(id, used).await;
                let info = status
                    .map_err(|error| self.inspect_failed(&error))?
                    .unwrap_or_default();
                let waited = begun.elapsed();
                let starts = &deps.metrics.starts;
                starts.observe_pull(info.size, waited.as_secs_f64());
                self.event(
                    EventType::Normal,
                    Reason::Pulled,
                    &format!(
                        "Successfully pulled image {:?} in {} ({} including waiting). Image size: {} bytes.",
                        self.wanted.image,
                        go_duration(pulled.pulling),
                        go_duration(waited),
                        info.size
                    ),
                );
                Ok(PresentImage {
                    image_ref: pulled.image_ref,
                    info,
                })
            }
        }
    }

    fn present(&self) {
        let message = format!(
            "Container image {:?} already present on machine and can be accessed by the pod",
            self.wanted.image
        );
        self.event(EventType::Normal, Reason::Pulled, &message);
    }

    fn pull_failed(
        &self,
        error: &CriError,
        key: &str,
        policy: BackoffPolicy,
        backoff: &mut BackoffTable,
    ) -> StartFailure {
        let image = self.wanted.image;
        self.event(
            EventType::Warning,
            Reason::Failed,
            &format!("Failed to pull image {image:?}: {}", error.go_text()),
        );
        let (reason, message) = match error.image_error_cause() {
            Some((ImageErrorCause::RegistryUnavailable, rest)) => (
                Reason::RegistryUnavailable,
                format!("image pull failed for {image} because the registry is unavailable{rest}"),
            ),
            Some((ImageErrorCause::SignatureValidationFailed, rest)) => (
                Reason::SignatureValidationFailed,
                format!(
                    "image pull failed for {image} because the signature validation failed{rest}"
                ),
            ),
            None => (Reason::ErrImagePull, error.go_text()),
        };
        let now = self.runtime.deps().clock.now();
        let delay = backoff.next(key, policy, now);
        let stored = format!("{reason}: {message}");
        self.runtime
            .pull_errors()
            .set(&self.wanted.pod.uid(), image, Some(stored));
        StartFailure {
            retry_at: now.saturating_add(delay).ok(),
            ..self.failure(reason, message, Retry::Later)
        }
    }

    fn backing_off(&self, end: windlass_types::Timestamp) -> StartFailure {
        let last = self
            .runtime
            .pull_errors()
            .get(&self.wanted.pod.uid(), self.wanted.image)
            .map_or(String::new(), |text| format!(": {text}"));
        // upstream's event is without the cause, so that repetitions are one series
        let text = format!("Back-off pulling image {:?}", self.wanted.image);
        self.event(EventType::Normal, Reason::BackOff, &text);
        let message = text + &last;
        StartFailure {
            retry_at: Some(end),
            ..self.failure(Reason::ImagePullBackOff, message, Retry::Later)
        }
    }

    fn not_recorded(&self, error: &RecordsError) -> StartFailure {
        let message = format!(
            "Failed to record image pull intent for container image {:?}: {error}",
            self.wanted.image
        );
        self.failure(Reason::ErrImagePull, message, Retry::Later)
    }

    fn never_pull(&self) -> StartFailure {
        let message = format!(
            "Container image {:?} is not present with pull policy of Never",
            self.wanted.image
        );
        self.event(EventType::Warning, Reason::ErrImageNeverPull, &message);
        self.failure(Reason::ErrImageNeverPull, message, Retry::Later)
    }

    fn invalid_name(&self, why: &ImageNameError) -> StartFailure {
        let message = format!(
            "Failed to apply default image tag {:?}: {why}",
            self.wanted.image
        );
        self.event(EventType::Warning, Reason::InspectFailed, &message);
        self.failure(Reason::InvalidImageName, message, Retry::Never)
    }

    fn inspect_failed(&self, error: &CriError) -> StartFailure {
        let message = format!(
            "Failed to inspect image {:?}: {}",
            self.wanted.image, error.message
        );
        self.event(EventType::Warning, Reason::InspectFailed, &message);
        self.failure(Reason::ImageInspectError, message, error.retry())
    }

    fn failure(&self, reason: Reason, message: String, retry: Retry) -> StartFailure {
        // upstream records this second, shorter event for every failed image step
        self.event(
            EventType::Warning,
            Reason::Failed,
            &format!("Error: {reason}"),
        );
        StartFailure::for_container(&self.wanted.container.name, reason, message, retry)
    }

    fn event(&self, event_type: EventType, reason: Reason, message: &str) {
        self.runtime.deps().events.record(
            self.wanted.pod,
            Some(&self.wanted.container.name),
            event_type,
            reason,
            message,
        );
    }
}
