//! Prepares and unprepares the claims of pods (upstream's DRA `Manager`).
//!
//! *owns* the claims of the node and the health of their devices · *invariant* a claim is in the
//! checkpoint before a driver is called for it, and until all drivers have unprepared it; calls for
//! one claim never overlap · *bound* the claims of the node's pods · *restart* claims come from the
//! checkpoint; pods that ended meanwhile are released once all sources are ready.
//!
//! Differences from upstream: the devices of a repeated call replace the earlier ones; a pod that
//! never got a claim does not unprepare it for others; pods are retried when their driver registers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;
use windlass_actors::ObjectsChanged;
use windlass_client::{ApiClient, ObjectKey};
use windlass_hung_operations::{HungOperations, Operation, OperationKind};
use windlass_mailboxes::SlotSender;
use windlass_metrics::Metrics;
use windlass_node_proto::podresources_v1::DynamicResource;
use windlass_pacing::SharedByKey;
use windlass_plugin_proto::drahealth_v1alpha1::DeviceHealth;
use windlass_pod_resources::ClaimSource;
use windlass_runtime_config::port::{ClaimsError, ContainerClaims, PodClaims};
use windlass_store::Store;
use windlass_types::corev1::{Container, PodStatus};
use windlass_types::resourcev1::ResourceClaim;
use windlass_types::{Pod, PodExt, PodUid, Retry, SharedPod};

use crate::checkpoint;
use crate::claim_info::{Batches, ClaimInfo, ClaimKey, ClaimTable};
use crate::drivers::DraDrivers;
use crate::health::{DeviceKey, HealthTable};
use crate::pod_claims::{
    ClaimOwners, PodClaim, cdi_devices, check_claim, container_claims, pod_claims,
    resource_statuses,
};
use crate::port::{ClaimRef, ClaimResult};

/// A call of a driver that takes longer is listed as hung.
const HANG_THRESHOLD: Duration = Duration::from_secs(4);

/// Dependencies of [`DraClaims`].
#[derive(Debug)]
pub struct DraDeps {
    /// Plugins of drivers.
    pub drivers: DraDrivers,
    /// Reads ResourceClaims; `None` in standalone mode, where no claim can be prepared.
    pub client: Option<ApiClient>,
    /// The directory of upstream's checkpoint, `--root-dir`; `None` in simulations without a disk.
    pub store: Option<Store>,
    /// Requeues pods: a driver registered, or the health of a device changed.
    pub changed: SlotSender<PodUid, ObjectsChanged>,
    /// Gate `DRAExtendedResource`.
    pub extended: bool,
    /// Whose claims a pod may use.
    pub owners: ClaimOwners,
    /// Gate `ResourceHealthStatus`.
    pub health: bool,
    /// Gate `ResourceHealthStatusMessage`.
    pub health_messages: bool,
    /// Metrics.
    pub metrics: Metrics,
    /// Lists calls of drivers that hang.
    pub hung: HungOperations,
}

/// Claims of the pods of this node.
#[derive(Debug)]
pub struct DraClaims {
    deps: DraDeps,
    state: Mutex<State>,
    /// Locks of claims for which a driver may be called.
    locks: SharedByKey<ClaimKey, tokio::sync::Mutex<()>>,
    /// Serializes writes of the checkpoint.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    table: ClaimTable,
    health: HealthTable,
    /// Pods that wait for a driver.
    waiting: BTreeSet<PodUid>,
    /// The checkpoint lacks a change.
    unsaved: bool,
}

impl DraClaims {
    /// Reads the checkpoint. Blocks on the disk.
    pub fn new(deps: DraDeps) -> Self {
        let loaded = deps
            .store
            .as_ref()
            .map(|store| store.load_foreign(checkpoint::FILE_NAME, checkpoint::decode));
        let table = match loaded {
            Some(Ok(table)) => table.unwrap_or_default(),
            Some(Err(error)) => {
                tracing::error!(%error, "checkpoint of resource claims not read");
                ClaimTable::default()
            }
            None => ClaimTable::default(),
        };
        let mut state = State {
            table,
            ..State::default()
        };
        state.health.messages = deps.health_messages;
        publish(&deps.metrics, &state.table);
        Self {
            deps,
            state: Mutex::new(state),
            locks: SharedByKey::default(),
            writing: tokio::sync::Mutex::default(),
        }
    }

