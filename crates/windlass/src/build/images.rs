//! Image garbage collection: thresholds of the configuration, the disk of this host.

use std::sync::Arc;

use windlass_config::{Config, KubeletConfiguration};
use windlass_image_gc::{HostImageFileSystem, ImageGcPolicy};

use super::RuntimeClients;
use crate::wiring::ImageGcParts;

/// Builds the parts of image garbage collection.
pub(super) fn image_gc_parts(config: &Config, clients: &RuntimeClients) -> ImageGcParts {
    ImageGcParts {
        policy: policy(&config.kubelet),
        file_system: Arc::new(HostImageFileSystem::new(
            Arc::clone(&clients.images) as _,
            Arc::clone(&clients.runtime) as _,
        )),
    }
}

fn policy(kubelet: &KubeletConfiguration) -> ImageGcPolicy {
    // validation keeps both within 0 and 100
    let percent = |value: i32| u64::try_from(value).unwrap_or(0);
    ImageGcPolicy {
        high_threshold_percent: percent(kubelet.image_gc_high_threshold_percent),
        low_threshold_percent: percent(kubelet.image_gc_low_threshold_percent),
        min_age: kubelet.image_minimum_gc_age.to_std(),
        max_age: kubelet.image_maximum_gc_age.to_std(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_policy_is_that_of_upstream() {
        let default = policy(&KubeletConfiguration::default());
        assert_eq!(default, ImageGcPolicy::default());
    }
}
