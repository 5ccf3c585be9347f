//! The actor with a SyncLoop's mailbox at the other end.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use serde_json::json;
use tokio::sync::watch;
use windlass_actors::{ConfigChanged, RejectedManifest, SourceSnapshot};
use windlass_mailboxes::{ActorKind, Mailbox, MailboxSender, SystemClock, mailbox};
use windlass_manifests::merge::Mode;
use windlass_metrics::Metrics;
use windlass_timelines::Timelines;
use windlass_types::view::EventType;
use windlass_types::{EventRecorder, Pod, PodOp, PodSource, Reason, SharedPod};

use super::{PodStorage, PodStorageDeps};

#[derive(Debug, Default)]
struct FakeRecorder(Mutex<Vec<String>>);

impl EventRecorder for FakeRecorder {
    fn record_node(&self, _: EventType, _: Reason, _: &str) {}

    fn record(&self, _: &Pod, _: Option<&str>, _: EventType, reason: Reason, message: &str) {
        let line = format!("{reason}: {message}");
        self.0.lock().expect("not poisoned").push(line);
    }
}

struct Storage {
    sources: MailboxSender<SourceSnapshot>,
    sync_loop: Mailbox<ConfigChanged>,
    rejected: watch::Receiver<Vec<RejectedManifest>>,
    events: Arc<FakeRecorder>,
}

impl Storage {
    fn start() -> Self {
        let metrics = Metrics::new().expect("metrics");
        let (sources, mail) = mailbox(crate::POD_STORAGE, &metrics.mailboxes);
        let (sender, sync_loop) = mailbox(ActorKind::new("SyncLoop", 50), &metrics.mailboxes);
        let (rejected_sender, rejected) = watch::channel(Vec::new());
        let events = Arc::new(FakeRecorder::default());
        let deps = PodStorageDeps {
            mode: Mode::Incremental,
            sources: BTreeSet::from([PodSource::File]),
            clock: Arc::new(SystemClock),
            events: Arc::clone(&events) as Arc<dyn EventRecorder>,
            timelines: Timelines::new(Arc::new(SystemClock), None),
            sync_loop: sender,
            rejected: rejected_sender,
        };
        windlass_mailboxes::start_actor(PodStorage::new(deps, mail));
        Self {
            sources,
            sync_loop,
            rejected,
            events,
        }
    }

    async fn send(&self, op: PodOp, pods: Vec<SharedPod>, rejected: &[&str]) {
        let rejected = rejected.iter().map(|origin| RejectedManifest {
            origin: (*origin).to_owned(),
            error: "wrong".to_owned(),
        });
        let snapshot = SourceSnapshot {
            source: PodSource::File,
            op,
            pods,
            rejected: rejected.collect(),
        };
        self.sources.send(snapshot).await.expect("delivered");
    }

    async fn receive(&mut self) -> String {
        let delivery = self.sync_loop.next().await.expect("a change");
        delivery.open(|ConfigChanged(update)| update.to_string())
    }
}

fn pod(name: &str, uid: &str) -> SharedPod {
    let pod = json!({"metadata": {"name": name, "namespace": "d", "uid": uid}, "spec": {"containers": []}});
    Arc::new(serde_json::from_value(pod).expect("a pod"))
}

async fn local(test: impl Future<Output = ()>) {
    let limit = std::time::Duration::from_secs(20);
    let run = tokio::task::LocalSet::new();
    tokio::time::timeout(limit, run.run_until(test))
        .await
        .expect("in time");
}

#[tokio::test]
async fn changes_reach_sync_loop_in_order_and_rejections_watch() {
    local(async {
        let mut storage = Storage::start();
        storage.send(PodOp::Restore, vec![pod("r", "0")], &[]).await;
        assert_eq!(storage.receive().await, "RESTORE file [r_d]");
        let pods = vec![pod("a", "1"), pod("a", "2")];
        storage.send(PodOp::Set, pods, &["/m/x.yaml"]).await;
        assert_eq!(storage.receive().await, "REMOVE file [r_d]");
        assert_eq!(storage.receive().await, "ADD file [a_d]");
        let rejected: Vec<String> = storage
            .rejected
            .borrow_and_update()
            .iter()
            .map(|r| r.origin.clone())
            .collect();
        assert_eq!(rejected, ["/m/x.yaml", "pod a_d"]);
        assert_eq!(
            *storage.events.0.lock().expect("not poisoned"),
            [
                "FailedValidation: Error validating pod a_d from file due to duplicate pod name \"a\", ignoring"
            ]
        );
        storage.send(PodOp::Set, vec![], &[]).await;
        assert_eq!(storage.receive().await, "REMOVE file [a_d]");
        assert!(storage.rejected.borrow().is_empty());
    })
    .await;
}

#[tokio::test]
async fn full_sync_loop_delays_sources_without_loss() {
    local(async {
        let mut storage = Storage::start();
        let rounds = 4 * ActorKind::new("SyncLoop", 50).mailbox_bound();
        let sources = storage.sources.clone();
        let sending = tokio::spawn(async move {
            for round in 0..rounds {
                let name = format!("p{round}");
                let snapshot = SourceSnapshot {
                    source: PodSource::File,
                    op: PodOp::Add,
                    pods: vec![pod(&name, &name)],
                    rejected: Vec::new(),
                };
                sources.send(snapshot).await.expect("delivered");
            }
        });
        for round in 0..rounds {
            assert_eq!(storage.receive().await, format!("ADD file [p{round}_d]"));
        }
        sending.await.expect("sent");
    })
    .await;
}

#[tokio::test]
async fn first_of_two_pods_with_same_name_runs() {
    local(async {
        let directory = tempfile::TempDir::new().expect("a directory");
        let write = |file: &str, image: &str| {
            let text = format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec: {{containers: [{{name: c, image: {image}}}]}}\n"
            );
            std::fs::write(directory.path().join(file), text).expect("written");
        };
        write("a.yaml", "a");
        write("b.yaml", "b");
        let mut storage = Storage::start();
        windlass_mailboxes::start_actor(crate::FileSource::new(crate::FileSourceConfig {
            path: directory.path().to_owned(),
            node_name: "n".into(),
            period: std::time::Duration::from_secs(3600),
            clock: Arc::new(SystemClock),
            storage: storage.sources.clone(),
        }));
        assert_eq!(storage.receive().await, "ADD file [web-n_default]");
        let rejected = storage.rejected.borrow_and_update().clone();
        let errors: Vec<&str> = rejected.iter().map(|r| r.error.as_str()).collect();
        let at = directory.path().display();
        assert_eq!(
            errors,
            [
                &format!(
                    "{at}/b.yaml: pod web-n_default is defined by {at}/a.yaml already (rename or remove one of them)"
                ),
                "Error validating pod web-n_default from file due to duplicate pod name \"web-n\", ignoring",
            ]
        );
        std::fs::remove_file(directory.path().join("a.yaml")).expect("removed");
        assert_eq!(storage.receive().await, "REMOVE file [web-n_default]");
        assert_eq!(storage.receive().await, "ADD file [web-n_default]");
        assert!(storage.rejected.borrow().is_empty());
    })
    .await;
}
