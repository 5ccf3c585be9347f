//! The client against a real containerd.

#![allow(clippy::expect_used, reason = "a helper of a test fails it")]

use std::time::Duration;

use futures::StreamExt;
use windlass_cri::{CriClient, CriCode, CriOptions, ImageService, RuntimeService};
use windlass_metrics::Metrics;
use windlass_testing::containerd::PrivateContainerd;
use windlass_testing::environment::scaled;
use windlass_testing::images;
use windlass_types::cri::{ContainerConfig, ListFilter, RuntimeEventKind, SandboxConfig};
use windlass_types::{ContainerState, Retry, names};

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

fn client(containerd: &PrivateContainerd) -> CriClient {
    let options = CriOptions::new(Metrics::new().expect("metrics").runtime_calls);
    let endpoint = format!("unix://{}", containerd.socket().display());
    CriClient::connect(&endpoint, options).expect("endpoint")
}

fn sandbox_config(containerd: &PrivateContainerd) -> SandboxConfig {
    SandboxConfig {
        name: "web".into(),
        namespace: "default".into(),
        uid: "u-cri".into(),
        log_directory: containerd.base().join("logs/web").display().to_string(),
        labels: [(names::LABEL_POD_UID.to_owned(), "u-cri".to_owned())].into(),
        // containerd's default parent is not a slice, which runc requires with systemd
        cgroup_parent: containerd.cgroup_layout().kubepods(),
        ..SandboxConfig::default()
    }
}

fn container_config(attempt: u32, script: &str) -> ContainerConfig {
    ContainerConfig {
        name: "app".into(),
        attempt,
        image: images::BUSYBOX.into(),
        command: ["sh", "-c", script].map(str::to_owned).to_vec(),
        labels: [(names::LABEL_POD_UID.to_owned(), "u-cri".to_owned())].into(),
        annotations: [
            (names::ANN_CONTAINER_HASH.to_owned(), "12ab34cd".to_owned()),
            (names::ANN_RESTART_COUNT.to_owned(), attempt.to_string()),
        ]
        .into(),
        log_path: format!("app/{attempt}.log"),
        ..ContainerConfig::default()
    }
}

