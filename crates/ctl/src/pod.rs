//! A pod as reported by the agent, and lookup by name.

use windlass_node_proto::windlass_v1 as proto;
use windlass_types::corev1::PodStatus;
use windlass_types::pod::pod_from_json;
use windlass_types::{AllocatedResources, Pod, PodExt, Timestamp};

use crate::client::Client;
use crate::error::Error;

/// A pod with the data of the agent.
#[derive(Clone, Debug)]
pub(crate) struct PodView {
    /// The object, with its status.
    pub(crate) pod: Pod,
    /// Source, worker, blocker, events, timings, warnings. Its `pod_json` is empty.
    pub(crate) entry: proto::PodEntry,
}

impl PodView {
    /// Decodes the message of the agent.
    pub(crate) fn decode(mut entry: proto::PodEntry) -> Result<Self, Error> {
        let json = std::mem::take(&mut entry.pod_json);
        let pod =
            pod_from_json(&json).map_err(|error| Error::InvalidResponse(error.to_string()))?;
        Ok(Self { pod, entry })
    }

    /// Returns the status, empty if absent.
    pub(crate) fn status(&self) -> PodStatus {
        self.pod.status.clone().unwrap_or_default()
    }

    /// Returns the resources that the pod requests and the node has not allocated.
    pub(crate) fn requested(&self) -> Option<AllocatedResources> {
        serde_json::from_slice(&self.entry.requested_json).ok()
    }

    /// Returns the creation time in the API server, else when the agent received the pod.
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

/// Converts a protobuf time.
pub(crate) fn time(time: prost_types::Timestamp) -> Option<Timestamp> {
    Timestamp::new(time.seconds, time.nanos).ok()
}

/// Finds a pod by name. A static pod can be given without the node name suffix; its full name is
/// then printed on stderr.
pub(crate) async fn find(
    client: &mut Client,
    namespace: &str,
    name: &str,
) -> Result<PodView, Error> {
    let in_namespace = client.list(Some(namespace)).await?;
    if let Some(found) = choose(&in_namespace, name) {
        if found.pod.name() != name {
            eprintln!("pod {name}: showing {}", found.pod.name());
        }
        return Ok(found.clone());
    }
    let all = client.list(None).await?;
    Err(Error::NoPod {
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        hint: hint(&all, namespace, name),
    })
}

/// Returns the pod with this name, else the only one named `<name>-<node>`. Pods that terminate
/// come last.
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
        return format!("; found in namespace {0}, use -n {0}", view.pod.namespace());
    }
    let names: Vec<_> = pods
        .iter()
        .filter(|view| view.pod.namespace() == namespace)
        .map(|view| view.pod.name())
        .take(5)
        .collect();
    match names.as_slice() {
        [] => "; the namespace has no pods".to_owned(),
        names => format!(
            "; the namespace has {}{}",
            names.join(", "),
            if names.len() == 5 { ", …" } else { "" }
        ),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use windlass_node_proto::windlass_v1::PodEntry;

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
    fn name_matches_with_or_without_node_suffix() {
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
    fn missing_pod_error_suggests_existing_pods() {
        let pods = [
            named("kube-system", "dns-n", "n"),
            named("default", "web-n", "n"),
        ];
        assert_eq!(
            hint(&pods, "default", "dns"),
            "; found in namespace kube-system, use -n kube-system"
        );
        assert_eq!(hint(&pods, "default", "x"), "; the namespace has web-n");
        assert_eq!(hint(&pods, "other", "x"), "; the namespace has no pods");
    }
}