    /// Requeues the pods that wait for a driver whenever the drivers change; runs until the agent
    /// stops.
    pub async fn run_retries(self: Arc<Self>) {
        let mut changes = self.deps.drivers.subscribe();
        while changes.changed().await.is_ok() {
            let waiting = std::mem::take(&mut self.state.lock().waiting);
            for uid in waiting {
                self.deps.changed.put(uid, ObjectsChanged);
            }
        }
    }

    /// UIDs of the pods that use claims.
    pub fn pods(&self) -> BTreeSet<PodUid> {
        let state = self.state.lock();
        let pods = state.table.claims().flat_map(|claim| &claim.pods);
        pods.map(|uid| PodUid::from(uid.as_str())).collect()
    }

    pub(crate) fn drivers(&self) -> &DraDrivers {
        &self.deps.drivers
    }

    pub(crate) fn metrics(&self) -> Metrics {
        self.deps.metrics.clone()
    }

    pub(crate) fn follows_health(&self) -> bool {
        self.deps.health
    }

    /// Takes in a health report; returns when a report expires next.
    pub(crate) fn reported(&self, driver: &str, list: Vec<DeviceHealth>) -> Option<Instant> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let mut changed = state.health.update(driver, list, now);
        let (old, next) = state.health.expire(driver, now);
        changed.extend(old);
        self.requeue_users(&state, driver, &changed);
        next
    }

    /// Forgets the health of a driver's devices, unless another of its plugins is connected.
    pub(crate) fn clear_unusable(&self, driver: &str) {
        if self.deps.drivers.usable().get(driver) != Some(&true) {
            self.clear_health(driver);
        }
    }

    /// Forgets the health of a driver's devices.
    pub(crate) fn clear_health(&self, driver: &str) {
        let mut state = self.state.lock();
        let cleared = state.health.clear(driver);
        self.requeue_users(&state, driver, &cleared);
    }

    fn requeue_users(&self, state: &State, driver: &str, devices: &[DeviceKey]) {
        let users = devices.iter();
        let users = users.flat_map(|(pool, device)| state.table.users(driver, pool, device));
        for uid in users.collect::<BTreeSet<_>>() {
            self.deps.changed.put(PodUid::from(uid), ObjectsChanged);
        }
    }

    /// Locks claims, in the order of their keys. A hung driver delays only pods with its claims.
    async fn lock(&self, keys: &BTreeSet<ClaimKey>) -> Vec<OwnedMutexGuard<()>> {
        let mut guards = Vec::new();
        for key in keys {
            let lock = self.locks.get_or_insert_with(key.clone(), Default::default);
            guards.push(lock.lock_owned().await);
        }
        guards
    }

    /// Changes the claims and writes the checkpoint.
    async fn change<T>(&self, change: impl FnOnce(&mut ClaimTable) -> T) -> Result<T, String> {
        let result = {
            let mut state = self.state.lock();
            let result = change(&mut state.table);
            state.unsaved = true;
            publish(&self.deps.metrics, &state.table);
            result
        };
        self.save().await?;
        Ok(result)
    }

    async fn save(&self) -> Result<(), String> {
        let Some(store) = &self.deps.store else {
            self.state.lock().unsaved = false;
            return Ok(());
        };
        let _writing = self.writing.lock().await;
        let text = {
            let mut state = self.state.lock();
            // another write may have included the change
            if !std::mem::take(&mut state.unsaved) {
                return Ok(());
            }
            checkpoint::encode(&state.table)
        };
        let store = store.clone();
        let saved = tokio::task::spawn_blocking(move || {
            let text = text.map_err(|error| error.to_string())?;
            let saved = store.save_foreign(checkpoint::FILE_NAME, text.as_bytes());
            saved.map_err(|error| error.to_string())
        });
        let saved = saved.await.map_err(|error| error.to_string());
        let saved = saved.and_then(|saved| saved);
        saved.map_err(|error| {
            self.state.lock().unsaved = true;
            format!("checkpoint ResourceClaim state: {error}")
        })
    }

    /// Reads and checks the claims of a pod.
    async fn read_claims(&self, pod: &Pod, of: &[PodClaim]) -> Result<Vec<ClaimInfo>, String> {
        let Some(client) = &self.deps.client else {
            return Err(
                "resource claims require an API server; the agent runs standalone".to_owned(),
            );
        };
        let mut claims = Vec::new();
        for claim in of {
            let at = ObjectKey::namespaced(pod.namespace(), &claim.name);
            let object = client.get::<ResourceClaim>(at).await;
            let object = object.map_err(|error| {
                format!("fetch ResourceClaim {}: {}", claim.name, error.message)
            })?;
            check_claim(pod, self.deps.owners, claim, &object)?;
            claims.push(ClaimInfo::new(&object)?);
        }
        Ok(claims)
    }

    async fn prepare_claims(&self, pod: &Pod, of: &[PodClaim]) -> Result<(), String> {
        let claims = self.read_claims(pod, of).await?;
        let mut drivers = BTreeMap::new();
        for name in claims.iter().flat_map(|claim| claim.drivers.keys()) {
            drivers.insert(name.clone(), self.deps.drivers.get(name)?);
        }
        let keys: BTreeSet<_> = claims.iter().map(ClaimInfo::key).collect();
        let _locked = self.lock(&keys).await;
        let uid = pod.uid();
        let batches = self
            .change(|table| table.add(uid.as_str(), claims))
            .await??;
        for (name, batch) in batches {
            let Some(driver) = drivers.get(&name) else {
                // a restored claim that was allocated again
                return Err(format!("DRA driver {name} is not registered"));
            };
            let call = driver.prepare(&batch);
            let results = self.track(&uid, "NodePrepareResources", &name, call).await;
            let results = results.map_err(|error| format!("NodePrepareResources: {error}"))?;
            let devices = checked("NodePrepareResources", &batch, results)?;
            let table = &mut self.state.lock().table;
            for (claim, devices) in devices {
                table.set_devices(&claim, &name, devices);
            }
        }
        let keys: Vec<_> = keys.into_iter().collect();
        self.change(|table| table.set_prepared(&keys)).await
    }

    async fn unprepare_claims(&self, uid: &PodUid, keys: Vec<ClaimKey>) -> Result<(), String> {
        let _locked = self.lock(&keys.iter().cloned().collect()).await;
        let batches: Batches = {
            let mut state = self.state.lock();
            state.unsaved = true;
            state.table.release(uid.as_str(), &keys)
        };
        for (name, batch) in batches {
            let driver = self.deps.drivers.get(&name)?;
            let call = driver.unprepare(&batch);
            let results = self.track(uid, "NodeUnprepareResources", &name, call).await;
            let results = results.map_err(|error| format!("NodeUnprepareResources: {error}"))?;
            checked("NodeUnprepareResources", &batch, results)?;
        }
        self.change(|table| table.remove(uid.as_str(), &keys)).await
    }

    /// Waits for a call of a driver; lists it while it hangs.
    async fn track<T>(
        &self,
        uid: &PodUid,
        method: &str,
        driver: &str,
        call: impl Future<Output = Result<T, String>>,
    ) -> Result<T, String> {
        let operation = || {
            let name = format!("{method} of DRA driver {driver}");
            Operation::of_pod(OperationKind::DraDriver, uid, name)
        };
        let hung = &self.deps.hung;
        hung.track(HANG_THRESHOLD, operation, Result::is_ok, call)
            .await
    }

    /// The claims of a pod; `None` if it has none.
    fn claims_of(&self, pod: &Pod) -> Option<Result<Vec<PodClaim>, String>> {
        let claims = pod_claims(pod, self.deps.extended);
        let has_none = claims.as_ref().is_ok_and(Vec::is_empty);
        (!has_none).then_some(claims)
    }

    /// Records the metric of an operation, and which pods wait for a driver.
    fn ended(
        &self,
        operation: &str,
        uid: &PodUid,
        begin: Instant,
        result: Result<(), String>,
    ) -> Result<(), String> {
        let seconds = begin.elapsed().as_secs_f64();
        let metrics = &self.deps.metrics.dra;
        metrics.observe_operation(operation, result.is_err(), seconds);
        let waiting = &mut self.state.lock().waiting;
        match &result {
            Ok(()) => waiting.remove(uid),
            Err(_) => waiting.insert(uid.clone()),
        };
        result
    }
}

