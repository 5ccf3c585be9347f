//! One request to the API server, and what its failure means for the pod.

use std::time::Duration;

use windlass_client::{ApiClient, ApiError, ApiErrorKind, ApiResult, At, Delete, Patch};
use windlass_pod_status::status_sync::{Answer, Call, Failure, FailureKind, Request};
use windlass_types::{Pod, SharedPod};

/// Deadline of one request, waiting for the client's rate included. A server that takes 5 s is
/// slow and not dead; what is cut off is sent again, and a patch may well arrive twice.
const DEADLINE: Duration = Duration::from_secs(15);

/// Sends one request. It ends within the deadline.
pub(super) async fn send(client: &ApiClient, request: Request) -> Result<Answer, Failure> {
    match tokio::time::timeout(DEADLINE, call(client, request)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(failure(&error)),
        Err(_) => {
            tracing::warn!(seconds = DEADLINE.as_secs(), "no answer in time");
            Err(Failure {
                kind: FailureKind::Unreachable,
                retry_after: None,
            })
        }
    }
}

async fn call(client: &ApiClient, request: Request) -> ApiResult<Answer> {
    let at = At::namespaced(&request.name.namespace, &request.name.name);
    match request.call {
        Call::Patch(patch) => {
            let patch = Patch::StrategicMerge(patch);
            let object: Pod = client.patch(at, Some("status"), &patch).await?;
            Ok(Answer::Object(SharedPod::new(object)))
        }
        Call::Create(mirror) => {
            let object = client.create(at.namespace, &*mirror).await?;
            tracing::info!(pod = %request.name, "mirror pod created");
            Ok(Answer::Object(SharedPod::new(object)))
        }
        Call::Delete(uid) => {
            let delete = Delete {
                grace_seconds: Some(0),
                uid: Some(uid.to_string()),
            };
            client.delete::<Pod>(at, &delete).await?;
            tracing::info!(pod = %request.name, %uid, "pod deleted from the API");
            Ok(Answer::Deleted)
        }
    }
}

fn failure(error: &ApiError) -> Failure {
    let kind = match error.kind {
        ApiErrorKind::NotFound => FailureKind::NotFound,
        ApiErrorKind::Conflict => FailureKind::Conflict,
        ApiErrorKind::Invalid => FailureKind::Invalid,
        ApiErrorKind::Timeout | ApiErrorKind::Connection => FailureKind::Unreachable,
        // a mirror's name that is taken: the watch tells by what
        ApiErrorKind::AlreadyExists
        | ApiErrorKind::Gone
        | ApiErrorKind::Unauthorized
        | ApiErrorKind::Forbidden
        | ApiErrorKind::TooManyRequests
        | ApiErrorKind::Server
        | ApiErrorKind::Protocol => FailureKind::Other,
    };
    match error.kind {
        // the pod has gone while something was said of it, or its mirror was not seen yet
        ApiErrorKind::NotFound | ApiErrorKind::AlreadyExists => {
            tracing::debug!(%error, "pod request");
        }
        _ => tracing::warn!(%error, "pod request failed"),
    }
    Failure {
        kind,
        retry_after: error.retry_after,
    }
}
