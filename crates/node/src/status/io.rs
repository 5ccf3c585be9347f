//! Sends the requests of NodeStatus. Each request has the client's timeout, and each function has a
//! deadline for all of them.

use std::time::Duration;

use tokio::time::timeout;
use windlass_client::{ApiError, ApiErrorKind, ApiResult, ObjectKey, Patch};
use windlass_node_rules::node_object::{
    MachineFacts, NodeStatusPlan, RuntimeFacts, initial_node, node_patch, plan_node_status,
    reconciled_node, updated_node,
};
use windlass_types::corev1::Node;
use windlass_types::mutation::{Mutation, mutated};

use super::NodeStatusDeps;
use super::fsm::{Facts, PatchScope, Report, Update, UpdateError, UpdateResult};
use crate::machine::Machine;

/// Attempts of one update (upstream `nodeStatusUpdateRetry`).
const UPDATE_ATTEMPTS: u32 = 5;
/// Deadline of all attempts: a read and a patch at the heartbeat client's 10 s each. The next tick
/// retries with the state of that time.
const UPDATE_TIMEOUT: Duration = Duration::from_secs(20);
/// Create, read and patch at 10 s each.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(30);

/// Creates the object, or adopts an existing one.
pub(super) async fn register(
    deps: &NodeStatusDeps,
    report: &Report,
) -> Result<Box<UpdateResult>, String> {
    let done = timeout(REGISTER_TIMEOUT, try_register(deps, report)).await;
    match done {
        Ok(result) => result.map(Box::new).map_err(|error| error.to_string()),
        Err(_) => Err(format!("not done in {} s", REGISTER_TIMEOUT.as_secs())),
    }
}

async fn try_register(deps: &NodeStatusDeps, report: &Report) -> ApiResult<UpdateResult> {
    let client = &deps.clients.main;
    let settings = &deps.settings;
    let initial = initial_node(&report.input(settings, deps.clock.now()));
    match client.create::<Node>(None, &initial.node).await {
        Ok(node) => {
            tracing::info!(node = settings.node.name, "node registered");
            return Ok(UpdateResult {
                node,
                events: initial.events,
                scope: PatchScope::Status,
                created: true,
            });
        }
        // the node may exist even if it may not be created
        Err(error) if is(&error, ApiErrorKind::AlreadyExists) => {}
        Err(error) if is(&error, ApiErrorKind::Forbidden) => {}
        Err(error) => return Err(error),
    }
    let at = ObjectKey::cluster(&settings.node.name);
    let existing: Node = client.get(at).await?;
    let reset = settings.reset_extended_resources;
    let input = report.input(settings, deps.clock.now());
    let ours = reconciled_node(&existing, &input, reset);
    let written = match node_patch(&existing, &ours.node) {
        None => UpdateResult {
            node: existing,
            events: Vec::new(),
            scope: PatchScope::None,
            created: false,
        },
        Some(patch) => UpdateResult {
            node: client
                .patch(at, Some("status"), &Patch::StrategicMerge(patch))
                .await?,
            events: ours.events,
            scope: PatchScope::Status,
            created: false,
        },
    };
    tracing::info!(node = settings.node.name, "node already registered");
    Ok(written)
}

/// Patches the status. After a failure, reads the object again and computes a new patch.
pub(super) async fn update(
    deps: &NodeStatusDeps,
    update: Update,
) -> Result<Box<UpdateResult>, UpdateError> {
    let done = timeout(UPDATE_TIMEOUT, try_update(deps, update)).await;
    match done {
        Ok(Ok(written)) => Ok(Box::new(written)),
        Ok(Err(error)) if is(&error, ApiErrorKind::NotFound) => Err(UpdateError::NotFound),
        Ok(Err(error)) => Err(UpdateError::Failed(error.to_string())),
        Err(_) => Err(UpdateError::Failed(format!(
            "not done in {} s",
            UPDATE_TIMEOUT.as_secs()
        ))),
    }
}

async fn try_update(deps: &NodeStatusDeps, first: Update) -> ApiResult<UpdateResult> {
    let client = &deps.clients.heartbeat;
    let at = ObjectKey::cluster(&deps.settings.node.name);
    let report = first.report;
    let mut next = (first.patch, first.scope, first.events);
    let mut tried = 0;
    loop {
        tried += 1;
        let (patch, scope, events) = next;
        let patch = Patch::StrategicMerge(patch);
        let error = match client.patch(at, Some("status"), &patch).await {
            Ok(node) => {
                return Ok(UpdateResult {
                    node,
                    events,
                    scope,
                    created: false,
                });
            }
            Err(error) => error,
        };
        if tried == UPDATE_ATTEMPTS || is(&error, ApiErrorKind::NotFound) {
            return Err(error);
        }
        tracing::debug!(%error, tried, "node status");
        let node: Node = loop {
            match client.get(at).await {
                Ok(node) => break node,
                Err(error) if tried == UPDATE_ATTEMPTS || is(&error, ApiErrorKind::NotFound) => {
                    return Err(error);
                }
                Err(_) => tried += 1,
            }
        };
        let new = updated_node(&node, &report.input(&deps.settings, deps.clock.now()));
        match plan_node_status(&node, &new.node, None, Duration::ZERO) {
            NodeStatusPlan::Patch { changed, patch } => {
                next = (patch, PatchScope::new(changed), new.events);
            }
            // the patch whose response was lost was applied
            NodeStatusPlan::Keep => {
                return Ok(UpdateResult {
                    node,
                    events: Vec::new(),
                    scope,
                    created: false,
                });
            }
        }
    }
}

/// Reads facts of host and runtime; omits those that are not read in time.
pub(super) async fn facts(deps: &NodeStatusDeps, deadline: Duration) -> Facts {
    let images_deadline = match mutated(Mutation::NodeWaitsForImages) {
        true => Duration::from_secs(3600),
        false => deadline,
    };
    let (machine, version, status, images) = tokio::join!(
        timeout(deadline, machine(&deps.machine)),
        timeout(deadline, deps.runtime.version()),
        timeout(deadline, deps.runtime.status()),
        timeout(images_deadline, deps.images.list_images()),
    );
    let status = status.ok().and_then(Result::ok);
    Facts {
        machine: machine.ok().flatten(),
        runtime: RuntimeFacts {
            version: version.ok().and_then(Result::ok),
            supplemental_groups_policy: status
                .as_ref()
                .and_then(|status| status.supplemental_groups_policy),
            handlers: status.map(|status| status.handlers),
            images: images.ok().and_then(Result::ok),
        },
    }
}

async fn machine(machine: &Machine) -> Option<MachineFacts> {
    match machine {
        Machine::Fixed(facts) => Some(facts.clone()),
        Machine::Files(roots) => {
            let roots = roots.clone();
            tokio::task::spawn_blocking(move || roots.read()).await.ok()
        }
    }
}

fn is(error: &ApiError, kind: ApiErrorKind) -> bool {
    error.kind == kind
}