/// Results in the order of the claims.
///
/// # Errors
/// The driver's response is incomplete, has a foreign claim, or an error of a claim.
fn checked<T>(
    method: &str,
    batch: &[ClaimRef],
    mut results: BTreeMap<String, ClaimResult<T>>,
) -> Result<Vec<(ClaimRef, T)>, String> {
    let foreign = |uid: &&String| batch.iter().all(|claim| claim.uid != **uid);
    if let Some(uid) = results.keys().find(foreign) {
        return Err(format!(
            "{method} returned result for unknown claim UID {uid}"
        ));
    }
    let skipped = batch.len().saturating_sub(results.len());
    let mut values = Vec::new();
    for claim in batch {
        match results.remove(&claim.uid) {
            Some(Ok(value)) => values.push((claim.clone(), value)),
            Some(Err(error)) => {
                let name = &claim.name;
                return Err(format!("{method} failed for ResourceClaim {name}: {error}"));
            }
            None => {}
        }
    }
    match skipped {
        0 => Ok(values),
        skipped => Err(format!("{method} skipped {skipped} ResourceClaims")),
    }
}

fn publish(metrics: &Metrics, table: &ClaimTable) {
    let (all, by_driver) = table.in_use();
    metrics.dra.set_claims_in_use(all, &by_driver);
}

