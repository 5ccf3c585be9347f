//! The manager against an API server in the same process, on paused time.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use serde_json::{Value, json};
use tokio::sync::watch;
use windlass_actors::{ApiPodUpdate, NodeUpdate, SourcesReady};
use windlass_client::{ReflectEvent, Selector, reflect};
use windlass_fake_api::{FakeApiServer, On, RequestRecord};
use windlass_mailboxes::{SimClock, SlotSender, slots, start_actor};
use windlass_metrics::Metrics;
use windlass_timelines::Timelines;
use windlass_types::corev1::{Node, PodStatus};
use windlass_types::view::PodWorkerState;
use windlass_types::{Clock, Pod, PodExt, PodUid, SharedPod, Timestamp};

use super::{StatusManager, StatusManagerDeps};
use crate::status_store::{PodStatusEntry, PodStatusStore};
use PodWorkerState::{SyncPod, TerminatedPod, TerminatingPod};

/// A node with a status manager, and the server it reports to.
struct Cluster {
    server: FakeApiServer,
    status_store: PodStatusStore,
    node: watch::Sender<NodeUpdate>,
    sources: watch::Sender<SourcesReady>,
    metrics: Metrics,
}

/// Runs a test with the manager and a watch of the node's pods.
async fn with_cluster<F: Future>(test: impl FnOnce(Cluster) -> F) {
    let server = FakeApiServer::new();
    let node: Node = decode(json!({"metadata": {"name": "n1"}}));
    let node = server.create(&node);
    let metrics = Metrics::new().expect("metrics");
    let cluster = Cluster {
        server: server.clone(),
        status_store: PodStatusStore::new(),
        node: watch::Sender::new(NodeUpdate(Some(Arc::new(node)))),
        sources: watch::Sender::new(SourcesReady(false)),
        metrics: metrics.clone(),
    };
    let clients = server.clients_of_node("n1");
    let clock: Arc<dyn Clock> = Arc::new(SimClock::starting_at(Timestamp::UNIX_EPOCH));
    let (seen, pods) = slots(crate::STATUS_MANAGER, &metrics.mailboxes);
    // boxed to keep the futures of the tests small
    let manager = Box::new(StatusManager::new(
        StatusManagerDeps {
            status_store: cluster.status_store.clone(),
            timelines: Timelines::new(Arc::clone(&clock), None),
            client: clients.main,
            clock,
            metrics,
        },
        pods,
        cluster.node.subscribe(),
        cluster.sources.subscribe(),
    ));
    let watching = tokio::spawn(watch_pods(clients.watch, seen));
    let run = tokio::task::LocalSet::new();
    run.run_until(async {
        start_actor(*manager);
        Box::pin(test(cluster)).await;
    })
    .await;
    watching.abort();
}

/// Acts as the API source.
async fn watch_pods(client: windlass_client::ApiClient, seen: SlotSender<PodUid, ApiPodUpdate>) {
    let selector = Selector {
        fields: Some("spec.nodeName=n1".into()),
        ..Selector::default()
    };
    let mut events = Box::pin(reflect::<Pod>(client, selector));
    while let Some(event) = events.next().await {
        let present = |pod: Pod| seen.put(pod.uid(), ApiPodUpdate::Applied(SharedPod::new(pod)));
        match event {
            ReflectEvent::Synced(pods) => pods.into_iter().for_each(present),
            ReflectEvent::Applied(pod) => present(pod),
            ReflectEvent::Deleted(pod) => seen.put(pod.uid(), ApiPodUpdate::Deleted),
            ReflectEvent::Failed { .. } | ReflectEvent::Resumed => {}
        }
    }
}

