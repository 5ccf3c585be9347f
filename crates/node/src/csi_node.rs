//! Keeps the CSINode object of this node up to date.
//!
//! The object is created as soon as the Node exists and has an entry for each registered driver;
//! see `windlass_node_rules::csi_node`. One task updates one driver after the other and retries
//! until the API server accepts. A rejection affects only its driver, and only the driver's
//! registration waits. A recreated Node gets all entries again. As upstream, drivers of a previous
//! agent run stay until they unregister.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::sync::watch;
use windlass_actors::NodeUpdate;
use windlass_client::{ApiClient, ApiError, ApiErrorKind, Delete, ObjectKey, Patch};
use windlass_csi::{Announcement, Announcements, CsiDrivers, NodeInfo, RegisteredDriver};
use windlass_node_rules::csi_node::{
    CsiNodePlan, NodeDriver, NodeOwner, node_with_driver, node_without_drivers, plan_csi_node,
};
use windlass_node_rules::node_object::node_patch;
use windlass_types::corev1::Node;
use windlass_types::storagev1::CSINode;

use crate::jitter::retry_backoff;

/// Attempts for one change; the back-off grows by a factor of 5 (upstream `updateBackoff`).
const MAX_ATTEMPTS: u32 = 4;
const INITIAL_BACKOFF: Duration = Duration::from_millis(10);

/// Dependencies of [`run_csi_node_sync`].
#[derive(Clone, Debug)]
pub struct CsiNodeDeps {
    /// Name of the node.
    pub node_name: String,
    /// A client of the API server.
    pub client: ApiClient,
    /// The node object.
    pub node: watch::Receiver<NodeUpdate>,
    /// Registered drivers.
    pub drivers: CsiDrivers,
    /// Publishes the drivers that CSINode contains.
    pub announcements: Announcements,
    /// Whether CSINode exists.
    pub status: watch::Sender<CsiNodeStatus>,
}

/// State of the CSINode object; the node is not ready without it (upstream storage errors).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CsiNodeStatus {
    /// Not checked yet.
    #[default]
    Unknown,
    /// The object exists.
    Initialized,
    /// The object could not be created: cause.
    Failed(String),
}

impl CsiNodeStatus {
    /// Message of the Ready condition, as upstream.
    pub fn error(&self) -> Option<String> {
        match self {
            Self::Unknown => Some("CSINode is not yet initialized".to_owned()),
            Self::Initialized => None,
            Self::Failed(error) => Some(format!("failed to initialize CSINode: {error}")),
        }
    }
}

/// What the API server accepted.
#[derive(Debug, Default)]
struct ReportedDrivers {
    /// UID of the Node.
    uid: String,
    drivers: BTreeMap<String, Announcement>,
    /// Drivers that were registered during this agent run and unregistered.
    left: BTreeSet<String>,
    initialized: bool,
}

/// Why an update failed.
#[derive(Debug)]
enum Failure {
    /// Transient; retried.
    Later(String),
    Final(String),
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        match error.kind {
            ApiErrorKind::Invalid => Self::Final(error.to_string()),
            _ => Self::Later(error.to_string()),
        }
    }
}

/// Runs until the sender of the node object is dropped.
pub async fn run_csi_node_sync(mut deps: CsiNodeDeps) {
    let mut drivers = deps.drivers.subscribe();
    let mut reported = ReportedDrivers::default();
    let mut failures = 0;
    loop {
        let registered = drivers.borrow_and_update().clone();
        let node = deps.node.borrow_and_update().0.clone();
        reported.compare(node.as_deref(), &registered);
        deps.announcements.publish(reported.drivers.clone());
        let outcome = match reported.uid.is_empty() {
            true => Ok(()),
            false => report(&deps, &mut reported, &registered).await,
        };
        let backoff = match outcome {
            Ok(()) => {
                failures = 0;
                None
            }
            Err(error) => {
                failures += 1;
                match failures {
                    1 => tracing::warn!(error, further_at_debug = true, "CSINode"),
                    _ => tracing::debug!(error, failures, "CSINode"),
                }
                Some(retry_backoff(failures))
            }
        };
        tokio::select! {
            biased;
            changed = deps.node.changed() => if changed.is_err() {
                return;
            },
            // `drivers` lives as long as `deps`
            _ = drivers.changed() => {}
            () = tokio::time::sleep(backoff.unwrap_or_default()), if backoff.is_some() => {}
        }
    }
}

impl ReportedDrivers {
    /// Drops state that no longer applies.
    fn compare(&mut self, node: Option<&Node>, registered: &BTreeMap<String, RegisteredDriver>) {
        let uid = node.and_then(|node| node.metadata.uid.as_deref());
        // a deleted node may be recreated with another UID
        let uid = uid.unwrap_or_default();
        if self.uid != uid {
            *self = Self {
                uid: uid.to_owned(),
                left: std::mem::take(&mut self.left),
                ..Self::default()
            };
        }
        let gone = self
            .drivers
            .keys()
            .filter(|name| !registered.contains_key(*name));
        self.left.extend(gone.cloned());
        self.left.retain(|name| !registered.contains_key(name));
        self.drivers.retain(|name, known| {
            let registered = registered.get(name);
            registered.is_some_and(|driver| driver.info == known.info)
        });
    }
}