#[async_trait]
impl PodClaims for DraClaims {
    async fn prepare(&self, pod: &SharedPod, creates_sandbox: bool) -> Result<(), ClaimsError> {
        let Some(claims) = self.claims_of(pod) else {
            return Ok(());
        };
        let uid = pod.uid();
        if let Ok(claims) = &claims
            && !creates_sandbox
        {
            let state = self.state.lock();
            let known = |claim: &PodClaim| {
                let known = state.table.get(pod.namespace(), &claim.name);
                known.is_some_and(|it| it.pods.contains(uid.as_str()))
            };
            if claims.iter().all(known) {
                return Ok(());
            }
        }
        let begin = Instant::now();
        let prepared = match claims {
            Ok(claims) => self.prepare_claims(pod, &claims).await,
            Err(error) => Err(error),
        };
        let prepared = self.ended("PrepareResources", &uid, begin, prepared);
        prepared.map_err(|error| ClaimsError {
            message: format!("prepare dynamic resources: {error}"),
            retry: Retry::Later,
        })
    }

    fn devices(&self, pod: &Pod) -> ContainerClaims {
        let Some(claims) = self.claims_of(pod) else {
            return ContainerClaims::default();
        };
        let state = self.state.lock();
        let containers = pod.init_containers().iter().chain(pod.containers());
        let devices = |container: &Container| {
            let claims = claims.as_ref().map_err(String::clone)?;
            cdi_devices(&state.table, pod, claims, container)
        };
        containers
            .map(|it| (it.name.clone(), devices(it)))
            .collect()
    }

    async fn unprepare(&self, uid: &PodUid) -> Result<(), ClaimsError> {
        let keys = {
            let mut state = self.state.lock();
            let keys = state.table.used_by(uid.as_str());
            if keys.is_empty() && !state.unsaved {
                state.waiting.remove(uid);
                return Ok(());
            }
            keys
        };
        let begin = Instant::now();
        let unprepared = self.unprepare_claims(uid, keys).await;
        let unprepared = self.ended("UnprepareResources", uid, begin, unprepared);
        unprepared.map_err(|error| ClaimsError {
            message: format!("unprepare dynamic resources: {error}"),
            retry: Retry::Later,
        })
    }

    fn add_health(&self, pod: &Pod, status: &mut PodStatus) {
        let Some(Ok(claims)) = self.claims_of(pod).filter(|_| self.deps.health) else {
            return;
        };
        let state = self.state.lock();
        for of in status.container_statuses.iter_mut().flatten() {
            let container = pod.containers().iter().find(|it| it.name == of.name);
            let Some(container) = container else { continue };
            let sources = (&state.table, &state.health);
            let health = resource_statuses(sources, pod, &claims, container);
            if !health.is_empty() {
                of.allocated_resources_status
                    .get_or_insert_default()
                    .extend(health);
            }
        }
    }
}

impl ClaimSource for DraClaims {
    fn claims(&self, pod: &Pod, container: &Container) -> Vec<DynamicResource> {
        let Some(Ok(claims)) = self.claims_of(pod) else {
            return Vec::new();
        };
        container_claims(&self.state.lock().table, pod, &claims, container)
    }
}
