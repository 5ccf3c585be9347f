//! Release of the resources of pods that have ended.

use std::sync::Arc;

use windlass_mailboxes::spawn_io;
use windlass_types::{ObservedPod, PodUid};

use crate::actor::{Completion, ContainerManager};
use crate::allocation::{End, end_of};

impl ContainerManager {
    /// Frees what pods have.
    pub(crate) fn release(&mut self, uids: &[PodUid]) {
        let mut had = false;
        for uid in uids {
            had |= self.deps.managers.release(uid);
        }
        if had {
            self.changed();
            self.update_all_cpus();
        }
    }

    /// Releases the resources of those pods of which no container can run, and returns these pods.
    /// A pod without a worker and without an observation waits for the first relist: in a previous
    /// agent run it may have started containers, which run while the runtime does not respond.
    pub(crate) fn release_ended(&mut self, uids: impl IntoIterator<Item = PodUid>) -> Vec<PodUid> {
        let mut ended = Vec::new();
        for uid in uids {
            match self.end_of(&uid, self.deps.pleg.cache.get(&uid)) {
                End::Open => {}
                End::Ended => ended.push(uid),
                End::Unknown => self.observe_end(uid),
            }
        }
        self.release(&ended);
        ended
    }

    fn end_of(&self, uid: &PodUid, observed: Option<Arc<ObservedPod>>) -> End {
        let published = self.deps.status_store.get(uid).filter(|it| it.has_worker);
        let is_starting = self.starting.contains(uid);
        end_of(published.as_ref(), is_starting, observed.as_deref())
    }

    /// Waits for the first relist, which has no deadline; one task for each pod.
    fn observe_end(&mut self, uid: PodUid) {
        if !self.ending.insert(uid.clone()) {
            return;
        }
        let pleg = self.deps.pleg.clone();
        let completions = self.completions.clone();
        spawn_io("observe-ended-pod", async move {
            let observed = pleg.observed(&uid).await.ok();
            completions.send(Completion::EndObserved(uid, observed));
        });
    }

    /// Releases the resources of a pod of which the runtime has nothing that can run. Of another one,
    /// or after an error, the end or housekeeping releases them.
    pub(crate) fn end_observed(&mut self, uid: &PodUid, observed: Option<Arc<ObservedPod>>) {
        self.ending.remove(uid);
        if self.end_of(uid, observed) == End::Ended {
            self.release(std::slice::from_ref(uid));
        }
    }
}
