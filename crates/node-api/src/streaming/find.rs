//! Which container or sandbox a request is about.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use windlass_cri::CriResult;
use windlass_status::present;
use windlass_types::corev1::Pod;
use windlass_types::cri::ListFilter;
use windlass_types::{ContainerId, ContainerState, PodExt, PodUid, SandboxId, SharedPod, names};

use super::Refusal;
use crate::NodeApi;

/// A pod, as a path names it.
pub(crate) struct PodName {
    namespace: String,
    name: String,
    uid: Option<String>,
}

/// A container of it.
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

    /// The pod. A UID has to be the pod's; the API server knows static pods by another one, of
    /// their mirror, so that theirs is not compared.
    pub(crate) fn find(&self, api: &NodeApi) -> Result<SharedPod, Refusal> {
        let mut found = api.board.find(&self.namespace, &self.name);
        if let Some(uid) = &self.uid {
            found.retain(|it| it.pod.is_static() || it.pod.uid().as_str() == uid);
        }
        let pod = present(&found).map(|it| SharedPod::clone(&it.pod));
        pod.ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, "pod does not exist"))
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

    /// The container, as the runtime runs it now.
    pub(crate) async fn running(&self, api: &NodeApi, pod: &Pod) -> Result<ContainerId, Refusal> {
        let words = || format!("container not found ({:?})", self.container);
        let found = running(api, &pod.uid(), &self.container).await?;
        found.ok_or_else(|| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, words()))
    }

    /// What upstream says of a container that the pod's manifest does not have.
    pub(crate) fn not_in_the_pod(&self) -> Refusal {
        let PodName {
            namespace, name, ..
        } = &self.pod;
        let words = format!(
            "container {} not found in pod {name}_{namespace}",
            self.container
        );
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, words)
    }
}

/// A container that runs, by its name; asked of the runtime, as what is said here of an ID is
/// worth nothing after a restart of the container.
pub(crate) async fn running(
    api: &NodeApi,
    uid: &PodUid,
    name: &str,
) -> CriResult<Option<ContainerId>> {
    let containers = api.runtime.list_containers(&of_pod(uid)).await?;
    let running = containers
        .into_iter()
        .filter(|it| it.name == name && it.state == ContainerState::Running);
    Ok(running.max_by_key(|it| it.attempt).map(|it| it.id))
}

/// The sandbox of a pod that runs.
pub(crate) async fn ready_sandbox(api: &NodeApi, pod: &Pod) -> CriResult<Option<SandboxId>> {
    let sandboxes = api.runtime.list_pod_sandboxes(&of_pod(&pod.uid())).await?;
    let ready = sandboxes.into_iter().filter(|it| it.ready);
    Ok(ready.max_by_key(|it| it.attempt).map(|it| it.id))
}

fn of_pod(uid: &PodUid) -> ListFilter {
    ListFilter {
        labels: BTreeMap::from([(names::LABEL_POD_UID.to_owned(), uid.to_string())]),
        ..ListFilter::default()
    }
}

/// Whether a container of the manifest has a terminal; `None` if there is no such container.
pub(crate) fn tty_of(pod: &Pod, container: &str) -> Option<bool> {
    let ephemeral = pod.spec().ephemeral_containers.iter().flatten();
    let ephemeral = ephemeral.map(|it| (it.name.as_str(), it.tty));
    let all = pod.containers().iter().chain(pod.init_containers());
    let mut all = all.map(|it| (it.name.as_str(), it.tty)).chain(ephemeral);
    let (_, tty) = all.find(|(name, _)| *name == container)?;
    Some(tty.unwrap_or(false))
}
