//! Resolves the container or sandbox of a request.
//!
//! The result of the last PLEG inspection is tried first. As it may be outdated, a failure triggers
//! a list in the runtime, and a newer container is tried; the same one never twice.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use futures::future::BoxFuture;
use windlass_cri::{CriCode, CriError, CriResult};
use windlass_status::current_entry;
use windlass_types::corev1::Pod;
use windlass_types::cri::ListFilter;
use windlass_types::{
    ContainerId, ContainerState, ObservedPod, PodExt, PodUid, SandboxId, SharedPod, names,
};

use super::StreamRejection;
use crate::NodeApi;

/// A pod of a request path.
pub(crate) struct PodName {
    namespace: String,
    name: String,
    uid: Option<String>,
}

/// A container of a pod.
pub(crate) struct Target {
    pub(crate) pod: PodName,
    pub(crate) container: String,
}

impl PodName {
    pub(crate) fn new(namespace: String, name: String, uid: Option<String>) -> Self {
        Self {
            namespace,
            name,
            uid,
        }
    }

    /// Finds the pod. The UID must match, except for static pods: the API server knows them by the
    /// UID of their mirror pod.
    pub(crate) fn find(&self, api: &NodeApi) -> Result<SharedPod, StreamRejection> {
        let mut found = api.status_store.find(&self.namespace, &self.name);
        if let Some(uid) = &self.uid {
            found.retain(|it| it.pod.is_static() || it.pod.uid().as_str() == uid);
        }
        let pod = current_entry(&found).map(|it| SharedPod::clone(&it.pod));
        pod.ok_or_else(|| StreamRejection::new(StatusCode::NOT_FOUND, "pod does not exist"))
    }
}

impl Target {
    pub(crate) fn by_name((namespace, pod, container): (String, String, String)) -> Self {
        let pod = PodName::new(namespace, pod, None);
        Self { pod, container }
    }

    pub(crate) fn by_uid(at: (String, String, String, String)) -> Self {
        let (namespace, pod, uid, container) = at;
        let pod = PodName::new(namespace, pod, Some(uid));
        Self { pod, container }
    }

    /// Returns the running container, from the runtime: for calls that must not be repeated.
    pub(crate) async fn running(
        &self,
        api: &NodeApi,
        pod: &Pod,
    ) -> Result<ContainerId, StreamRejection> {
        let found = running(api, &pod.uid(), &self.container).await?;
        found.ok_or_else(|| self.not_found())
    }

    /// Requests a stream URL of the running container.
    pub(crate) async fn stream<'a>(
        &self,
        api: &NodeApi,
        pod: &Pod,
        request_url: impl Fn(ContainerId) -> BoxFuture<'a, CriResult<String>>,
    ) -> Result<String, StreamRejection> {
        let (uid, name) = (pod.uid(), &self.container);
        let known = api.cache.get(&uid);
        let known = known.and_then(|pod| known_running(&pod, name));
        let url = stream_of_newest(known, running(api, &uid, name), request_url).await?;
        url.ok_or_else(|| self.not_found())
    }

    fn not_found(&self) -> StreamRejection {
        let message = format!("container not found ({:?})", self.container);
        StreamRejection::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    /// Returns upstream's error for a container that is not in the pod's spec.
    pub(crate) fn not_in_pod(&self) -> StreamRejection {
        let PodName {
            namespace, name, ..
        } = &self.pod;
        let message = format!(
            "container {} not found in pod {name}_{namespace}",
            self.container
        );
        StreamRejection::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }
}

/// Requests a stream URL of a pod's sandbox; `None` without a ready sandbox.
pub(crate) async fn sandbox_stream<'a>(
    api: &NodeApi,
    pod: &Pod,
    request_url: impl Fn(SandboxId) -> BoxFuture<'a, CriResult<String>>,
) -> CriResult<Option<String>> {
    let known = api.cache.get(&pod.uid());
    let known = known.and_then(|pod| known_ready(&pod));
    stream_of_newest(known, ready_sandbox(api, pod), request_url).await
}

/// Requests a stream of the `known` object. If that is `None` or fails, `list` lists the runtime
/// and a newer object is tried. Requesting a URL has no effect, so it may be repeated.
///
/// # Errors
/// The last error of the runtime.
async fn stream_of_newest<'a, Id: Clone + PartialEq>(
    known: Option<Id>,
    list: impl Future<Output = CriResult<Option<Id>>>,
    request_url: impl Fn(Id) -> BoxFuture<'a, CriResult<String>>,
) -> CriResult<Option<String>> {
    let mut failed = None;
    if let Some(id) = known {
        match request_url(id.clone()).await {
            Ok(url) => return Ok(Some(url)),
            Err(error) if is_runtime_unavailable(&error) => return Err(error),
            Err(error) => failed = Some((id, error)),
        }
    }
    match (list.await?, failed) {
        (Some(id), Some((asked, error))) if id == asked => Err(error),
        (Some(id), _) => request_url(id).await.map(Some),
        (None, _) => Ok(None),
    }
}

/// Returns whether a list would fail as well.
fn is_runtime_unavailable(error: &CriError) -> bool {
    matches!(
        error.code,
        CriCode::Unavailable
            | CriCode::DeadlineExceeded
            | CriCode::Unimplemented
            | CriCode::Cancelled
    )
}

/// Returns the newest instance of a container, if it was running at the last inspection.
fn known_running(pod: &ObservedPod, name: &str) -> Option<ContainerId> {
    let newest = pod.latest(name)?;
    (newest.state == ContainerState::Running).then(|| newest.id.clone())
}

