//! What pods have been given of their volumes, for who asks for exactly that again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_volume_plan::volume_source::{PodVolume, PodVolumes, VolumeSource};
use windlass_types::{PodExt, PodUid, ReadyVolumes, SharedPod};

/// Written by the VolumeManager, read by who asks it. Clones share it. A pod that is looked at again
/// and again, and of whose volumes nothing changed, wakes nobody.
#[derive(Clone, Debug, Default)]
pub struct MountedVolumeCache(Arc<Mutex<HashMap<PodUid, Settled>>>);

#[derive(Debug)]
struct Settled {
    pod: SharedPod,
    volumes: Arc<PodVolumes>,
    ready: ReadyVolumes,
}

impl MountedVolumeCache {
    /// The pod has these volumes, and nothing is due of them. Left out is what has to be asked for each
    /// time: volumes of drivers, which may want to publish again, of claims, which may grow, and what
    /// shows something old.
    pub fn put(&self, pod: &SharedPod, volumes: &Arc<PodVolumes>, ready: &ReadyVolumes) {
        let again = |volume: &PodVolume| {
            volume.claim.is_some() || matches!(volume.source, VolumeSource::Csi(_))
        };
        if !ready.kept.is_empty() || volumes.iter().any(again) {
            return;
        }
        let settled = Settled {
            pod: SharedPod::clone(pod),
            volumes: Arc::clone(volumes),
            ready: ready.clone(),
        };
        self.lock().insert(pod.uid(), settled);
    }

    /// Something is asked for the pod, or taken from it.
    pub fn forget(&self, uid: &PodUid) {
        self.lock().remove(uid);
    }

    /// What this pod has, if that is what it asks for.
    pub fn get(&self, pod: &SharedPod, volumes: &Arc<PodVolumes>) -> Option<ReadyVolumes> {
        let table = self.lock();
        let settled = table.get(&pod.uid())?;
        let same = Arc::ptr_eq(&settled.pod, pod) && settled.volumes == *volumes;
        same.then(|| settled.ready.clone())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PodUid, Settled>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use windlass_volume_plan::volume_source::BoundClaim;
    use windlass_types::Pod;
    use windlass_types::corev1::EmptyDirVolumeSource;

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
            claim: None,
        }])
    }

    #[test]
    fn only_the_same_pod_that_asks_for_the_same_volumes_is_answered() {
        let table = MountedVolumeCache::default();
        let (asked, ready) = (pod(), ReadyVolumes::default());
        table.put(&asked, &volumes("a"), &ready);
        assert_eq!(table.get(&asked, &volumes("a")), Some(ready));
        assert_eq!(table.get(&asked, &volumes("b")), None);
        // it was edited
        assert_eq!(table.get(&pod(), &volumes("a")), None);
        table.forget(&asked.uid());
        assert_eq!(table.get(&asked, &volumes("a")), None);
    }

    #[test]
    fn what_has_to_be_asked_for_each_time_is_not_remembered() {
        let table = MountedVolumeCache::default();
        let asked = pod();
        let old = ReadyVolumes {
            kept: vec!["not found".to_owned()],
            ..ReadyVolumes::default()
        };
        table.put(&asked, &volumes("a"), &old);
        assert_eq!(table.get(&asked, &volumes("a")), None);
        let mut claimed = volumes("a");
        Arc::make_mut(&mut claimed)[0].claim = Some(BoundClaim {
            name: "c".to_owned(),
            volume: "v".to_owned(),
            exclusive: false,
            group: None,
        });
        table.put(&asked, &claimed, &ReadyVolumes::default());
        assert_eq!(table.get(&asked, &claimed), None);
    }
}
