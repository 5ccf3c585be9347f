//! Tells the cluster which CSI drivers this node has.
//!
//! The CSINode object is made as soon as the Node is there, so that schedulers and controllers know
//! what this node leaves to CSI, and gets an entry for each driver that is registered; see
//! `core::csi_node`. One task does it, one driver after the other, and tries until the API server
//! has it: nobody but the driver's registration waits for that. What the API server refuses for
//! good is that driver's affair alone. A Node that was made anew gets all of it anew. Drivers that
//! an earlier life of the agent knew stay until they are seen to leave, as with upstream.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::sync::watch;
use windlass_actors::NodeSeen;
use windlass_client::{ApiClient, ApiError, ApiErrorKind, At, Delete, Patch};
use windlass_node_rules::csi_node::{
    CsiNodePlan, NodeDriver, NodeOwner, node_with_driver, node_without_drivers, plan_csi_node,
};
use windlass_node_rules::node_object::node_patch;
use windlass_csi::{Announcement, Announcements, CsiDrivers, NodeInfo, RegisteredDriver};
use windlass_types::corev1::Node;
use windlass_types::storagev1::CSINode;

use crate::jitter::retry_pause;

/// Tries of one change, the pause multiplied by 5 (upstream's `updateBackoff`).
const TRIES: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// What [`keep_csi_node`] works with.
#[derive(Clone, Debug)]
pub struct CsiNodeDeps {
    /// Name of the node.
    pub node_name: String,
    /// A client of the API server.
    pub client: ApiClient,
    /// The node object.
    pub node: watch::Receiver<NodeSeen>,
    /// Who is registered.
    pub drivers: CsiDrivers,
    /// Where it is said what the cluster knows.
    pub announcements: Announcements,
    /// Whether the CSINode is there.
    pub standing: watch::Sender<CsiNodeStanding>,
}

/// How the CSINode object is; the node is not ready without it (upstream's storage errors).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CsiNodeStanding {
    /// Nobody has looked yet.
    #[default]
    Unknown,
    /// It is there.
    Initialized,
    /// It could not be made: why.
    Failed(String),
}

impl CsiNodeStanding {
    /// Why the node is not ready, in upstream's words.
    pub fn error(&self) -> Option<String> {
        match self {
            Self::Unknown => Some("CSINode is not yet initialized".to_owned()),
            Self::Initialized => None,
            Self::Failed(error) => Some(format!("failed to initialize CSINode: {error}")),
        }
    }
}

/// What the cluster was told.
#[derive(Debug, Default)]
struct Told {
    /// UID of the Node it was told of.
    uid: String,
    drivers: BTreeMap<String, Announcement>,
    /// Drivers that were registered in this life and left.
    left: BTreeSet<String>,
    initialized: bool,
}

/// Why something was not told.
#[derive(Debug)]
enum Failure {
    /// Later it may succeed.
    Later(String),
    /// It will not.
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

/// Keeps the cluster informed for as long as the agent knows of its node.
pub async fn keep_csi_node(mut deps: CsiNodeDeps) {
    let mut drivers = deps.drivers.subscribe();
    let mut told = Told::default();
    let mut failures = 0;
    loop {
        let registered = drivers.borrow_and_update().clone();
        let node = deps.node.borrow_and_update().0.clone();
        told.compare(node.as_deref(), &registered);
        deps.announcements.publish(told.drivers.clone());
        let outcome = match told.uid.is_empty() {
            true => Ok(()),
            false => tell(&deps, &mut told, &registered).await,
        };
        let pause = match outcome {
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
                Some(retry_pause(failures))
            }
        };
        tokio::select! {
            biased;
            changed = deps.node.changed() => if changed.is_err() {
                return;
            },
            // the drivers live as long as this
            _ = drivers.changed() => {}
            () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {}
        }
    }
}

