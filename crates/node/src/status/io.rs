//! The requests of NodeStatus. Every future ends: each request has the client's deadline, and
//! each function one of its own around all of them.

use std::time::Duration;

use tokio::time::timeout;
use windlass_client::{ApiError, ApiErrorKind, ApiResult, At, Patch};
use windlass_node_rules::node_object::{
    MachineFacts, NodeStatusPlan, RuntimeFacts, initial_node, node_patch, plan_node_status,
    reconciled_node, updated_node,
};
use windlass_types::corev1::Node;

use super::NodeStatusDeps;
use super::fsm::{Facts, Report, Update, UpdateError, Written, Wrote};
use crate::machine::Machine;

/// Tries of one update (upstream's `nodeStatusUpdateRetry`).
const UPDATE_TRIES: u32 = 5;
/// All tries together: a read and a patch at the heartbeat's 10 s each. What is left is tried
/// with the next tick, with the state of that time.
const UPDATE_DEADLINE: Duration = Duration::from_secs(20);
/// Create, read and patch at 10 s each.
const REGISTER_DEADLINE: Duration = Duration::from_secs(30);

/// Creates the object, or takes over the one that exists.
pub(super) async fn register(
    deps: &NodeStatusDeps,
    report: &Report,
) -> Result<Box<Written>, String> {
    let done = timeout(REGISTER_DEADLINE, try_register(deps, report)).await;
    match done {
        Ok(result) => result.map(Box::new).map_err(|error| error.to_string()),
        Err(_) => Err(format!("not done in {} s", REGISTER_DEADLINE.as_secs())),
    }
}

async fn try_register(deps: &NodeStatusDeps, report: &Report) -> ApiResult<Written> {
    let client = &deps.clients.main;
    let settings = &deps.settings;
    let initial = initial_node(&report.input(settings, deps.clock.now()));
    match client.create::<Node>(None, &initial.node).await {
        Ok(node) => {
            tracing::info!(node = settings.node.name, "node registered");
            return Ok(Written {
                node,
                events: initial.events,
                wrote: Wrote::Change,
                created: true,
            });
        }
        // who may not create a node may still have one
        Err(error) if is(&error, ApiErrorKind::AlreadyExists) => {}
        Err(error) if is(&error, ApiErrorKind::Forbidden) => {}
        Err(error) => return Err(error),
    }
    let at = At::cluster(&settings.node.name);
    let existing: Node = client.get(at).await?;
    let reset = settings.reset_extended_resources;
    let input = report.input(settings, deps.clock.now());
    let ours = reconciled_node(&existing, &input, reset);
    let written = match node_patch(&existing, &ours.node) {
        None => Written {
            node: existing,
            events: Vec::new(),
            wrote: Wrote::Nothing,
            created: false,
        },
        Some(patch) => Written {
            node: client
                .patch(at, Some("status"), &Patch::StrategicMerge(patch))
                .await?,
            events: ours.events,
            wrote: Wrote::Change,
            created: false,
        },
    };
    tracing::info!(node = settings.node.name, "node was registered before");
    Ok(written)
}

/// Patches the status. A failed try reads the object again and makes the patch for what it finds.
pub(super) async fn update(
    deps: &NodeStatusDeps,
    update: Update,
) -> Result<Box<Written>, UpdateError> {
    let done = timeout(UPDATE_DEADLINE, try_update(deps, update)).await;
    match done {
        Ok(Ok(written)) => Ok(Box::new(written)),
        Ok(Err(error)) if is(&error, ApiErrorKind::NotFound) => Err(UpdateError::NotFound),
        Ok(Err(error)) => Err(UpdateError::Failed(error.to_string())),
        Err(_) => Err(UpdateError::Failed(format!(
            "not done in {} s",
            UPDATE_DEADLINE.as_secs()
        ))),
    }
}

async fn try_update(deps: &NodeStatusDeps, first: Update) -> ApiResult<Written> {
    let client = &deps.clients.heartbeat;
    let at = At::cluster(&deps.settings.node.name);
    let report = first.report;
    let mut next = (first.patch, first.wrote, first.events);
    let mut tried = 0;
    loop {
        tried += 1;
        let (patch, wrote, events) = next;
        let patch = Patch::StrategicMerge(patch);
        let error = match client.patch(at, Some("status"), &patch).await {
            Ok(node) => {
                return Ok(Written {
                    node,
                    events,
                    wrote,
                    created: false,
                });
            }
            Err(error) => error,
        };
        if tried == UPDATE_TRIES || is(&error, ApiErrorKind::NotFound) {
            return Err(error);
        }
        tracing::debug!(%error, tried, "node status");
        let node: Node = loop {
            match client.get(at).await {
                Ok(node) => break node,
                Err(error) if tried == UPDATE_TRIES || is(&error, ApiErrorKind::NotFound) => {
                    return Err(error);
                }
                Err(_) => tried += 1,
            }
        };
        let new = updated_node(&node, &report.input(&deps.settings, deps.clock.now()));
        match plan_node_status(&node, &new.node, None, Duration::ZERO) {
            NodeStatusPlan::Patch { changed, patch } => {
                next = (patch, Wrote::of(changed), new.events);
            }
            // the patch whose answer was lost has arrived
            NodeStatusPlan::Keep => {
                return Ok(Written {
                    node,
                    events: Vec::new(),
                    wrote,
                    created: false,
                });
            }
        }
    }
}

/// Reads machine and runtime; what is not there in time is left out.
pub(super) async fn facts(deps: &NodeStatusDeps, deadline: Duration) -> Facts {
    let (machine, version, status, images) = tokio::join!(
        timeout(deadline, machine(&deps.machine)),
        timeout(deadline, deps.runtime.version()),
        timeout(deadline, deps.runtime.status()),
        timeout(deadline, deps.images.list_images()),
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
