//! Cache of set up volumes, which answers an unchanged request without the VolumeManager.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use windlass_types::{PodExt, PodUid, ReadyVolumes, SharedPod};
use windlass_volume_plan::volume_source::{PodVolume, PodVolumes, VolumeSource};

/// Ready volumes by pod. The VolumeManager writes it, [`crate::VolumesHandle`] reads it. Clones
/// share the cache.
#[derive(Clone, Debug, Default)]
pub struct MountedVolumeCache(Arc<Mutex<HashMap<PodUid, Entry>>>);

#[derive(Debug)]
struct Entry {
    pod: SharedPod,
    volumes: Arc<PodVolumes>,
    ready: ReadyVolumes,
}

impl MountedVolumeCache {
    /// Records the ready volumes of a pod. CSI volumes (which may republish), PVCs (which may
    /// expand) and volumes with an older payload are not cached.
    pub fn put(&self, pod: &SharedPod, volumes: &Arc<PodVolumes>, ready: &ReadyVolumes) {
        let again = |volume: &PodVolume| {
            volume.pvc.is_some() || matches!(volume.source, VolumeSource::Csi(_))
        };
        if !ready.kept.is_empty() || volumes.iter().any(again) {
            return;
        }
        let entry = Entry {
            pod: SharedPod::clone(pod),
            volumes: Arc::clone(volumes),
            ready: ready.clone(),
        };
        self.0.lock().insert(pod.uid(), entry);
    }

    /// Removes a pod, because its volumes change.
    pub fn forget(&self, uid: &PodUid) {
        self.0.lock().remove(uid);
    }

    /// Returns the volumes of a pod if the request is unchanged.
    pub fn get(&self, pod: &SharedPod, volumes: &Arc<PodVolumes>) -> Option<ReadyVolumes> {
        let table = self.0.lock();
        let entry = table.get(&pod.uid())?;
        let same = Arc::ptr_eq(&entry.pod, pod) && entry.volumes == *volumes;
        same.then(|| entry.ready.clone())
    }
}

#[cfg(test)]
mod tests {
    use windlass_types::Pod;
    use windlass_types::corev1::EmptyDirVolumeSource;
    use windlass_volume_plan::volume_source::BoundPvc;

    use super::*;

    fn pod() -> SharedPod {
        let mut pod = Pod::default();
        pod.metadata.uid = Some("u".to_owned());
        Arc::new(pod)
    }

    fn volumes(name: &str) -> Arc<PodVolumes> {
        Arc::new(vec![PodVolume {
            name: name.to_owned(),
            source: VolumeSource::EmptyDir(EmptyDirVolumeSource::default()),
            read_only: false,
            mount_options: Vec::new(),
            pvc: None,
        }])
    }

    #[test]
    fn only_unchanged_request_hits_cache() {
        let table = MountedVolumeCache::default();
        let (pod_a, ready) = (pod(), ReadyVolumes::default());
        table.put(&pod_a, &volumes("a"), &ready);
        assert_eq!(table.get(&pod_a, &volumes("a")), Some(ready));
        assert_eq!(table.get(&pod_a, &volumes("b")), None);
        // an edited pod is another object
        assert_eq!(table.get(&pod(), &volumes("a")), None);
        table.forget(&pod_a.uid());
        assert_eq!(table.get(&pod_a, &volumes("a")), None);
    }

    #[test]
    fn pvc_and_stale_volumes_are_not_cached() {
        let table = MountedVolumeCache::default();
        let pod_a = pod();
        let old = ReadyVolumes {
            kept: vec!["not found".to_owned()],
            ..ReadyVolumes::default()
        };
        table.put(&pod_a, &volumes("a"), &old);
        assert_eq!(table.get(&pod_a, &volumes("a")), None);
        let mut claimed = volumes("a");
        Arc::make_mut(&mut claimed)[0].pvc = Some(BoundPvc {
            name: "c".to_owned(),
            volume: "v".to_owned(),
            exclusive: false,
            group: None,
        });
        table.put(&pod_a, &claimed, &ReadyVolumes::default());
        assert_eq!(table.get(&pod_a, &claimed), None);
    }
}
