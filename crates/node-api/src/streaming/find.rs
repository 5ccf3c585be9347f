//! Which container or sandbox a request is about.
//!
//! What the PLEG saw last is asked at once. It may be older than what the runtime has, so a failure
//! makes look there, and whatever is newer is asked instead: the same container never twice.

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
        let pod = current_entry(&found).map(|it| SharedPod::clone(&it.pod));
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

    /// The container, as the runtime runs it now: for what must not be done twice.
    pub(crate) async fn running(&self, api: &NodeApi, pod: &Pod) -> Result<ContainerId, Refusal> {
        let found = running(api, &pod.uid(), &self.container).await?;
        found.ok_or_else(|| self.not_found())
    }

    /// Asks the runtime for a stream of the container that runs.
    pub(crate) async fn stream<'a>(
        &self,
        api: &NodeApi,
        pod: &Pod,
        ask: impl Fn(ContainerId) -> BoxFuture<'a, CriResult<String>>,
    ) -> Result<String, Refusal> {
        let (uid, name) = (pod.uid(), &self.container);
        let known = api.cache.get(&uid);
        let known = known.and_then(|pod| known_running(&pod, name));
        let url = of_newest(known, running(api, &uid, name), ask).await?;
        url.ok_or_else(|| self.not_found())
    }

    fn not_found(&self) -> Refusal {
        let words = format!("container not found ({:?})", self.container);
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, words)
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

/// Asks the runtime for a stream of a pod's sandbox; `None` if it has none that is ready.
pub(crate) async fn sandbox_stream<'a>(
    api: &NodeApi,
    pod: &Pod,
    ask: impl Fn(SandboxId) -> BoxFuture<'a, CriResult<String>>,
) -> CriResult<Option<String>> {
    let known = api.cache.get(&pod.uid());
    let known = known.and_then(|pod| known_ready(&pod));
    of_newest(known, ready_sandbox(api, pod), ask).await
}

/// Asks for a stream of what is `known`. If nothing is, or that fails, `look` says what the runtime
/// has: that is asked, unless it was. Asking starts nothing, so that it may be done again.
///
/// # Errors
/// The runtime's, of the last that was asked.
async fn of_newest<'a, Id: Clone + PartialEq>(
    known: Option<Id>,
    look: impl Future<Output = CriResult<Option<Id>>>,
    ask: impl Fn(Id) -> BoxFuture<'a, CriResult<String>>,
) -> CriResult<Option<String>> {
    let mut failed = None;
    if let Some(id) = known {
        match ask(id.clone()).await {
            Ok(url) => return Ok(Some(url)),
            Err(error) if says_nothing_of_the_id(&error) => return Err(error),
            Err(error) => failed = Some((id, error)),
        }
    }
    match (look.await?, failed) {
        (Some(id), Some((asked, error))) if id == asked => Err(error),
        (Some(id), _) => ask(id).await.map(Some),
        (None, _) => Ok(None),
    }
}

/// A runtime that does not answer would not say what it has either.
fn says_nothing_of_the_id(error: &CriError) -> bool {
    matches!(
        error.code,
        CriCode::Unavailable
            | CriCode::DeadlineExceeded
            | CriCode::Unimplemented
            | CriCode::Cancelled
    )
}

/// The newest instance of a container, if it ran when the pod was looked at.
fn known_running(pod: &ObservedPod, name: &str) -> Option<ContainerId> {
    let newest = pod.latest(name)?;
    (newest.state == ContainerState::Running).then(|| newest.id.clone())
}

/// The newest sandbox, if it was ready when the pod was looked at.
fn known_ready(pod: &ObservedPod) -> Option<SandboxId> {
    let newest = pod.newest_sandbox()?;
    newest.ready.then(|| newest.id.clone())
}

/// A container that runs, by its name, as the runtime has it.
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

/// The sandbox of a pod that runs, as the runtime has it.
async fn ready_sandbox(api: &NodeApi, pod: &Pod) -> CriResult<Option<SandboxId>> {
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::streaming::tests::instance;
    use futures::FutureExt;

    /// Who was asked, whether the runtime was listed, and how it ended. `fails` are those that fail.
    fn line(
        known: Option<&str>,
        there: Result<Option<&str>, CriCode>,
        fails: &[(&str, CriCode)],
    ) -> String {
        let said = RefCell::new(Vec::new());
        let error = |code| CriError::new("exec", code, format!("{code:?}"));
        let ask = |id: String| {
            said.borrow_mut().push(id.clone());
            let fails = fails.iter().find(|(failing, _)| *failing == id);
            let answer = fails.map_or(Ok(format!("url of {id}")), |(_, code)| Err(error(*code)));
            async { answer }.boxed()
        };
        let look = async {
            said.borrow_mut().push("list".to_owned());
            there.map(|id| id.map(str::to_owned)).map_err(error)
        };
        let known = known.map(str::to_owned);
        let asked = of_newest(known, look, ask).now_or_never();
        let end = match asked.expect("nothing waits") {
            Ok(Some(url)) => url,
            Ok(None) => "not there".to_owned(),
            Err(error) => error.message,
        };
        format!("{}: {end}", said.take().join(", "))
    }

    #[test]
    fn what_is_known_is_asked_without_a_list_and_what_is_newer_if_that_fails() {
        use CriCode::{DeadlineExceeded, NotFound, Other, Unavailable};
        #[track_caller]
        fn check(
            known: Option<&str>,
            there: Result<Option<&str>, CriCode>,
            fails: &[(&str, CriCode)],
            expected: &str,
        ) {
            assert_eq!(line(known, there, fails), expected);
        }
        check(Some("c1"), Ok(Some("c1")), &[], "c1: url of c1");
        check(None, Ok(Some("c1")), &[], "list, c1: url of c1");
        check(None, Ok(None), &[], "list: not there");
        // restarted meanwhile: forgotten, or still there as exited
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
        // the same one is not asked twice
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
    fn only_the_newest_instance_is_known_and_only_while_it_runs() {
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
