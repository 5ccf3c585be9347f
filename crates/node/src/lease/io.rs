//! Sends the requests for the node lease.

use std::sync::Arc;

use tokio::time::timeout;
use windlass_client::{ApiError, ApiErrorKind, ApiResult, ObjectKey};
use windlass_types::coordinationv1::Lease;
use windlass_types::corev1::Node;
use windlass_types::mutation::{Mutation, mutated};

use super::plan::{new_lease, renewed_lease};
use super::{NAMESPACE, NodeLeaseDeps};

/// Attempts of one renewal, without a pause (upstream `maxUpdateRetries`).
const MAX_ATTEMPTS: u32 = 5;

/// Why a lease was not renewed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LeaseError {
    /// The API server returned an error or is unreachable.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The lease cannot be created before the node object is known.
    #[error("no lease yet: its owner, the Node object, is not known")]
    NoOwner,
    /// All attempts together took longer than the lease duration.
    #[error("not renewed in {0} s")]
    Timeout(u64),
}

/// Renews or creates the lease. `latest` is the result of the last renewal.
pub(super) async fn renew(
    deps: &NodeLeaseDeps,
    latest: Option<Lease>,
    owner: Option<Arc<Node>>,
) -> Result<Lease, LeaseError> {
    let limit = deps.duration();
    match timeout(limit, try_renew(deps, latest, owner.as_deref())).await {
        Ok(result) => result,
        Err(_) => Err(LeaseError::Timeout(limit.as_secs())),
    }
}

async fn try_renew(
    deps: &NodeLeaseDeps,
    mut latest: Option<Lease>,
    owner: Option<&Node>,
) -> Result<Lease, LeaseError> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let error = match attempt(deps, &mut latest, owner).await {
            Ok(lease) => return Ok(lease),
            Err(error) => error,
        };
        if attempts == MAX_ATTEMPTS || error == LeaseError::NoOwner {
            return Err(error);
        }
        tracing::debug!(%error, attempts, "lease");
    }
}

/// Makes one attempt. Afterwards `latest` is the base of the next one; `None` after a conflict or
/// if the lease was deleted.
async fn attempt(
    deps: &NodeLeaseDeps,
    latest: &mut Option<Lease>,
    owner: Option<&Node>,
) -> Result<Lease, LeaseError> {
    let at = ObjectKey::namespaced(NAMESPACE, &deps.node_name);
    let seconds = deps.duration_seconds;
    if mutated(Mutation::LeaseWaitsForNode) {
        let node = ObjectKey::cluster(&deps.node_name);
        deps.client.get::<Node>(node).await?;
    }
    if latest.is_none() {
        *latest = found(deps.client.get::<Lease>(at).await)?;
    }
    let Some(known) = latest.as_ref() else {
        let owner = owner.ok_or(LeaseError::NoOwner)?;
        let lease = new_lease(owner, seconds, deps.clock.now());
        return Ok(deps.client.create(Some(NAMESPACE), &lease).await?);
    };
    let lease = renewed_lease(known, &deps.node_name, owner, seconds, deps.clock.now());
    match deps.client.update(at, None, &lease).await {
        Ok(lease) => Ok(lease),
        Err(error) => {
            if matches!(error.kind, ApiErrorKind::Conflict | ApiErrorKind::NotFound) {
                *latest = None;
            }
            Err(error.into())
        }
    }
}

fn found(answer: ApiResult<Lease>) -> ApiResult<Option<Lease>> {
    match answer {
        Ok(lease) => Ok(Some(lease)),
        Err(error) if error.kind == ApiErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
