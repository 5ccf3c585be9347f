//! A pod as the agent tells of it, and how a user's name for it is understood.

use windlass_proto::windlass_v1 as proto;
use windlass_types::corev1::PodStatus;
use windlass_types::{Pod, PodExt, Timestamp};

use crate::client::Client;
use crate::error::Error;

/// One pod with what only the agent knows of it.
#[derive(Clone, Debug)]
pub(crate) struct PodView {
    /// The object, with its status.
    pub(crate) pod: Pod,
    /// Source, worker, blocker, events, timings, warnings. Its `pod_json` is emptied.
    pub(crate) entry: proto::PodEntry,
}

impl PodView {
    /// Reads the agent's message.
    pub(crate) fn decode(mut entry: proto::PodEntry) -> Result<Self, Error> {
        let json = std::mem::take(&mut entry.pod_json);
        let pod =
            serde_json::from_slice(&json).map_err(|error| Error::Answer(error.to_string()))?;
        Ok(Self { pod, entry })
    }

    /// The status, an empty one if absent.
    pub(crate) fn status(&self) -> PodStatus {
        self.pod.status.clone().unwrap_or_default()
    }

    /// When the pod came to be: for the API server its creation, else when the agent saw it.
    pub(crate) fn created(&self) -> Option<Timestamp> {
        let created = self
            .pod
            .metadata
            .creation_timestamp
            .as_ref()
            .map(|time| time.0);
        let seen = self.entry.timings.as_ref().and_then(|timings| timings.seen);
        let annotated = self.pod.annotation(windlass_types::names::ANN_CONFIG_SEEN);
        created
            .or_else(|| annotated.and_then(|text| text.parse().ok()))
            .or_else(|| seen.and_then(time))
    }

    /// `namespace/name`.
    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.pod.namespace(), self.pod.name())
    }
}

/// A protobuf time.
pub(crate) fn time(time: prost_types::Timestamp) -> Option<Timestamp> {
    Timestamp::new(time.seconds, time.nanos).ok()
}

/// Asks for one pod by the name a user gives. A static pod may be called as in its manifest,
/// without the node's name at its end; that is said on stderr.
pub(crate) async fn find(
    client: &mut Client,
    namespace: &str,
    name: &str,
) -> Result<PodView, Error> {
    let here = client.list(Some(namespace)).await?;
    if let Some(found) = choose(&here, name) {
        if found.pod.name() != name {
            eprintln!("pod {name}: showing {}", found.pod.name());
        }
        return Ok(found.clone());
    }
    let everywhere = client.list(None).await?;
    Err(Error::NoPod {
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        hint: hint(&everywhere, namespace, name),
    })
}

/// The pod that `name` means: the exact one, else the only one named `<name>-<its node>`.
/// Of two with one name, the one that does not terminate.
pub(crate) fn choose<'a>(pods: &'a [PodView], name: &str) -> Option<&'a PodView> {
    let exact = pods.iter().filter(|view| view.pod.name() == name);
    if let Some(found) = exact.min_by_key(|view| view.entry.worker_state != "Sync") {
        return Some(found);
    }
    let mut short = pods.iter().filter(|view| {
        let node = PodExt::spec(&view.pod)
            .node_name
            .as_deref()
            .unwrap_or_default();
        let rest = view.pod.name().strip_prefix(name);
        !node.is_empty() && rest.and_then(|rest| rest.strip_prefix('-')) == Some(node)
    });
    let found = short.next()?;
    short.next().is_none().then_some(found)
}

fn hint(pods: &[PodView], namespace: &str, name: &str) -> String {
    let elsewhere = pods.iter().find(|view| {
        view.pod.namespace() != namespace && choose(std::slice::from_ref(view), name).is_some()
    });
    if let Some(view) = elsewhere {
        return format!(
            ": there is one in namespace {0}, use -n {0}",
            view.pod.namespace()
        );
    }
    let names: Vec<_> = pods
        .iter()
        .filter(|view| view.pod.namespace() == namespace)
        .map(|view| view.pod.name())
        .take(5)
        .collect();
    match names.as_slice() {
        [] => ": there are no pods in it".to_owned(),
        names => format!(
            ": it has {}{}",
            names.join(", "),
            if names.len() == 5 { ", …" } else { "" }
        ),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use windlass_proto::windlass_v1::PodEntry;

    use super::{PodView, choose, hint};

    /// A view of a pod, from JSON.
    pub(crate) fn view(pod: &Value) -> PodView {
        let entry = PodEntry {
            pod_json: pod.to_string().into(),
            source: "file".to_owned(),
            worker_state: "Sync".to_owned(),
            ..PodEntry::default()
        };
        PodView::decode(entry).expect("pod")
    }

    fn named(namespace: &str, name: &str, node: &str) -> PodView {
        view(&json!({
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"containers": [], "nodeName": node},
        }))
    }

    #[test]
    fn a_name_is_exact_or_lacks_the_node() {
        let pods = [
            named("default", "web-node-1", "node-1"),
            named("default", "web", "node-1"),
            named("default", "job-node-1", "node-1"),
            named("default", "job-extra-node-1", "node-1"),
        ];
        let check = |name: &str, expected: Option<&str>| {
            let found = choose(&pods, name).map(|view| view.pod.metadata.name.clone());
            assert_eq!(found.flatten().as_deref(), expected, "{name}");
        };
        check("web", Some("web"));
        check("web-node-1", Some("web-node-1"));
        check("job", Some("job-node-1"));
        check("job-extra", Some("job-extra-node-1"));
        check("jo", None);
        check("", None);
    }

    #[test]
    fn a_missing_pod_comes_with_what_there_is() {
        let pods = [
            named("kube-system", "dns-n", "n"),
            named("default", "web-n", "n"),
        ];
        assert_eq!(
            hint(&pods, "default", "dns"),
            ": there is one in namespace kube-system, use -n kube-system"
        );
        assert_eq!(hint(&pods, "default", "x"), ": it has web-n");
        assert_eq!(hint(&pods, "other", "x"), ": there are no pods in it");
    }
}