/// Sends the changes; records each one when it is accepted.
async fn report(
    deps: &CsiNodeDeps,
    reported: &mut ReportedDrivers,
    registered: &BTreeMap<String, RegisteredDriver>,
) -> Result<(), String> {
    if !reported.initialized {
        let none = BTreeSet::new();
        let done = retry_transient(|| change_csi_node(deps, &reported.uid, None, &none)).await;
        reported.initialized = done.is_ok();
        let status = match &done {
            Ok(()) => CsiNodeStatus::Initialized,
            Err(Failure::Later(error) | Failure::Final(error)) => {
                CsiNodeStatus::Failed(error.clone())
            }
        };
        deps.status.send_replace(status);
        done.map_err(|it| it.text("initialize CSINode"))?;
    }
    if !reported.left.is_empty() {
        let done = retry_transient(|| remove(deps, reported)).await;
        done.map_err(|it| it.text("error uninstalling CSI drivers"))?;
        tracing::info!(drivers = ?reported.left, "CSI drivers removed from CSINode");
        reported.left.clear();
    }
    let mut pending = None;
    for (name, driver) in registered {
        if reported.drivers.contains_key(name) {
            continue;
        }
        let installed = node_driver(name, &driver.info);
        let outcome = match retry_transient(|| install(deps, &reported.uid, &installed)).await {
            Ok(()) => Ok(()),
            Err(Failure::Final(error)) => Err(error),
            // continue with the other drivers
            Err(Failure::Later(error)) => {
                pending = Some(format!("{name}: {error}"));
                continue;
            }
        };
        tracing::info!(driver = name, ?outcome, "CSINode updated");
        let info = driver.info.clone();
        let announcement = Announcement { info, outcome };
        reported.drivers.insert(name.clone(), announcement);
        deps.announcements.publish(reported.drivers.clone());
    }
    pending.map_or(Ok(()), Err)
}

impl Failure {
    fn text(self, what: &str) -> String {
        match self {
            Self::Later(error) | Self::Final(error) => format!("{what}: {error}"),
        }
    }
}

fn node_driver(name: &str, info: &NodeInfo) -> NodeDriver {
    NodeDriver {
        name: name.to_owned(),
        node_id: info.node_id.clone(),
        max_volumes: info.max_volumes,
        topology: info.topology.clone(),
    }
}

/// Retries transient errors such as conflicts.
async fn retry_transient<F>(mut change: impl FnMut() -> F) -> Result<(), Failure>
where
    F: Future<Output = Result<(), Failure>>,
{
    let mut backoff = INITIAL_BACKOFF;
    let mut attempts = 1;
    loop {
        match change().await {
            Err(Failure::Later(_)) if attempts < MAX_ATTEMPTS => {}
            outcome => return outcome,
        }
        tokio::time::sleep(backoff).await;
        backoff *= 5;
        attempts += 1;
    }
}

/// Updates the Node before CSINode, as upstream: a reader of the entry finds the labels.
async fn install(deps: &CsiNodeDeps, uid: &str, driver: &NodeDriver) -> Result<(), Failure> {
    let context = "error updating Node object with CSI driver node info";
    let change = |node: &Node| node_with_driver(node, driver);
    let done = change_node(deps, change).await;
    done.map_err(|failure| failure.with_context(context))?;
    let context = "error updating CSINode object with CSI driver node info";
    let done = change_csi_node(deps, uid, Some(driver), &BTreeSet::new()).await;
    done.map_err(|failure| failure.with_context(context))
}

async fn remove(deps: &CsiNodeDeps, reported: &ReportedDrivers) -> Result<(), Failure> {
    change_csi_node(deps, &reported.uid, None, &reported.left).await?;
    change_node(deps, |node| node_without_drivers(node, &reported.left)).await
}

impl Failure {
    fn with_context(self, context: &str) -> Self {
        match self {
            Self::Later(error) => Self::Later(format!("{context}: {error}")),
            Self::Final(error) => Self::Final(format!("{context}: {error}")),
        }
    }
}

async fn change_node(
    deps: &CsiNodeDeps,
    change: impl FnOnce(&Node) -> Result<Node, String>,
) -> Result<(), Failure> {
    let at = ObjectKey::cluster(&deps.node_name);
    let node: Node = deps.client.get(at).await?;
    let changed = change(&node).map_err(Failure::Final)?;
    if let Some(patch) = node_patch(&node, &changed) {
        // through the status subresource, which a node may patch, as upstream
        let patch = Patch::StrategicMerge(patch);
        deps.client
            .patch::<Node>(at, Some("status"), &patch)
            .await?;
    }
    Ok(())
}

async fn change_csi_node(
    deps: &CsiNodeDeps,
    uid: &str,
    installed: Option<&NodeDriver>,
    left: &BTreeSet<String>,
) -> Result<(), Failure> {
    let at = ObjectKey::cluster(&deps.node_name);
    let owner = NodeOwner {
        name: &deps.node_name,
        uid,
    };
    let seen = match deps.client.get::<CSINode>(at).await {
        Ok(seen) => Some(seen),
        Err(error) if error.kind == ApiErrorKind::NotFound => None,
        Err(error) => return Err(error.into()),
    };
    let plan = plan_csi_node(seen.as_ref(), owner, installed, left);
    tracing::debug!(%plan, "CSINode");
    match plan {
        CsiNodePlan::Keep => {}
        CsiNodePlan::Create(object) => {
            deps.client.create(None, &*object).await?;
        }
        CsiNodePlan::Update(object) => {
            deps.client.update(at, None, &*object).await?;
        }
        CsiNodePlan::Delete { uid } => {
            let delete = Delete {
                uid,
                ..Delete::default()
            };
            deps.client.delete::<CSINode>(at, &delete).await?;
            let message = "it was owned by a different node and is recreated";
            return Err(Failure::Later(message.to_owned()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
