//! Sends one request to the API server and classifies its error.

use std::time::Duration;

use windlass_client::{ApiClient, ApiError, ApiErrorKind, ApiResult, Delete, ObjectKey, Patch};
use windlass_pod_status::status_sync::{Call, FailureKind, Request, RequestFailure, RequestResult};
use windlass_types::mutation::{Mutation, mutated};
use windlass_types::{Pod, SharedPod};

/// Timeout of one request, including the wait for the client rate limit. Timed out requests are
/// sent again, so a patch may arrive twice.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// Sends one request, with a timeout.
pub(super) async fn send(
    client: &ApiClient,
    request: Request,
) -> Result<RequestResult, RequestFailure> {
    match tokio::time::timeout(REQUEST_TIMEOUT, call(client, request)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(failure(&error)),
        Err(_) => {
            tracing::warn!(seconds = REQUEST_TIMEOUT.as_secs(), "API request timed out");
            Err(RequestFailure {
                kind: FailureKind::Unreachable,
                retry_after: None,
            })
        }
    }
}

async fn call(client: &ApiClient, request: Request) -> ApiResult<RequestResult> {
    let at = ObjectKey::namespaced(&request.name.namespace, &request.name.name);
    match request.call {
        Call::Patch(patch) => {
            let patch = Patch::StrategicMerge(patch);
            let object: Pod = client.patch(at, Some("status"), &patch).await?;
            Ok(RequestResult::Object(SharedPod::new(object)))
        }
        Call::Create(mirror) => {
            let object = client.create(at.namespace, &*mirror).await?;
            tracing::info!(pod = %request.name, "mirror pod created");
            Ok(RequestResult::Object(SharedPod::new(object)))
        }
        Call::Delete(uid) => {
            let delete = Delete {
                grace_seconds: Some(0),
                uid: Some(uid.to_string()).filter(|_| !mutated(Mutation::WrongPodDeleted)),
            };
            client.delete::<Pod>(at, &delete).await?;
            tracing::info!(pod = %request.name, %uid, "pod deleted from the API");
            Ok(RequestResult::Deleted)
        }
    }
}

fn failure(error: &ApiError) -> RequestFailure {
    let kind = match error.kind {
        ApiErrorKind::NotFound => FailureKind::NotFound,
        ApiErrorKind::Conflict => FailureKind::Conflict,
        ApiErrorKind::Invalid => FailureKind::Invalid,
        ApiErrorKind::Timeout | ApiErrorKind::Connection => FailureKind::Unreachable,
        // AlreadyExists: the watch delivers the existing mirror pod
        ApiErrorKind::AlreadyExists
        | ApiErrorKind::Gone
        | ApiErrorKind::Unauthorized
        | ApiErrorKind::Forbidden
        | ApiErrorKind::TooManyRequests
        | ApiErrorKind::Server
        | ApiErrorKind::Protocol => FailureKind::Other,
    };
    match error.kind {
        // the pod was deleted meanwhile, or its mirror pod is not known yet
        ApiErrorKind::NotFound | ApiErrorKind::AlreadyExists => {
            tracing::debug!(%error, "pod request");
        }
        _ => tracing::warn!(%error, "pod request failed"),
    }
    RequestFailure {
        kind,
        retry_after: error.retry_after,
    }
}
