//! The model in process, with paused time.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use windlass_cri::{CriCode, CriResult, ImageService, RuntimeService};
use windlass_mailboxes::clock::SimClock;
use windlass_types::cri::{ContainerConfig, ListFilter, NamespaceMode, SandboxConfig};
use windlass_types::{ContainerId, ContainerState, PodUid, SandboxId, Timestamp, names};

use super::{Behavior, EventMode, Exec, FakeRuntime, Fault, Operation, Outcome, Pull};

fn start_time() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().expect("time")
}

fn fake() -> FakeRuntime {
    let fake = FakeRuntime::new(Arc::new(SimClock::starting_at(start_time())), 7);
    fake.add_image("busybox");
    fake
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn sandbox_config(attempt: u32) -> SandboxConfig {
    SandboxConfig {
        name: "web".into(),
        namespace: "default".into(),
        uid: "u1".into(),
        attempt,
        log_directory: "/var/log/pods/default_web_u1".into(),
        labels: [(names::LABEL_POD_UID.to_owned(), "u1".to_owned())].into(),
        ..SandboxConfig::default()
    }
}

fn container_config(attempt: u32) -> ContainerConfig {
    ContainerConfig {
        name: "app".into(),
        attempt,
        image: "busybox".into(),
        user_specified_image: "busybox".into(),
        log_path: format!("app/{attempt}.log"),
        labels: [(names::LABEL_POD_UID.to_owned(), "u1".to_owned())].into(),
        annotations: [
            (names::ANN_CONTAINER_HASH.to_owned(), "ab".to_owned()),
            (names::ANN_RESTART_COUNT.to_owned(), attempt.to_string()),
        ]
        .into(),
        ..ContainerConfig::default()
    }
}

async fn sandbox(fake: &FakeRuntime) -> SandboxId {
    fake.run_pod_sandbox(&sandbox_config(0), "")
        .await
        .expect("sandbox")
}

async fn created(fake: &FakeRuntime, sandbox: &SandboxId, attempt: u32) -> ContainerId {
    fake.create_container(sandbox, &container_config(attempt), &sandbox_config(0))
        .await
        .expect("container")
}

async fn started(fake: &FakeRuntime) -> (SandboxId, ContainerId) {
    let sandbox = sandbox(fake).await;
    let container = created(fake, &sandbox, 0).await;
    fake.start_container(&container).await.expect("started");
    (sandbox, container)
}

fn views(fake: &FakeRuntime) -> String {
    let views = fake.containers(&PodUid::from("u1"));
    views
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

#[track_caller]
fn check<T: std::fmt::Debug>(result: CriResult<T>, expected: &str) {
    let line = match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("{:?} {}", error.code, error.message),
    };
    assert!(line.starts_with(expected), "{line}");
}

#[tokio::test(start_paused = true)]
async fn container_exits_after_its_run_time_with_event() {
    let fake = fake();
    fake.set_behavior("app", Behavior::exits(seconds(10), 3));
    let mut events = fake.events().await.expect("events");
    let (_, id) = started(&fake).await;
    tokio::time::sleep(Duration::from_millis(9_999)).await;
    assert_eq!(views(&fake), "app#0 Running");
    tokio::time::sleep(Duration::from_millis(1)).await;
    let detail = fake.container_status(&id).await.expect("status").observed;
    assert_eq!(
        (detail.state, detail.exit_code),
        (ContainerState::Exited, 3)
    );
    assert_eq!(detail.reason, "Error");
    assert_eq!(detail.finished_at, Some(start_time() + seconds(10)));
    assert_eq!((detail.hash, detail.restart_count), (Some(0xab), 0));
    assert_eq!(detail.log_path, "/var/log/pods/default_web_u1/app/0.log");
    let mut kinds = Vec::new();
    for _ in 0..5 {
        let event = events.next().await.expect("event").expect("event");
        assert_eq!(event.uid, Some(PodUid::from("u1")));
        kinds.push(format!("{:?}", event.kind));
    }
    assert_eq!(kinds.join(" "), "Created Started Created Started Stopped");
}

#[tokio::test(start_paused = true)]
async fn exit_event_is_sent_on_time_without_calls() {
    let fake = fake();
    fake.set_behavior("app", Behavior::exits(seconds(10), 0));
    started(&fake).await;
    let mut events = fake.events().await.expect("events");
    let before = tokio::time::Instant::now();
    let event = events.next().await.expect("event").expect("event");
    assert_eq!(format!("{:?}", event.kind), "Stopped");
    assert_eq!(before.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn stop_kills_container_after_timeout() {
    let fake = fake();
    let polite = Behavior {
        stops_after: seconds(2),
        ..Behavior::default()
    };
    fake.set_behavior("app", polite);
    let (sandbox, id) = started(&fake).await;
    let before = tokio::time::Instant::now();
    fake.stop_container(&id, seconds(30))
        .await
        .expect("stopped");
    assert_eq!(before.elapsed(), seconds(2));
    assert_eq!(views(&fake), "app#0 Exited(143)");

    fake.set_behavior("app", Behavior::stubborn());
    let id = created(&fake, &sandbox, 1).await;
    fake.start_container(&id).await.expect("started");
    let before = tokio::time::Instant::now();
    fake.stop_container(&id, seconds(30))
        .await
        .expect("stopped");
    assert_eq!(before.elapsed(), seconds(30));
    assert_eq!(views(&fake), "app#0 Exited(143), app#1 Exited(137)");
    // stop is idempotent, also for a missing container
    fake.stop_container(&id, seconds(30))
        .await
        .expect("stopped");
    fake.stop_container(&"missing".into(), seconds(30))
        .await
        .expect("stopped");
    fake.assert_invariants();
}

#[tokio::test(start_paused = true)]
async fn cancelled_stop_has_sent_signal() {
    let fake = fake();
    fake.set_behavior(
        "app",
        Behavior {
            stops_after: seconds(5),
            ..Behavior::default()
        },
    );
    let (_, id) = started(&fake).await;
    let stop = fake.stop_container(&id, seconds(30));
    assert!(tokio::time::timeout(seconds(1), stop).await.is_err());
    assert_eq!(views(&fake), "app#0 Running");
    tokio::time::sleep(seconds(4)).await;
    assert_eq!(views(&fake), "app#0 Exited(143)");
}

#[tokio::test(start_paused = true)]
async fn script_sets_behavior_of_each_start() {
    let fake = fake();
    let crash = Behavior::exits(seconds(1), 1);
    let broken = Behavior::fails_to_start("exec: \"nope\": not found");
    fake.script("default/web/app", vec![crash, broken]);
    let (sandbox, _) = started(&fake).await;
    tokio::time::sleep(seconds(1)).await;
    let id = created(&fake, &sandbox, 1).await;
    check(
        fake.start_container(&id).await,
        "Other exec: \"nope\": not found",
    );
    assert_eq!(views(&fake), "app#0 Exited(1), app#1 Exited(128)");
    assert_eq!(fake.starts(&"u1".into(), "app"), 1);
    fake.set_behavior("default/web/app", Behavior::default());
    let id = created(&fake, &sandbox, 2).await;
    fake.start_container(&id).await.expect("started");
    fake.oom_kill(&id);
    let detail = fake.container_status(&id).await.expect("status").observed;
    assert_eq!(
        (detail.reason.as_str(), detail.exit_code),
        ("OOMKilled", 137)
    );
    fake.assert_invariants();
}

#[tokio::test(start_paused = true)]
async fn names_stay_reserved_until_their_object_is_removed() {
    let fake = fake();
    let first = sandbox(&fake).await;
    check(
        fake.run_pod_sandbox(&sandbox_config(0), "").await,
        "Other failed to reserve sandbox name \"web_default_u1_0\"",
    );
    let id = created(&fake, &first, 0).await;
    check(
        fake.create_container(&first, &container_config(0), &sandbox_config(0))
            .await,
        "Other failed to reserve container name \"app_web_default_u1_0\"",
    );
    fake.remove_container(&id).await.expect("removed");
    created(&fake, &first, 0).await;
    fake.remove_pod_sandbox(&first).await.expect("removed");
    assert_eq!(views(&fake), "");
    sandbox(&fake).await;
}

#[tokio::test(start_paused = true)]
async fn failed_or_dropped_call_releases_its_name() {
    let fake = fake();
    fake.set_latency(Operation::RunPodSandbox, seconds(3));
    let config = sandbox_config(0);
    let call = fake.run_pod_sandbox(&config, "");
    assert!(tokio::time::timeout(seconds(1), call).await.is_err());
    fake.inject(Fault::fail(
        Operation::RunPodSandbox,
        1,
        CriCode::Other,
        "no network",
    ));
    check(
        fake.run_pod_sandbox(&sandbox_config(0), "").await,
        "Other no network",
    );
    sandbox(&fake).await;
    let outcomes: Vec<String> = fake.calls().iter().map(ToString::to_string).collect();
    assert_eq!(
        outcomes,
        [
            "run_podsandbox default/web (open)",
            "run_podsandbox default/web (Other)",
            "run_podsandbox default/web",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn lost_reply_has_taken_effect() {
    let fake = fake();
    fake.inject(Fault::lose_reply(Operation::RunPodSandbox, 1));
    check(
        fake.run_pod_sandbox(&sandbox_config(0), "").await,
        "DeadlineExceeded",
    );
    assert_eq!(fake.sandboxes().len(), 1);
    check(
        fake.run_pod_sandbox(&sandbox_config(0), "").await,
        "Other failed to reserve",
    );
    sandbox_with(&fake, 1).await;
}

async fn sandbox_with(fake: &FakeRuntime, attempt: u32) -> SandboxId {
    fake.run_pod_sandbox(&sandbox_config(attempt), "")
        .await
        .expect("sandbox")
}

#[tokio::test(start_paused = true)]
async fn hang_ends_by_release_or_deadline_for_its_subject() {
    let fake = fake();
    fake.inject(Fault::hang(Operation::StartContainer).on("default/web/app"));
    let sandbox = sandbox(&fake).await;
    let app = created(&fake, &sandbox, 0).await;
    let other = ContainerConfig {
        name: "other".into(),
        ..container_config(0)
    };
    let other = fake
        .create_container(&sandbox, &other, &sandbox_config(0))
        .await
        .expect("container");
    fake.start_container(&other).await.expect("not concerned");
    let before = tokio::time::Instant::now();
    check(fake.start_container(&app).await, "DeadlineExceeded");
    assert_eq!(before.elapsed(), seconds(120));
    let waiting = tokio::spawn({
        let (fake, app) = (fake.clone(), app.clone());
        async move { fake.start_container(&app).await }
    });
    tokio::time::sleep(seconds(1)).await;
    assert!(!waiting.is_finished());
    fake.release(Operation::StartContainer);
    waiting.await.expect("joined").expect("started");
    assert_eq!(views(&fake), "app#0 Running, other#0 Running");
    let calls = fake.calls_of(Operation::StartContainer, "default/web/app#0");
    let outcomes: Vec<Outcome> = calls.iter().map(|call| call.outcome).collect();
    assert_eq!(
        outcomes,
        [Outcome::Failed(CriCode::DeadlineExceeded), Outcome::Done]
    );
}

#[tokio::test(start_paused = true)]
async fn runtime_down_fails_calls_and_keeps_containers() {
    let fake = fake();
    let mut events = fake.events().await.expect("events");
    fake.set_behavior("app", Behavior::exits(seconds(5), 0));
    started(&fake).await;
    fake.set_down(true);
    check(
        fake.list_containers(&ListFilter::default()).await,
        "Unavailable",
    );
    let last = events
        .filter(|item| std::future::ready(item.is_err()))
        .next()
        .await;
    check(last.expect("an end"), "Unavailable");
    tokio::time::sleep(seconds(5)).await;
    fake.set_down(false);
    assert_eq!(views(&fake), "app#0 Exited(0)");
    events = fake.events().await.expect("events");
    drop(events);
}

#[tokio::test(start_paused = true)]
async fn events_can_be_off_dropped_or_duplicated() {
    let fake = fake();
    fake.set_event_mode(EventMode::Off);
    check(fake.events().await.map(|_| ()), "Unimplemented");
    fake.set_event_mode(EventMode::Containerd);
    let mut events = fake.events().await.expect("events");
    fake.drop_events(1);
    fake.duplicate_events(1);
    sandbox(&fake).await;
    for _ in 0..2 {
        let event = events.next().await.expect("event").expect("event");
        assert_eq!(format!("{:?} {:?}", event.kind, event.uid), "Started None");
    }
}

#[tokio::test(start_paused = true)]
async fn invariant_violations_are_detected() {
    let fake = fake();
    let (sandbox, _) = started(&fake).await;
    fake.assert_invariants();
    let second = created(&fake, &sandbox, 1).await;
    fake.start_container(&second)
        .await
        .expect("the model lets it happen");
    assert_eq!(fake.duplicate_live_instances().len(), 1);

    let third = created(&fake, &sandbox, 2).await;
    fake.kill_sandbox(&sandbox);
    assert_eq!(
        views(&fake),
        "app#0 Exited(137), app#1 Exited(137), app#2 Created"
    );
    check(
        fake.start_container(&third).await,
        "Other sandbox container",
    );
    assert_eq!(fake.starts_in_unready_sandbox().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn images_are_absent_pulled_or_rejected() {
    let fake = fake();
    let config = sandbox_config(0);
    assert_eq!(fake.image_status("nginx:1").await.expect("answer"), None);
    let sandbox = sandbox(&fake).await;
    let container = ContainerConfig {
        image: "nginx:1".into(),
        ..container_config(0)
    };
    check(
        fake.create_container(&sandbox, &container, &config).await,
        "NotFound failed to resolve image \"nginx:1\": not found",
    );
    fake.set_pull(
        "nginx:1",
        Pull {
            takes: seconds(4),
            ..Pull::default()
        },
    );
    let before = tokio::time::Instant::now();
    let id = fake
        .pull_image("nginx:1", None, &config)
        .await
        .expect("pulled");
    assert_eq!(before.elapsed(), seconds(4));
    let container = ContainerConfig {
        image: id,
        ..container
    };
    let id = fake
        .create_container(&sandbox, &container, &config)
        .await
        .expect("container");
    let detail = fake.container_status(&id).await.expect("status").observed;
    assert_eq!(detail.image, "docker.io/library/nginx:1");
    assert!(
        detail
            .image_id
            .starts_with("docker.io/library/nginx@sha256:")
    );
    fake.set_pull("nope:1", Pull::not_found("nope:1"));
    check(
        fake.pull_image("nope:1", None, &config).await,
        "NotFound failed to pull",
    );
    fake.remove_image("nginx:1").await.expect("removed");
    assert_eq!(fake.list_images().await.expect("images").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn sandbox_has_address_until_stop_unless_host_network() {
    let fake = fake();
    let first = sandbox(&fake).await;
    let detail = fake.pod_sandbox_status(&first).await.expect("status");
    assert_eq!(
        format!("{:?} {}", detail.ips, detail.host_network),
        "[10.88.0.2] false"
    );
    fake.stop_pod_sandbox(&first).await.expect("stopped");
    let detail = fake.pod_sandbox_status(&first).await.expect("status");
    assert_eq!((detail.ips.len(), detail.summary.ready), (0, false));

    let mut config = sandbox_config(1);
    config.security.namespaces.network = NamespaceMode::Node;
    let second = fake.run_pod_sandbox(&config, "").await.expect("sandbox");
    let detail = fake.pod_sandbox_status(&second).await.expect("status");
    assert!(detail.host_network && detail.ips.is_empty());
    let rows = fake
        .list_pod_sandboxes(&ListFilter::of_pod(&"u1".into()))
        .await
        .expect("rows");
    assert_eq!(rows.len(), 2);
    let rows = fake
        .list_pod_sandboxes(&ListFilter::of_pod(&"u2".into()))
        .await
        .expect("rows");
    assert_eq!(rows.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn runs_with_equal_seed_are_equal() {
    async fn run(seed: u64) -> String {
        let fake = FakeRuntime::new(Arc::new(SimClock::starting_at(start_time())), seed);
        fake.add_image("busybox");
        fake.set_behavior("app", Behavior::exits(seconds(2), 1));
        started(&fake).await;
        tokio::time::sleep(seconds(3)).await;
        format!(
            "{:?} {:?} {:?}",
            fake.sandboxes(),
            fake.all_containers(),
            fake.calls()
        )
    }
    let first = run(1).await;
    assert_eq!(first, run(1).await);
    assert_ne!(first, run(2).await);
}

#[tokio::test(start_paused = true)]
async fn command_ends_by_script_timeout_or_container_exit() {
    let fake = fake();
    let (_, id) = started(&fake).await;
    let uid = PodUid::from("u1");
    let run = |command: &'static str| {
        let (fake, id) = (fake.clone(), id.clone());
        async move {
            let begun = tokio::time::Instant::now();
            let result = fake.exec_sync(&id, &[command.into()], seconds(2)).await;
            let line = match result {
                Ok(output) => format!("{} {:?}", output.exit_code, output.stdout),
                Err(error) => format!("{:?}: {}", error.code, error.message),
            };
            format!("{line} after {:?}", begun.elapsed())
        }
    };
    assert_eq!(run("true").await, "0 [] after 0ns");

    fake.set_exec("default/web/app", Exec::prints(3, "no"));
    fake.set_exec("app slow", Exec::hangs());
    fake.set_exec("app broken", Exec::fails(CriCode::Other, "no such file"));
    assert_eq!(run("false").await, "3 [110, 111] after 0ns");
    assert_eq!(run("broken").await, "Other: no such file after 0ns");
    assert_eq!(
        run("slow").await,
        "DeadlineExceeded: failed to exec in container: timeout 2s exceeded: context deadline \
         exceeded after 2s"
    );

    let (one, two) = (tokio::spawn(run("slow")), tokio::spawn(run("slow")));
    tokio::time::sleep(seconds(1)).await;
    assert_eq!(fake.execs_in_flight(&uid, "app"), 2);
    fake.kill_container(&id, 1);
    assert_eq!(one.await.expect("ran"), "137 [] after 1s");
    assert_eq!(two.await.expect("ran"), "137 [] after 1s");
    assert_eq!(
        run("true").await,
        "Other: failed to exec in container: container is in CONTAINER_EXITED state after 0ns"
    );
    assert_eq!(fake.execs_in_flight(&uid, "app"), 0);
    assert_eq!(fake.max_execs_in_flight(&uid, "app"), 2);
    assert_eq!(fake.execs(&uid, "app"), 7);
}

#[tokio::test(start_paused = true)]
async fn hung_command_is_in_flight_until_caller_cancels() {
    let fake = fake();
    let (_, id) = started(&fake).await;
    fake.inject(Fault::hang(Operation::ExecSync).on("default/web/app"));
    let command = ["true".to_owned()];
    let call = fake.exec_sync(&id, &command, seconds(1));
    tokio::time::timeout(seconds(30), call)
        .await
        .expect_err("hangs");
    let uid = PodUid::from("u1");
    assert_eq!(fake.execs(&uid, "app"), 1);
    assert_eq!(fake.execs_in_flight(&uid, "app"), 0);
    fake.script_execs("app", vec![Exec::exits(0), Exec::exits(1), Exec::exits(0)]);
    fake.release(Operation::ExecSync);
    let mut codes = Vec::new();
    for _ in 0..3 {
        let output = fake.exec_sync(&id, &command, seconds(1)).await;
        codes.push(output.expect("ran").exit_code);
    }
    // after the hung one
    assert_eq!(codes, [1, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn start_is_cut_off_when_its_caller_goes_away() {
    let fake = fake();
    let sandbox = sandbox(&fake).await;
    let id = created(&fake, &sandbox, 0).await;
    fake.set_latency(Operation::StartContainer, seconds(2));
    let call = tokio::time::timeout(seconds(1), fake.start_container(&id));
    assert!(call.await.is_err());
    assert_eq!(views(&fake), "app#0 Created");
    check(
        fake.remove_container(&id).await,
        "Other container is in starting",
    );
    check(
        fake.start_container(&id).await,
        "Other container is already",
    );
    tokio::time::sleep(seconds(3)).await;
    assert_eq!(views(&fake), "app#0 Exited(128)");
    let detail = fake.container_status(&id).await.expect("status").observed;
    assert_eq!((detail.started_at, &*detail.reason), (None, "StartError"));
    assert!(detail.message.contains("context canceled"), "{detail:?}");
    assert_eq!(fake.starts(&PodUid::from("u1"), "app"), 0);
    check(fake.start_container(&id).await, "Other container");
}

#[tokio::test(start_paused = true)]
async fn container_is_created_although_its_caller_goes_away() {
    let fake = fake();
    let sandbox = sandbox(&fake).await;
    fake.set_latency(Operation::CreateContainer, seconds(2));
    let call = tokio::time::timeout(seconds(1), created(&fake, &sandbox, 0));
    assert!(call.await.is_err());
    assert_eq!(views(&fake), "app#0 Created");
    let (config, of_pod) = (container_config(0), sandbox_config(0));
    let again = fake.create_container(&sandbox, &config, &of_pod).await;
    check(again, "Other failed to reserve container name");
}