#[tokio::test]
async fn on_containerd_pod_lifecycle_has_an_event_for_each_step() {
    let containerd = PrivateContainerd::start("t-cri", |_| ())
        .await
        .expect("containerd");
    let client = client(&containerd);
    let version = client.version().await.expect("version");
    assert_eq!(
        (version.name.as_str(), version.api_version.as_str()),
        ("containerd", "v1")
    );
    let status = client.status().await.expect("status");
    assert_eq!((status.runtime_error, status.network_error), (None, None));

    let mut events = client.events().await.expect("events");
    let config = sandbox_config(&containerd);
    let sandbox = client.run_pod_sandbox(&config, "").await.expect("sandbox");
    let detail = client.pod_sandbox_status(&sandbox).await.expect("detail");
    assert_eq!(
        (detail.ips.len(), detail.summary.ready),
        (1, true),
        "{detail:?}"
    );
    assert_eq!(detail.summary.uid.as_str(), "u-cri");
    let error = client
        .run_pod_sandbox(&config, "")
        .await
        .expect_err("its name is taken");
    // the code differs between containerd 1.6 and 2.x
    assert!(error.message.contains("is reserved for"), "{error}");
    assert_eq!(error.retry(), Retry::Later, "{error}");

    let first = container_config(0, "echo hello; exit 3");
    let id = client
        .create_container(&sandbox, &first, &config)
        .await
        .expect("container");
    client.start_container(&id).await.expect("started");

    // an exit event is sent only after containerd's CRI state shows the exit
    loop {
        let event = tokio::time::timeout(scaled(WAIT_TIMEOUT), events.next())
            .await
            .expect("in time");
        let event = event.expect("event").expect("event");
        if event.kind == RuntimeEventKind::Stopped && event.id == id.as_str() {
            break;
        }
    }
    let observed = client.container_status(&id).await.expect("status").observed;
    assert_eq!(observed.state, ContainerState::Exited);
    assert_eq!((observed.exit_code, observed.reason.as_str()), (3, "Error"));
    assert_eq!(
        (observed.hash, observed.restart_count),
        (Some(0x12ab_34cd), 0)
    );
    // not ordered: containerd 1.6 may record the start after the exit
    assert!(observed.started_at.is_some() && observed.finished_at.is_some());
    assert!(
        observed.log_path.ends_with("logs/web/app/0.log"),
        "{observed:?}"
    );
    let log = std::fs::read_to_string(&observed.log_path).expect("log");
    assert!(log.contains("stdout F hello"), "{log}");

    let second = container_config(1, "sleep 1000");
    let second = client
        .create_container(&sandbox, &second, &config)
        .await
        .expect("container");
    client.start_container(&second).await.expect("started");
    let rows = client
        .list_containers(&ListFilter::of_pod(&"u-cri".into()))
        .await
        .expect("rows");
    assert_eq!(rows.len(), 2);
    // containerd has streams of lists since 2.3; before, they fall back
    let options = CriOptions {
        stream_lists: true,
        ..CriOptions::new(Metrics::new().expect("metrics").runtime_calls)
    };
    let streaming = CriClient::connect(&containerd.endpoint(), options).expect("endpoint");
    let all = ListFilter::default();
    assert_eq!(
        streaming.list_containers(&all).await.expect("rows").len(),
        2
    );
    let sandboxes = streaming.list_pod_sandboxes(&all).await.expect("rows");
    assert_eq!(sandboxes.len(), 1);
    client
        .stop_container(&second, Duration::from_secs(1))
        .await
        .expect("stopped");
    client
        .stop_container(&second, Duration::from_secs(1))
        .await
        .expect("again");
    client.stop_pod_sandbox(&sandbox).await.expect("stopped");
    client.remove_container(&id).await.expect("removed");
    client.remove_container(&id).await.expect("again");
    client
        .stop_container(&id, Duration::ZERO)
        .await
        .expect("not there");
    let gone = client.container_status(&id).await.expect_err("not there");
    assert_eq!(gone.code, CriCode::NotFound, "{gone}");
    client.remove_pod_sandbox(&sandbox).await.expect("removed");
    client.stop_pod_sandbox(&sandbox).await.expect("not there");
    client
        .remove_pod_sandbox(&sandbox)
        .await
        .expect("not there");
    let gone = client
        .pod_sandbox_status(&sandbox)
        .await
        .expect_err("not there");
    assert_eq!(gone.code, CriCode::NotFound, "{gone}");
    containerd.stop().await.expect("stopped");
}

#[tokio::test]
async fn on_containerd_image_status_finds_only_present_images() {
    let containerd = PrivateContainerd::start("t-cri-images", |_| ())
        .await
        .expect("containerd");
    let client = client(&containerd);
    let image = client
        .image_status(images::BUSYBOX)
        .await
        .expect("answer")
        .expect("there");
    assert!(
        image.id.starts_with("sha256:") && image.size > 0,
        "{image:?}"
    );
    assert!(client.list_images().await.expect("images").contains(&image));
    assert_eq!(
        client
            .image_status("localhost/not/there:1")
            .await
            .expect("answer"),
        None
    );
    client
        .remove_image("localhost/not/there:1")
        .await
        .expect("not there");
    containerd.stop().await.expect("stopped");
}

#[tokio::test]
async fn on_containerd_client_and_events_survive_a_daemon_restart() {
    let mut containerd = PrivateContainerd::start("t-cri-back", |_| ())
        .await
        .expect("containerd");
    let client = client(&containerd);
    let mut events = client.events().await.expect("events");
    containerd.kill_daemon().expect("killed");
    let last = tokio::time::timeout(scaled(WAIT_TIMEOUT), events.next())
        .await
        .expect("in time");
    let error = last.expect("an end").expect_err("the connection is lost");
    assert_eq!(error.code, CriCode::Unavailable, "{error}");
    assert_eq!(
        client.version().await.expect_err("gone").code,
        CriCode::Unavailable
    );
    containerd.start_daemon().await.expect("started");
    let back = async {
        while client.version().await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(scaled(WAIT_TIMEOUT), back)
        .await
        .expect("back in time");
    drop(client.events().await.expect("events"));
    containerd.stop().await.expect("stopped");
}
