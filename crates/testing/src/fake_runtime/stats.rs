//! Statistics of the runtime.

use async_trait::async_trait;
use windlass_cri::{CriResult, ImageFsInfo, RuntimeFs, RuntimeStats};
use windlass_types::{ContainerId, PodUid};

use super::FakeRuntime;
use super::operation::Operation;

/// Directory of images and writable layers.
const IMAGE_DIR: &str = "/var/lib/fake-runtime";

impl FakeRuntime {
    /// Sets the bytes of the writable layers of a container, of every instance.
    pub fn set_layer(&self, uid: &PodUid, container: &str, bytes: u64) {
        let key = (uid.clone(), container.to_owned());
        self.driver
            .change(|state| state.model.layers.insert(key, bytes));
    }
}

#[async_trait]
impl RuntimeStats for FakeRuntime {
    async fn image_fs_info(&self) -> CriResult<ImageFsInfo> {
        self.driver
            .call(Operation::ImageFsInfo, String::new(), |_, _| {
                let images = Some(RuntimeFs {
                    mountpoint: IMAGE_DIR.to_owned(),
                    ..RuntimeFs::default()
                });
                Ok(ImageFsInfo {
                    images,
                    containers: None,
                })
            })
            .await
    }

    async fn writable_layers(&self) -> CriResult<Vec<(ContainerId, RuntimeFs)>> {
        self.driver
            .call(Operation::ListContainerStats, String::new(), |model, _| {
                let layers = model.containers.iter().map(|(id, container)| {
                    let name = container.config.name.clone();
                    let bytes = model.layers.get(&(container.uid.clone(), name));
                    let layer = RuntimeFs {
                        mountpoint: IMAGE_DIR.to_owned(),
                        used_bytes: Some(bytes.copied().unwrap_or_default()),
                        inodes_used: Some(1),
                    };
                    (id.clone(), layer)
                });
                Ok(layers.collect())
            })
            .await
    }
}
