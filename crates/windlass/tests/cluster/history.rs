//! Every version of every pod, recorded by a watch of the API server.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use windlass_client::{ApiClient, ApiResult, List, Selector, Watch, WatchEvent};
use windlass_types::corev1::Pod;

/// Back-off before a watch is restarted.
const RECONNECT: Duration = Duration::from_millis(200);

/// Watches the pods until it is dropped, across outages of the server.
pub(crate) struct History {
    seen: watch::Receiver<PodVersions>,
    task: JoinHandle<()>,
}

/// All observed versions.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodVersions {
    /// Existing pods by name.
    pub(crate) present: BTreeMap<String, Value>,
    /// All versions by UID, oldest first.
    pub(crate) versions: BTreeMap<String, Vec<Value>>,
}

impl History {
    pub(crate) fn start(client: ApiClient) -> Self {
        let (sender, seen) = watch::channel(PodVersions::default());
        let task = tokio::spawn(async move {
            while !sender.is_closed() {
                // it ends with the server or by its timeout
                let _ = follow(&client, &sender).await;
                tokio::time::sleep(RECONNECT).await;
            }
        });
        Self { seen, task }
    }

    /// Waits until `wanted` returns a value.
    pub(crate) async fn find<T>(
        &self,
        what: &str,
        deadline: Duration,
        mut wanted: impl FnMut(&PodVersions) -> Option<T>,
    ) -> T {
        let mut seen = self.seen.clone();
        let mut found = None;
        let waited = tokio::time::timeout(
            windlass_testing::environment::scaled(deadline),
            seen.wait_for(|seen| {
                found = wanted(seen);
                found.is_some()
            }),
        )
        .await
        .is_ok();
        assert!(
            waited,
            "not within {deadline:?}: {what}; there is {}",
            self.seen.borrow().summary()
        );
        found.expect("found")
    }

    /// All observed versions.
    pub(crate) fn now(&self) -> PodVersions {
        self.seen.borrow().clone()
    }

    /// Checks every version of every pod.
    pub(crate) fn judge(&self) {
        for versions in self.now().versions.values() {
            for pair in versions.windows(2) {
                judge(&pair[0], &pair[1]);
            }
        }
    }
}

impl Drop for History {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(client: &ApiClient, sender: &watch::Sender<PodVersions>) -> ApiResult<()> {
    // not a streaming list, which old etcd versions lack
    let (pods, version) = client
        .list::<Pod>(&Selector::default(), &List::default())
        .await?;
    let pods: Vec<Value> = pods.iter().map(json_of).collect();
    sender.send_modify(|seen| {
        let names: Vec<String> = pods
            .iter()
            .map(|pod| text(&pod["metadata"]["name"]))
            .collect();
        seen.present.retain(|name, _| names.contains(name));
        pods.into_iter().for_each(|pod| seen.apply(pod));
    });
    let watch = Watch {
        resource_version: version,
        initial_events: false,
    };
    let mut stream = client.watch::<Pod>(&Selector::default(), &watch).await?;
    while let Some(event) = stream.next().await {
        match event? {
            WatchEvent::Applied(pod) => sender.send_modify(|seen| seen.apply(json_of(&pod))),
            WatchEvent::Deleted(pod) => sender.send_modify(|seen| seen.delete(json_of(&pod))),
            WatchEvent::Bookmark { .. } => {}
        }
    }
    Ok(())
}

fn json_of(pod: &Pod) -> Value {
    serde_json::to_value(pod).unwrap_or_default()
}

impl PodVersions {
    fn apply(&mut self, pod: Value) {
        let name = text(&pod["metadata"]["name"]);
        self.record(&pod);
        self.present.insert(name, pod);
    }

    fn delete(&mut self, pod: Value) {
        let name = text(&pod["metadata"]["name"]);
        self.record(&pod);
        // a pod with the same name may exist already
        let uid = pod["metadata"]["uid"].clone();
        if self
            .present
            .get(&name)
            .is_some_and(|p| p["metadata"]["uid"] == uid)
        {
            self.present.remove(&name);
        }
    }

    fn record(&mut self, pod: &Value) {
        let uid = text(&pod["metadata"]["uid"]);
        let versions = self.versions.entry(uid).or_default();
        let version = |pod: &Value| pod["metadata"]["resourceVersion"].clone();
        // a restarted watch repeats existing objects
        if versions.last().map(version) != Some(version(pod)) {
            versions.push(pod.clone());
        }
    }

    /// All versions of the pod with this UID, oldest first.
    pub(crate) fn versions_of(&self, uid: &str) -> &[Value] {
        self.versions.get(uid).map_or(&[], Vec::as_slice)
    }

    /// Summary for messages of failed tests.
    fn summary(&self) -> String {
        let line = |(name, pod): (&String, &Value)| {
            let status = &pod["status"];
            let going = pod["metadata"]["deletionTimestamp"].is_string();
            format!(
                "{name}={}{}{} {}",
                status["phase"].as_str().unwrap_or("?"),
                if going { " (deleted)" } else { "" },
                status["reason"]
                    .as_str()
                    .map(|r| format!(" {r}"))
                    .unwrap_or_default(),
                status["containerStatuses"][0]["state"],
            )
        };
        let pods: Vec<String> = self.present.iter().map(line).collect();
        format!("{} pods: {}", pods.len(), pods.join(", "))
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Order of phases.
fn rank(pod: &Value) -> u32 {
    match pod["status"]["phase"].as_str() {
        Some("Running") => 1,
        Some("Succeeded" | "Failed") => 2,
        _ => 0,
    }
}

/// Checks two successive versions of a pod.
fn judge(old: &Value, new: &Value) {
    let name = &new["metadata"]["name"];
    let (before, after) = (&old["status"], &new["status"]);
    let seen = format!("{name}:\n  was {before}\n  is {after}");
    assert!(rank(new) >= rank(old), "the phase went back; {seen}");
    if rank(old) == 2 {
        assert_eq!(before["phase"], after["phase"], "the end changed; {seen}");
    }
    for field in ["startTime", "podIP"] {
        let kept = before[field].is_null() || before[field] == after[field];
        assert!(kept, "{field} changed; {seen}");
    }
    let count = |status: &Value| status["containerStatuses"].as_array().map_or(0, Vec::len);
    assert!(
        count(after) >= count(before),
        "container statuses vanished; {seen}"
    );
    for container in before["containerStatuses"].as_array().into_iter().flatten() {
        let same = |other: &&Value| other["name"] == container["name"];
        let now = after["containerStatuses"]
            .as_array()
            .into_iter()
            .flatten()
            .find(same);
        let restarts = |status: &Value| status["restartCount"].as_i64().unwrap_or(0);
        let now = now.unwrap_or(&Value::Null);
        assert!(
            restarts(now) >= restarts(container),
            "restartCount went back; {seen}"
        );
        if rank(old) == 2 && container["state"]["terminated"].is_object() {
            assert_eq!(
                now["state"], container["state"],
                "a final container state changed; {seen}"
            );
        }
    }
}
