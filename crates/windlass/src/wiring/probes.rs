//! The probe managers.

use std::sync::Arc;

use windlass_actors::{ProbeResults, ProbeUpdate, ProbesHandle};
use windlass_checks::Checks;
use windlass_mailboxes::{SlotReceiver, slots, start_actor};
use windlass_probes::{ProbeDeps, ProbeManager, actor_kind};
use windlass_store::{ProbeResultFile, ProbeResultTables};
use windlass_types::{PodUid, ProbeKind};

use super::links::Shared;

/// Dependencies of the probe managers.
pub(super) struct ProbeWiring<'a> {
    pub(super) checks: Arc<dyn Checks>,
    pub(super) file: Option<ProbeResultFile>,
    pub(super) restored: ProbeResultTables,
    pub(super) shared: &'a Shared,
}

/// Starts the managers; returns their handle and the updates for the sync loop.
pub(super) fn spawn_probes(
    wiring: &ProbeWiring<'_>,
) -> (ProbesHandle, SlotReceiver<PodUid, ProbeUpdate>) {
    let shared = wiring.shared;
    let metrics = &shared.metrics;
    let results = ProbeResults::new(wiring.restored.clone());
    let (updates, update_slots) = slots(windlass_sync_loop::SYNC_LOOP, &metrics.mailboxes);
    let managers = ProbeKind::ALL.map(|kind| {
        let (manager, pods) = slots(actor_kind(kind), &metrics.mailboxes);
        let deps = ProbeDeps {
            runtime: Arc::clone(&shared.runtime),
            checks: Arc::clone(&wiring.checks),
            events: Arc::clone(&shared.events),
            clock: Arc::clone(&shared.clock),
            metrics: metrics.clone(),
            results: results.clone(),
            file: wiring.file.clone(),
            updates: updates.clone(),
            hung: shared.hung_operations.clone(),
        };
        start_actor(ProbeManager::new(kind, deps, pods));
        manager
    });
    (ProbesHandle { managers, results }, update_slots)
}