impl Told {
    /// Forgets what does not hold any more.
    fn compare(&mut self, node: Option<&Node>, registered: &BTreeMap<String, RegisteredDriver>) {
        let uid = node.and_then(|node| node.metadata.uid.as_deref());
        // a node that is gone may come back as another one
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

/// Tells what is to be told; what is done is noted at once.
async fn tell(
    deps: &CsiNodeDeps,
    told: &mut Told,
    registered: &BTreeMap<String, RegisteredDriver>,
) -> Result<(), String> {
    if !told.initialized {
        let nobody = BTreeSet::new();
        let done = tried(|| change_csi_node(deps, &told.uid, None, &nobody)).await;
        told.initialized = done.is_ok();
        let standing = match &done {
            Ok(()) => CsiNodeStanding::Initialized,
            Err(Failure::Later(error) | Failure::Final(error)) => {
                CsiNodeStanding::Failed(error.clone())
            }
        };
        deps.standing.send_replace(standing);
        done.map_err(|it| it.text("initialize CSINode"))?;
    }
    if !told.left.is_empty() {
        let done = tried(|| remove(deps, told)).await;
        done.map_err(|it| it.text("error uninstalling CSI drivers"))?;
        tracing::info!(drivers = ?told.left, "the cluster knows that CSI drivers left");
        told.left.clear();
    }
    let mut waits = None;
    for (name, driver) in registered {
        if told.drivers.contains_key(name) {
            continue;
        }
        let installed = node_driver(name, &driver.info);
        let outcome = match tried(|| install(deps, &told.uid, &installed)).await {
            Ok(()) => Ok(()),
            Err(Failure::Final(error)) => Err(error),
            // another driver may be told meanwhile
            Err(Failure::Later(error)) => {
                waits = Some(format!("{name}: {error}"));
                continue;
            }
        };
        tracing::info!(
            driver = name,
            ?outcome,
            "the cluster was told of a CSI driver"
        );
        let info = driver.info.clone();
        let announcement = Announcement { info, outcome };
        told.drivers.insert(name.clone(), announcement);
        deps.announcements.publish(told.drivers.clone());
    }
    waits.map_or(Ok(()), Err)
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

/// Tries again soon what somebody else's change spoiled.
async fn tried<F>(mut change: impl FnMut() -> F) -> Result<(), Failure>
where
    F: Future<Output = Result<(), Failure>>,
{
    let mut pause = FIRST_PAUSE;
    let mut tried = 1;
    loop {
        match change().await {
            Err(Failure::Later(_)) if tried < TRIES => {}
            outcome => return outcome,
        }
        tokio::time::sleep(pause).await;
        pause *= 5;
        tried += 1;
    }
}

/// First the Node, then the CSINode, as upstream: who sees the entry finds the labels.
async fn install(deps: &CsiNodeDeps, uid: &str, driver: &NodeDriver) -> Result<(), Failure> {
    let words = "error updating Node object with CSI driver node info";
    let change = |node: &Node| node_with_driver(node, driver);
    let done = change_node(deps, change).await;
    done.map_err(|failure| failure.of(words))?;
    let words = "error updating CSINode object with CSI driver node info";
    let done = change_csi_node(deps, uid, Some(driver), &BTreeSet::new()).await;
    done.map_err(|failure| failure.of(words))
}

async fn remove(deps: &CsiNodeDeps, told: &Told) -> Result<(), Failure> {
    change_csi_node(deps, &told.uid, None, &told.left).await?;
    change_node(deps, |node| node_without_drivers(node, &told.left)).await
}

impl Failure {
    fn of(self, words: &str) -> Self {
        match self {
            Self::Later(error) => Self::Later(format!("{words}: {error}")),
            Self::Final(error) => Self::Final(format!("{words}: {error}")),
        }
    }
}

async fn change_node(
    deps: &CsiNodeDeps,
    change: impl FnOnce(&Node) -> Result<Node, String>,
) -> Result<(), Failure> {
    let at = At::cluster(&deps.node_name);
    let node: Node = deps.client.get(at).await?;
    let changed = change(&node).map_err(Failure::Final)?;
    if let Some(patch) = node_patch(&node, &changed) {
        // through the status, which a node may change, as upstream does
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
    let at = At::cluster(&deps.node_name);
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
            let gone = "it was owned by a different node, and is made anew";
            return Err(Failure::Later(gone.to_owned()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
