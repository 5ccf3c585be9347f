//! The part of the cache that is kept on the disk, and the inputs of a pod from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use windlass_actors::ObjectsChanged;
use windlass_pod_inputs::pod_references::TokenSpec;
use windlass_types::{Pod, PodExt, PodUid};
use windlass_volume_plan::volume_source::Lookup;

use super::{ObjectCache, Registered, bundles, services};
use crate::kept::KeptObjects;
use crate::kept::table::{Table, TokenRecord, WantedObjects};
use crate::lookup::all;
use crate::shared_reflectors::ItemKey;

impl ObjectCache {
    /// Returns the objects of the registered pods: as they were read in this agent run, else as they
    /// were kept.
    pub(crate) fn table_to_keep(&self, kept: &KeptObjects) -> Table {
        let (wanted, namespaces) = self.wanted();
        kept.next(self.read_objects(&wanted, &namespaces), wanted)
    }

    /// Records that the API server has delivered the pod.
    pub(super) fn record_contact(&self, pod: &Pod) {
        let is_delivered = !pod.is_restored() && !pod.is_static();
        let Some(kept) = self.kept.as_ref().filter(|_| is_delivered) else {
            return;
        };
        for uid in kept.reached() {
            self.changed.put(uid, ObjectsChanged);
        }
    }

    /// Returns the wanted objects, and the namespaces with service variables.
    fn wanted(&self) -> (WantedObjects, Vec<String>) {
        let mut wanted = WantedObjects::default();
        let mut namespaces = Vec::new();
        let pods = self.pods.lock();
        for (uid, registered) in pods.iter().filter(|(_, pod)| !pod.is_static) {
            let Registered {
                namespace,
                references,
                inline_csi,
                ..
            } = registered;
            wanted.add(uid, namespace, references);
            for (driver, secret) in inline_csi {
                wanted.drivers.insert(driver.clone());
                wanted.secrets.extend(secret.clone());
            }
            namespaces.push(namespace.clone());
        }
        drop(pods);
        (wanted, namespaces)
    }

    /// Returns the wanted objects that this agent run has read.
    fn read_objects(&self, wanted: &WantedObjects, namespaces: &[String]) -> Table {
        let config_maps = wanted.config_maps.iter();
        let secrets = wanted.secrets.iter();
        let handlers = self.runtime_classes.subscribe(&all());
        let handler = |name: &String| {
            let known = handlers.as_ref()?.borrow();
            let key = (String::new(), name.clone());
            let handler = known.items.get(&key).map(|handler| handler.0.clone());
            known.synced.then(|| (name.clone(), handler))
        };
        let trust_bundles = wanted.trust_bundles.iter().filter_map(|named| {
            let known = self.trust_bundles.subscribe(&bundles(named))?;
            let known = known.borrow();
            let found = known.items.values().cloned().collect();
            known.synced.then(|| (named.clone(), found))
        });
        let pvcs = wanted.pvcs.iter().filter_map(|key| {
            let state = self.claims.known(key)?;
            let is_read = !matches!(state.pvc, Lookup::Unread(_));
            let is_read = is_read && !matches!(state.volume, Lookup::Unread(_));
            is_read.then(|| (key.clone(), state))
        });
        Table {
            pods: wanted.pods.clone(),
            config_maps: config_maps
                .filter_map(|key| Some((key.clone(), self.config_maps.known(key)?)))
                .collect(),
            secrets: secrets
                .filter_map(|key| Some((key.clone(), self.secrets.known(key)?)))
                .collect(),
            services: self.services.subscribe(&services()).and_then(|known| {
                let known = known.borrow();
                let used = known.items.iter().filter(|((namespace, name), _)| {
                    let master = namespace == "default" && name == "kubernetes";
                    master || namespaces.contains(namespace)
                });
                let used = used.map(|(_, service)| Arc::clone(service)).collect();
                known.synced.then_some(used)
            }),
            runtime_classes: wanted.runtime_classes.iter().filter_map(handler).collect(),
            trust_bundles: trust_bundles.collect(),
            pvcs: pvcs.collect(),
            drivers: BTreeMap::new(),
            tokens: self.tokens_to_keep(),
        }
    }

    fn tokens_to_keep(&self) -> BTreeMap<(PodUid, TokenSpec), TokenRecord> {
        let tokens = self.tokens.all().into_iter();
        tokens
            .map(|(key, token, expires_at)| (key, TokenRecord::new(token, expires_at)))
            .collect()
    }
}

/// Returns the drivers and Secrets of the inline CSI volumes of a pod.
pub(super) fn inline_csi(pod: &Pod) -> Vec<(String, Option<ItemKey>)> {
    let volumes = PodExt::spec(pod).volumes.iter().flatten();
    let inline = volumes.filter_map(|volume| volume.csi.as_ref());
    let inline = inline.map(|csi| {
        let secret = csi.node_publish_secret_ref.as_ref();
        let secret = secret.map(|it| (pod.namespace().to_owned(), it.name.clone()));
        (csi.driver.clone(), secret)
    });
    inline.collect()
}
