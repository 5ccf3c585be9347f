//! Prepares a container's mounts before its creation: binds subPaths, pulls mounted images, and
//! checks the runtime's features if a mount needs them.

use windlass_runtime_config::config_error::ConfigError;
use windlass_runtime_config::container_config::{SubPath, wants_recursive_read_only};
use windlass_runtime_config::image_volumes::{MountedImages, check_runtime, wanted_images};
use windlass_types::PodExt;
use windlass_types::corev1::Container;
use windlass_types::cri::{ContainerConfig, MountedImage};
use windlass_volumes::SubPathError;

use crate::files::FilesError;
use crate::images::WantedImage;
use crate::request::StartFailure;
use crate::sync::{Sandbox, SyncPass};

impl SyncPass<'_> {
    /// Pulls the images that a container mounts, by volume name, with the same rules as for its own
    /// image.
    pub(crate) async fn ensure_image_volumes(
        &mut self,
        sandbox: &Sandbox,
        container: &Container,
    ) -> Result<MountedImages, StartFailure> {
        let mut images = MountedImages::new();
        let (runtime, pod, volumes) =
            (self.runtime, self.req.pod.clone(), self.req.volumes.clone());
        let wanted = wanted_images(container, &volumes);
        if wanted.is_empty() {
            return Ok(images);
        }
        let version = runtime.deps().runtime.version().await;
        let version = version.map_err(|error| {
            self.config_failure(container, error.message.clone(), error.retry())
        })?;
        for wanted in wanted {
            check_runtime(&version, wanted).map_err(|error| {
                self.config_failure(container, error.to_string(), error.retry())
            })?;
            let image = WantedImage {
                pod: &pod,
                container,
                image: wanted.reference,
                policy: wanted.policy,
                keyring: &self.req.inputs.keyring,
                sandbox_config: &sandbox.config,
            };
            let present = runtime
                .ensure_image(image, &mut self.req.backoff, &mut self.images)
                .await?;
            let mounted = MountedImage {
                image: present.image_ref,
                user_specified_image: wanted.reference.to_owned(),
                runtime_handler: runtime.handler(&self.req.inputs).to_owned(),
                annotations: pod.metadata.annotations.clone().unwrap_or_default(),
                sub_path: String::new(),
            };
            images.insert(wanted.volume.to_owned(), mounted);
        }
        Ok(images)
    }

    /// Whether the pod's handler supports recursive read-only mounts. The runtime status is read
    /// only for containers that need it.
    pub(crate) async fn recursive_read_only(
        &self,
        container: &Container,
    ) -> Result<bool, StartFailure> {
        if !wants_recursive_read_only(container) {
            return Ok(false);
        }
        let status = self.runtime.deps().runtime.status().await;
        let status = status.map_err(|error| {
            self.config_failure(container, error.message.clone(), error.retry())
        })?;
        let handler = self.runtime.handler(&self.req.inputs);
        let handler = status.handlers.iter().find(|known| known.name == handler);
        Ok(handler.is_some_and(|handler| handler.recursive_read_only_mounts))
    }

    /// Binds a subPath. The cause of a failure is only logged, because it may reveal files of the
    /// node.
    pub(crate) async fn prepare_sub_path(
        &self,
        container: &Container,
        part: &SubPath,
    ) -> Result<(), StartFailure> {
        let uid = self.pod().uid();
        let prepared = self.runtime.deps().files.prepare_sub_path(&uid, part).await;
        let Err(error) = prepared else {
            return Ok(());
        };
        let pod = self.pod().full_name();
        tracing::warn!(%pod, container = container.name, %part, %error, "subPath not prepared");
        let (volume, container_name) = (part.volume.clone(), container.name.clone());
        let told = match &error {
            FilesError::SubPath(SubPathError::Make { .. }) => ConfigError::SubPathNotMade {
                volume,
                container: container_name,
            },
            _ => ConfigError::SubPathNotPrepared {
                volume,
                container: container_name,
            },
        };
        let message = match &error {
            // that a volume hangs may be shown
            FilesError::IoQueue(late) => format!("{told}: {late}"),
            _ => told.to_string(),
        };
        Err(self.config_failure(container, message, error.retry()))
    }

    /// Counts the images of a container that was created with its mounts, or was not.
    pub(crate) fn count_image_volumes(&self, config: &ContainerConfig, created: bool) {
        let images = config.mounts.iter().filter(|m| m.image.is_some()).count() as f64;
        let metrics = &self.runtime.deps().metrics;
        metrics.containers.image_volumes_requested.inc_by(images);
        match created {
            true => metrics.containers.image_volumes_mounted.inc_by(images),
            false => metrics.containers.image_volumes_failed.inc_by(images),
        }
    }
}