impl Cluster {
    /// A pod of this node in the API.
    fn pod(&self, name: &str) -> Pod {
        self.server.create(&decode::<Pod>(json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "nodeName": "n1",
                "restartPolicy": "Never",
                "containers": [{"name": "web", "image": "img"}],
            },
        })))
    }

    /// Publishes the status of a pod.
    fn publish(&self, pod: &Pod, text: &str, worker: PodWorkerState, released: bool) {
        self.status_store.publish(PodStatusEntry {
            status: Arc::new(status(text)),
            worker_state: worker,
            observed: true,
            released,
            ..PodStatusEntry::new(Arc::new(pod.clone()))
        });
    }

    fn get(&self, name: &str) -> Option<Pod> {
        self.server.get(Some("default"), name)
    }

    fn phase(&self, name: &str) -> String {
        let status = self.get(name).and_then(|pod| pod.status);
        status.and_then(|status| status.phase).unwrap_or_default()
    }

    fn requests(&self, method: &str) -> Vec<RequestRecord> {
        let mut all = self.server.requests();
        all.retain(|r| r.method == method);
        all
    }

    /// Requests that the server carried out.
    fn done(&self, method: &str) -> Vec<RequestRecord> {
        let mut all = self.requests(method);
        all.retain(|r| (200..300).contains(&r.status));
        all
    }

    /// Waits until the server is as it should be, for up to an hour of paused time.
    async fn until(&self, what: &str, done: impl Fn(&Self) -> bool) {
        let deadline = Duration::from_secs(3600);
        let wait = async {
            while !done(self) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let waited = tokio::time::timeout(deadline, wait).await;
        assert!(
            waited.is_ok(),
            "never: {what}\n{:#?}",
            self.server.requests()
        );
    }

    /// Waits until all requests have ended.
    async fn quiet(&self) {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

fn decode<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

/// `phase container`: `w`, `r`, `s` (with the time of its start) or an exit code.
fn status(text: &str) -> PodStatus {
    let (phase, state) = text.split_once(' ').expect("two words");
    let since = "1970-01-01T00:00:09Z";
    let state = match state {
        "s" => json!({"running": {"startedAt": since}}),
        "w" => json!({"waiting": {"reason": "ContainerCreating"}}),
        "r" => json!({"running": {}}),
        code => json!({"terminated": {"exitCode": code.parse::<i32>().expect("a code")}}),
    };
    let ready = if phase == "Running" { "True" } else { "False" };
    decode(json!({
        "phase": phase,
        "startTime": since,
        "qosClass": "BestEffort",
        "conditions": [
            {"type": "Ready", "status": ready, "lastTransitionTime": since},
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": since},
        ],
        "containerStatuses": [{
            "name": "web",
            "image": "img",
            "imageID": "",
            "ready": ready == "True",
            "restartCount": 0,
            "state": state,
        }],
    }))
}

fn condition(pod: &Pod, type_: &str) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let found = conditions.iter().find(|c| c.type_ == type_)?;
    Some(found.status.clone())
}

#[tokio::test(start_paused = true)]
async fn each_change_is_one_patch_that_keeps_foreign_fields() {
    with_cluster(async |c| {
        let pod = c.pod("a");
        c.server.modify::<Pod>(Some("default"), "a", |pod| {
            let gate = json!([{"type": "example.com/gate", "status": "True"}]);
            pod.status.get_or_insert_default().conditions = decode(gate);
        });
        c.publish(&pod, "Pending w", SyncPod, false);
        c.until("pending", |c| c.done("PATCH").len() == 1).await;
        for _ in 0..5 {
            c.publish(&pod, "Pending w", SyncPod, false);
            c.quiet().await;
        }
        assert_eq!(c.requests("PATCH").len(), 1);
        c.publish(&pod, "Running r", SyncPod, false);
        c.until("running", |c| c.phase("a") == "Running").await;
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(c.requests("PATCH").len(), 2);

        let patch = &c.requests("PATCH")[1];
        assert_eq!(patch.path, "/api/v1/namespaces/default/pods/a/status");
        assert_eq!(patch.body["metadata"]["uid"], json!(pod.metadata.uid));
        let stored = c.get("a").expect("a pod");
        assert_eq!(
            condition(&stored, "example.com/gate").as_deref(),
            Some("True")
        );
        assert_eq!(condition(&stored, "Ready").as_deref(), Some("True"));
        assert_eq!(c.metrics.pod_status.sync_duration.get_sample_count(), 2);
        // there is no read before a write
        assert!(
            c.requests("GET")
                .iter()
                .all(|r| r.query.contains("spec.nodeName"))
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn start_latency_is_measured_once_from_first_sight() {
    with_cluster(async |c| {
        let pod = c.pod("a");
        let adopted = c.pod("b");
        c.server.modify::<Pod>(Some("default"), "b", |pod| {
            pod.status = Some(status("Pending w"));
        });
        c.quiet().await;
        let starts = |c: &Cluster| {
            let text = c.metrics.render().expect("text");
            let mut lines = text.lines();
            let line = lines.find_map(|line| {
                line.strip_prefix("kubelet_pod_start_sli_duration_seconds_count ")
            });
            line.map(str::to_owned)
        };
        c.publish(&pod, "Pending w", SyncPod, false);
        c.until("pending", |c| c.phase("a") == "Pending").await;
        c.quiet().await;
        assert_eq!(starts(&c), None);
        for pod in [&pod, &adopted] {
            c.publish(pod, "Running s", SyncPod, false);
        }
        c.until("running", |c| c.phase("b") == "Running").await;
        c.until("told", |c| starts(c).is_some()).await;
        c.publish(&pod, "Pending w", SyncPod, false);
        c.until("pending", |c| c.phase("a") == "Pending").await;
        c.publish(&pod, "Running s", SyncPod, false);
        c.until("running", |c| c.phase("a") == "Running").await;
        c.quiet().await;
        assert_eq!(starts(&c).as_deref(), Some("1"));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn overwritten_status_is_restored() {
    with_cluster(async |c| {
        let pod = c.pod("a");
        c.publish(&pod, "Running r", SyncPod, false);
        c.until("running", |c| c.phase("a") == "Running").await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        c.server.modify::<Pod>(Some("default"), "a", |pod| {
            pod.status.get_or_insert_default().phase = Some("Pending".into());
        });
        c.until("running again", |c| c.phase("a") == "Running")
            .await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn deleted_pod_gets_terminal_phase_then_is_removed() {
    with_cluster(async |c| {
        let pod = c.pod("a");
        c.publish(&pod, "Running r", SyncPod, false);
        c.until("running", |c| c.phase("a") == "Running").await;
        c.server.delete::<Pod>(Some("default"), "a", Some(30));
        // the phase is final, but the container runs
        c.publish(&pod, "Failed r", TerminatingPod, false);
        c.quiet().await;
        assert_eq!(c.phase("a"), "Running");
        c.publish(&pod, "Failed 137", TerminatedPod, false);
        c.until("terminal", |c| c.phase("a") == "Failed").await;
        c.quiet().await;
        assert!(c.requests("DELETE").is_empty());
        c.publish(&pod, "Failed 137", TerminatedPod, true);
        c.status_store.remove(&pod.uid());
        c.until("gone", |c| c.get("a").is_none()).await;
        let [delete] = &c.requests("DELETE")[..] else {
            panic!("one deletion: {:#?}", c.requests("DELETE"));
        };
        assert_eq!(delete.body["gracePeriodSeconds"], 0);
        assert_eq!(delete.body["preconditions"]["uid"], json!(pod.metadata.uid));
        // it ran, was no longer ready, and ended
        assert_eq!(c.done("PATCH").len(), 3);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn terminal_phase_is_final() {
    with_cluster(async |c| {
        let pod = c.pod("a");
        c.publish(&pod, "Succeeded 0", TerminatedPod, true);
        c.until("succeeded", |c| c.phase("a") == "Succeeded").await;
        c.publish(&pod, "Running r", SyncPod, false);
        c.quiet().await;
        assert_eq!(c.phase("a"), "Succeeded");
        assert_eq!(c.requests("PATCH").len(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn pod_without_local_status_is_not_patched() {
    with_cluster(async |c| {
        c.pod("a");
        c.server.delete::<Pod>(Some("default"), "a", Some(30));
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert!(c.get("a").is_some());
        assert!(c.requests("PATCH").is_empty() && c.requests("DELETE").is_empty());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn new_pod_with_same_name_never_gets_old_status() {
    with_cluster(async |c| {
        let old = c.pod("a");
        c.publish(&old, "Pending w", SyncPod, false);
        c.until("pending", |c| c.done("PATCH").len() == 1).await;
        // the watch delivers the replacement only after the status is sent
        c.server.faults().silence_watches();
        c.server.delete::<Pod>(Some("default"), "a", Some(0));
        let new = c.pod("a");
        assert_ne!(old.metadata.uid, new.metadata.uid);
        c.publish(&old, "Running r", SyncPod, false);
        c.until("refused", |c| c.requests("PATCH").len() == 2).await;
        assert_eq!(c.requests("PATCH")[1].status, 409);
        c.publish(&old, "Failed 1", TerminatedPod, true);
        tokio::time::sleep(Duration::from_secs(25)).await;
        assert_eq!(c.requests("PATCH").len(), 2);
        assert_eq!(c.phase("a"), "Pending");
        assert!(c.requests("DELETE").is_empty());
        // after the watch recovers, the new pod arrives
        c.publish(&new, "Running r", SyncPod, false);
        c.until("running", |c| c.phase("a") == "Running").await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn one_patch_per_pod_after_outage() {
    with_cluster(async |c| {
        let pods: Vec<Pod> = (0..30).map(|i| c.pod(&format!("p{i}"))).collect();
        for pod in &pods {
            c.publish(pod, "Pending w", SyncPod, false);
        }
        c.until("all pending", |c| c.done("PATCH").len() == 30)
            .await;
        c.server.clear_requests();
        c.server.faults().down(On::any());
        c.server.faults().close_watches();
        for i in 0..20 {
            for pod in &pods {
                let said = if i % 2 == 0 { "Running r" } else { "Pending w" };
                c.publish(pod, said, SyncPod, false);
            }
            tokio::time::sleep(Duration::from_secs(30)).await;
        }
        for pod in &pods {
            c.publish(pod, "Running r", SyncPod, false);
        }
        c.server.faults().clear();
        let back = tokio::time::Instant::now();
        c.until("all running", |c| {
            pods.iter().all(|p| c.phase(p.name()) == "Running")
        })
        .await;
        assert!(
            back.elapsed() < Duration::from_secs(40),
            "{:?}",
            back.elapsed()
        );
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(c.done("PATCH").len(), 30);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honored() {
    with_cluster(async |c| {
        let pod = c.pod("a");
        let patches = On::any().method("PATCH").times(1);
        c.server.faults().error_retry_after(patches, 429, 20);
        let began = tokio::time::Instant::now();
        c.publish(&pod, "Pending w", SyncPod, false);
        c.until("refused", |c| c.requests("PATCH").len() == 1).await;
        c.publish(&pod, "Running r", SyncPod, false);
        c.until("running", |c| c.phase("a") == "Running").await;
        assert!(began.elapsed() >= Duration::from_secs(20));
        assert_eq!(c.requests("PATCH").len(), 2);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn hung_requests_do_not_block_other_pods() {
    with_cluster(async |c| {
        let hung: Vec<Pod> = (0..16).map(|i| c.pod(&format!("hung{i}"))).collect();
        let well = c.pod("well");
        let path = "/api/v1/namespaces/default/pods/hung*";
        c.server.faults().hang(On::path(path).method("PATCH"));
        c.quiet().await;
        for pod in &hung {
            c.publish(pod, "Running r", SyncPod, false);
        }
        c.quiet().await;
        let began = tokio::time::Instant::now();
        c.publish(&well, "Running r", SyncPod, false);
        c.until("running", |c| c.phase("well") == "Running").await;
        assert!(
            began.elapsed() < Duration::from_secs(16),
            "{:?}",
            began.elapsed()
        );
        c.server.faults().clear();
        c.until("all", |c| {
            hung.iter().all(|p| c.phase(p.name()) == "Running")
        })
        .await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn slow_server_gets_every_final_status() {
    with_cluster(async |c| {
        let pods: Vec<Pod> = (0..17).map(|i| c.pod(&format!("p{i}"))).collect();
        c.quiet().await;
        let slow = On::any().method("PATCH");
        c.server.faults().slow(slow, Duration::from_secs(5));
        let began = tokio::time::Instant::now();
        for pod in &pods {
            c.publish(pod, "Running r", SyncPod, false);
        }
        c.until("all", |c| {
            pods.iter().all(|p| c.phase(p.name()) == "Running")
        })
        .await;
        assert!(
            began.elapsed() < Duration::from_secs(11),
            "{:?}",
            began.elapsed()
        );
        assert_eq!(c.done("PATCH").len(), 17);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn requests_are_sent_by_priority() {
    with_cluster(async |c| {
        let hung: Vec<Pod> = (0..16).map(|i| c.pod(&format!("hung{i}"))).collect();
        let [rest, ready, ends] = ["rest", "ready", "ends"].map(|name| c.pod(name));
        let patches = |pod| {
            let path = format!("/api/v1/namespaces/default/pods/{pod}/status");
            On::path(&path).method("PATCH")
        };
        // three places become free, one after another
        for i in 0..3 {
            let slow = Duration::from_secs(i + 1);
            c.server.faults().slow(patches(format!("hung{i}")), slow);
        }
        c.server.faults().hang(patches("hung*".to_owned()));
        c.quiet().await;
        for pod in &hung {
            c.publish(pod, "Running r", SyncPod, false);
        }
        c.quiet().await;
        // all places are taken; these three wait
        c.publish(&rest, "Pending w", SyncPod, false);
        c.publish(&ready, "Running r", SyncPod, false);
        c.publish(&ends, "Succeeded 0", TerminatedPod, true);
        c.until("all three", |c| c.done("PATCH").len() == 6).await;
        let order: Vec<String> = c.done("PATCH").into_iter().map(|r| r.path).collect();
        let names: Vec<&str> = order
            .iter()
            .filter_map(|p| p.split('/').nth(6))
            .filter(|name| !name.starts_with("hung"))
            .collect();
        assert_eq!(names, ["ends", "ready", "rest"]);
    })
    .await;
}

/// A static pod `s-n1` whose manifest has this hash.
fn static_pod(hash: &str) -> Pod {
    decode(json!({
        "metadata": {
            "name": "s-n1",
            "namespace": "default",
            "uid": hash,
            "annotations": {
                "kubernetes.io/config.hash": hash,
                "kubernetes.io/config.source": "file",
            },
        },
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "web", "image": "img"}],
        },
    }))
}

impl Cluster {
    /// The hash of the mirror that the server has, and its phase.
    fn mirror(&self) -> String {
        let Some(mirror) = self.get("s-n1") else {
            return "none".to_owned();
        };
        let hash = mirror.annotation("kubernetes.io/config.mirror");
        format!("{} {}", hash.unwrap_or_default(), self.phase("s-n1"))
    }
}

#[tokio::test(start_paused = true)]
async fn static_pod_has_mirror_pod_with_status() {
    with_cluster(async |c| {
        let pod = static_pod("h1");
        c.publish(&pod, "Running r", SyncPod, false);
        c.until("a mirror", |c| c.mirror() == "h1 Running").await;
        let first = c.get("s-n1").expect("a mirror");
        let owners = first.metadata.owner_references.clone().unwrap_or_default();
        assert_eq!(
            (owners[0].kind.as_str(), owners[0].name.as_str()),
            ("Node", "n1")
        );
        assert_ne!(first.metadata.uid.as_deref(), Some("h1"));
        assert_eq!(c.metrics.pod_status.mirror_pods.get() as u32, 1);

        // a deleted mirror pod is recreated
        c.server.delete::<Pod>(Some("default"), "s-n1", Some(30));
        c.until("another mirror", |c| {
            c.mirror() == "h1 Running" && c.get("s-n1").map(|m| m.uid()) != Some(first.uid())
        })
        .await;

        // the manifest changes: while the old pod stops, the mirror is its own
        let next = static_pod("h2");
        c.sources.send_replace(SourcesReady(true));
        c.publish(&pod, "Running r", TerminatingPod, false);
        c.publish(&next, "Pending w", SyncPod, false);
        c.quiet().await;
        assert_eq!(c.mirror(), "h1 Running");
        c.publish(&pod, "Running 0", TerminatedPod, true);
        c.status_store.remove(&pod.uid());
        c.until("the new pod's mirror", |c| c.mirror() == "h2 Pending")
            .await;

        // the manifest is removed
        c.publish(&next, "Pending w", TerminatingPod, false);
        c.quiet().await;
        assert_eq!(c.mirror(), "h2 Pending");
        c.status_store.remove(&next.uid());
        c.until("no mirror", |c| c.mirror() == "none").await;
        c.quiet().await;
        assert_eq!(c.done("POST").len(), 3);
        assert_eq!(c.metrics.pod_status.mirror_pods.get() as u32, 0);
        let deletes = c.requests("DELETE");
        assert!(deletes.iter().all(|r| r.body["gracePeriodSeconds"] == 0));
        assert!(
            deletes
                .iter()
                .all(|r| r.body["preconditions"]["uid"].is_string())
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn unknown_or_deleted_node_gets_no_mirror_pods() {
    with_cluster(async |c| {
        let known = c.node.send_replace(NodeUpdate(None));
        c.quiet().await;
        c.publish(&static_pod("h1"), "Running r", SyncPod, false);
        c.quiet().await;
        let going = known.0.as_deref().cloned().map(|mut node| {
            node.metadata.deletion_timestamp = decode(json!("1970-01-01T00:00:01Z"));
            Arc::new(node)
        });
        c.node.send_replace(NodeUpdate(going));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(c.requests("POST").is_empty());
        c.node.send_replace(known);
        c.until("a mirror", |c| c.mirror() == "h1 Running").await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn orphaned_mirror_pod_is_deleted_when_sources_are_ready() {
    with_cluster(async |c| {
        let owner = c.node.borrow().0.clone().expect("a node");
        let owner = windlass_pod_status::mirror::NodeOwner::from_node(&owner).expect("an owner");
        let mirror = |hash: &str| windlass_pod_status::mirror::mirror_of(&static_pod(hash), &owner);
        let orphan = c.server.create(&mirror("h0"));
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(c.get("s-n1").map(|m| m.uid()), Some(orphan.uid()));
        c.sources.send_replace(SourcesReady(true));
        c.until("gone", |c| c.mirror() == "none").await;

        // one whose static pod runs is taken over as it is
        let adopted = c.server.create(&mirror("h1"));
        c.quiet().await;
        c.publish(&static_pod("h1"), "Running r", SyncPod, false);
        c.until("its status", |c| c.mirror() == "h1 Running").await;
        c.quiet().await;
        assert_eq!(c.get("s-n1").map(|m| m.uid()), Some(adopted.uid()));
        assert!(c.requests("POST").is_empty());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn static_pod_status_is_one_patch_after_outage() {
    with_cluster(async |c| {
        c.server.faults().down(On::any());
        let pod = static_pod("h1");
        for said in ["Pending w", "Running r", "Pending w", "Running r"] {
            c.publish(&pod, said, SyncPod, false);
            tokio::time::sleep(Duration::from_secs(100)).await;
        }
        c.server.faults().clear();
        c.until("a mirror", |c| c.mirror() == "h1 Running").await;
        c.quiet().await;
        assert_eq!((c.done("POST").len(), c.done("PATCH").len()), (1, 1));
    })
    .await;
}
