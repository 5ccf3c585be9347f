//! Merges three pod sources (a directory, a URL and a custom one) and edits a file.
//!
//! `cargo run -p windlass-sources --example merge_sources` creates the directory and the server of
//! the URL, and prints the merged changes.
//!
//! Runs without a container runtime.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;
use windlass_actors::{ConfigChanged, SourceSnapshot};
use windlass_mailboxes::{ActorKind, Mailbox, SystemClock, mailbox, run_actors, start_actor};
use windlass_manifests::merge::Mode;
use windlass_metrics::Metrics;
use windlass_sources::{
    FileSource, FileSourceConfig, HttpSource, HttpSourceConfig, PodStorage, PodStorageDeps,
};
use windlass_timelines::Timelines;
use windlass_types::view::EventType;
use windlass_types::{EventRecorder, Pod, PodOp, PodSource, Reason};

const PERIOD: Duration = Duration::from_secs(20);
const NODE: &str = "node1";

/// Prints events of rejected pods.
#[derive(Debug)]
struct Print;

impl EventRecorder for Print {
    fn record(&self, pod: &Pod, _: Option<&str>, _: EventType, reason: Reason, message: &str) {
        println!("{reason} {:?}: {message}", pod.metadata.name);
    }

    fn record_node(&self, _: EventType, _: Reason, _: &str) {}
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Arc::new(tokio::runtime::Runtime::new()?);
    let all = run_actors(&runtime, async {
        tokio::time::timeout(PERIOD, merge()).await
    });
    all.map_err(|_| "a source did not say what it was to say")?
}

async fn merge() -> Result<(), Box<dyn Error>> {
    let metrics = Metrics::new()?;
    let clock = Arc::new(SystemClock);
    let (storage, snapshots) = mailbox(windlass_sources::POD_STORAGE, &metrics.mailboxes);
    let (sync_loop, mut changes) = mailbox(ActorKind::new("SyncLoop", 50), &metrics.mailboxes);
    let deps = PodStorageDeps {
        mode: Mode::Incremental,
        sources: [PodSource::File, PodSource::Http, PodSource::Api].into(),
        clock: clock.clone(),
        events: Arc::new(Print),
        timelines: Timelines::new(clock.clone(), None),
        sync_loop,
        rejected: watch::Sender::new(Vec::new()),
    };
    start_actor(PodStorage::new(deps, snapshots));

    let directory = tempfile::tempdir()?;
    put(directory.path(), "nginx:1.28")?;
    start_actor(FileSource::new(FileSourceConfig {
        path: directory.path().to_owned(),
        node_name: NODE.to_owned(),
        period: PERIOD,
        clock,
        storage: storage.clone(),
    }));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?).parse()?;
    tokio::spawn(serve(listener));
    start_actor(HttpSource::new(HttpSourceConfig {
        url,
        headers: Default::default(),
        node_name: NODE.to_owned(),
        period: PERIOD,
        storage: storage.clone(),
    }));
    // a custom source sends snapshots
    let mut pod: Pod = serde_json::from_str(&manifest("batch", "busybox"))?;
    pod.metadata.uid = Some("u1".to_owned());
    let own = SourceSnapshot {
        source: PodSource::Api,
        op: PodOp::Set,
        pods: vec![Arc::new(pod)],
        rejected: Vec::new(),
    };
    storage.send(own).await?;

    print_changes(&mut changes, 3).await;
    println!("the manifest is edited");
    put(directory.path(), "nginx:1.29")?;
    // a changed manifest is a new pod: one removal, one addition
    print_changes(&mut changes, 2).await;
    Ok(())
}

async fn print_changes(changes: &mut Mailbox<ConfigChanged>, updates: usize) {
    let mut updates = changes.take(updates);
    while let Some(delivery) = updates.next().await {
        delivery.open(|ConfigChanged(update)| println!("{update}"));
    }
}

/// Writes a manifest atomically: to a temporary file, then renamed.
fn put(directory: &Path, image: &str) -> std::io::Result<()> {
    std::fs::write(directory.join(".web.yaml"), manifest("web", image))?;
    std::fs::rename(directory.join(".web.yaml"), directory.join("web.yaml"))
}

fn manifest(name: &str, image: &str) -> String {
    format!(
        r#"{{"apiVersion": "v1", "kind": "Pod",
            "metadata": {{"name": "{name}", "namespace": "default"}},
            "spec": {{"containers": [{{"name": "{name}", "image": "{image}"}}]}}}}"#
    )
}

async fn serve(listener: TcpListener) -> std::io::Result<()> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        let length = stream.read(&mut [0; 1024]).await?;
        let body = manifest("proxy", "envoy");
        let head = format!("Content-Length: {}\r\nConnection: close", body.len());
        if length > 0 {
            let answer = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).await?;
        }
    }
}