/// Returns the newest sandbox, if it was ready at the last inspection.
fn known_ready(pod: &ObservedPod) -> Option<SandboxId> {
    let newest = pod.newest_sandbox()?;
    newest.ready.then(|| newest.id.clone())
}

/// Returns the running container of this name, from the runtime.
pub(crate) async fn running(
    api: &NodeApi,
    uid: &PodUid,
    name: &str,
) -> CriResult<Option<ContainerId>> {
    let containers = api.runtime.list_containers(&pod_filter(uid)).await?;
    let running = containers
        .into_iter()
        .filter(|it| it.name == name && it.state == ContainerState::Running);
    Ok(running.max_by_key(|it| it.attempt).map(|it| it.id))
}

async fn ready_sandbox(api: &NodeApi, pod: &Pod) -> CriResult<Option<SandboxId>> {
    let sandboxes = api
        .runtime
        .list_pod_sandboxes(&pod_filter(&pod.uid()))
        .await?;
    let ready = sandboxes.into_iter().filter(|it| it.ready);
    Ok(ready.max_by_key(|it| it.attempt).map(|it| it.id))
}

fn pod_filter(uid: &PodUid) -> ListFilter {
    ListFilter {
        labels: BTreeMap::from([(names::LABEL_POD_UID.to_owned(), uid.to_string())]),
        ..ListFilter::default()
    }
}

/// Returns whether a container of the spec has a terminal; `None` if there is no such container.
pub(crate) fn container_tty(pod: &Pod, container: &str) -> Option<bool> {
    let ephemeral = pod.spec().ephemeral_containers.iter().flatten();
    let ephemeral = ephemeral.map(|it| (it.name.as_str(), it.tty));
    let all = pod.containers().iter().chain(pod.init_containers());
    let mut all = all.map(|it| (it.name.as_str(), it.tty)).chain(ephemeral);
    let (_, tty) = all.find(|(name, _)| *name == container)?;
    Some(tty.unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::streaming::tests::instance;
    use futures::FutureExt;

    /// Returns the calls, whether the runtime was listed, and the result. `fails` are failing
    /// containers.
    fn line(
        known: Option<&str>,
        listed: Result<Option<&str>, CriCode>,
        fails: &[(&str, CriCode)],
    ) -> String {
        let calls = RefCell::new(Vec::new());
        let error = |code| CriError::new("exec", code, format!("{code:?}"));
        let request_url = |id: String| {
            calls.borrow_mut().push(id.clone());
            let fails = fails.iter().find(|(failing, _)| *failing == id);
            let answer = fails.map_or(Ok(format!("url of {id}")), |(_, code)| Err(error(*code)));
            async { answer }.boxed()
        };
        let list = async {
            calls.borrow_mut().push("list".to_owned());
            listed.map(|id| id.map(str::to_owned)).map_err(error)
        };
        let known = known.map(str::to_owned);
        let result = stream_of_newest(known, list, request_url).now_or_never();
        let end = match result.expect("does not wait") {
            Ok(Some(url)) => url,
            Ok(None) => "not there".to_owned(),
            Err(error) => error.message,
        };
        format!("{}: {end}", calls.take().join(", "))
    }

    #[test]
    fn known_container_is_tried_before_listing_runtime() {
        use CriCode::{DeadlineExceeded, NotFound, Other, Unavailable};
        #[track_caller]
        fn check(
            known: Option<&str>,
            listed: Result<Option<&str>, CriCode>,
            fails: &[(&str, CriCode)],
            expected: &str,
        ) {
            assert_eq!(line(known, listed, fails), expected);
        }
        check(Some("c1"), Ok(Some("c1")), &[], "c1: url of c1");
        check(None, Ok(Some("c1")), &[], "list, c1: url of c1");
        check(None, Ok(None), &[], "list: not there");
        // restarted meanwhile: unknown to the runtime, or exited
        check(
            Some("c1"),
            Ok(Some("c2")),
            &[("c1", NotFound)],
            "c1, list, c2: url of c2",
        );
        check(
            Some("c1"),
            Ok(Some("c2")),
            &[("c1", Other)],
            "c1, list, c2: url of c2",
        );
        check(
            Some("c1"),
            Ok(Some("c2")),
            &[("c1", Other), ("c2", NotFound)],
            "c1, list, c2: NotFound",
        );
        check(
            Some("c1"),
            Ok(None),
            &[("c1", NotFound)],
            "c1, list: not there",
        );
        // the same one is not tried twice
        check(
            Some("c1"),
            Ok(Some("c1")),
            &[("c1", Other)],
            "c1, list: Other",
        );
        check(
            Some("c1"),
            Err(Unavailable),
            &[("c1", Other)],
            "c1, list: Unavailable",
        );
        check(
            Some("c1"),
            Ok(Some("c2")),
            &[("c1", DeadlineExceeded)],
            "c1: DeadlineExceeded",
        );
    }

    #[test]
    fn newest_instance_is_known_only_while_running() {
        use ContainerState::{Exited, Running, Unknown};
        let pod = ObservedPod {
            containers: vec![
                instance("b2", "b", Exited),
                instance("a2", "a", Running),
                instance("u1", "u", Unknown),
                instance("b1", "b", Running),
                instance("a1", "a", Running),
            ],
            ..ObservedPod::default()
        };
        for (name, expected) in [("a", Some("a2")), ("b", None), ("u", None), ("c", None)] {
            assert_eq!(
                known_running(&pod, name),
                expected.map(ContainerId::from),
                "{name}"
            );
        }
        assert_eq!(known_ready(&pod), None);
    }
}
