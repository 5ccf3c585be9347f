//! The executor with the fake runtime: it converges, also after interruptions.

#![allow(clippy::expect_used)] // every function here is part of a test

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use support::{Agent, TokioClock, all_running, in_memory};
use tokio_util::sync::CancellationToken;
use windlass_cri::CriCode;
use windlass_pod_inputs::node_facts::NodeFacts;
use windlass_pod_lifecycle::backoff::BackoffTable;
use windlass_runtime::{KillPodRequest, MemoryFiles, SyncPodRequest};
use windlass_testing::fake_runtime::{Behavior, Fault, Operation};
use windlass_testing::{FakeRuntime, PodBuilder};
use windlass_types::cri::{RuntimeHandler, SupplementalGroupsPolicy, UserNamespace};
use windlass_types::{ContainerState, ObservedPod, Pod, PodExt};

const IMAGE: &str = "registry.local/web:1";

fn agent(seed: u64) -> (Agent, FakeRuntime) {
    let clock = Arc::new(TokioClock::default());
    let fake = FakeRuntime::new(clock.clone(), seed);
    fake.add_image(IMAGE);
    let node = NodeFacts {
        memory_capacity: 1 << 32,
        ..NodeFacts::default()
    };
    let files = in_memory(&MemoryFiles::default());
    (Agent::new(Arc::new(fake.clone()), files, clock, node), fake)
}

fn web() -> Arc<Pod> {
    let pod = PodBuilder::new("web")
        .init_container("setup", IMAGE)
        .container("a", IMAGE)
        .container("b", IMAGE);
    Arc::new(pod.build())
}

#[tokio::test(start_paused = true)]
async fn pod_with_init_container_starts_and_stops() {
    let (agent, fake) = agent(1);
    let pod = web();
    fake.set_behavior("setup", Behavior::exits(Duration::from_secs(1), 0));
    fake.set_behavior("a", Behavior::stubborn());
    agent
        .drive(&pod, BackoffTable::default(), |seen| {
            all_running(&pod, seen)
        })
        .await;
    assert_eq!(fake.starts(&pod.uid(), "setup"), 1);
    let begun = tokio::time::Instant::now();
    let request = KillPodRequest {
        pod: Some(pod.clone()),
        observed: Arc::new(agent.observe(&pod.uid()).await),
        grace: Duration::from_secs(7),
        waited: Duration::ZERO,
        message: String::new(),
    };
    agent
        .runtime
        .kill_pod(request.clone())
        .await
        .expect("killed");
    assert_eq!(
        begun.elapsed().as_secs(),
        7,
        "the stubborn one used its grace"
    );
    agent
        .runtime
        .kill_pod(request)
        .await
        .expect("killing the dead is fine");
    let seen = agent.observe(&pod.uid()).await;
    assert!(seen.running().next().is_none() && !seen.sandboxes[0].ready);
    agent.release(&pod.uid()).await;
    let report = agent
        .runtime
        .collect_garbage(&windlass_runtime::KnownPods {
            sources_ready: true,
            ..Default::default()
        })
        .await;
    assert!(report.failures.is_empty(), "{report:?}");
    assert!(agent.observe(&pod.uid()).await.is_empty());
    fake.assert_invariants();
}

#[tokio::test(start_paused = true)]
async fn crashing_container_restarts_with_doubling_backoff() {
    let (agent, fake) = agent(2);
    let pod = Arc::new(PodBuilder::new("crash").container("a", IMAGE).build());
    fake.set_behavior("a", Behavior::exits(Duration::from_millis(50), 1));
    let begun = tokio::time::Instant::now();
    agent
        .drive(&pod, BackoffTable::default(), |seen| {
            seen.latest("a").is_some_and(|c| c.restart_count >= 4)
        })
        .await;
    // the first restart is immediate, then after 10, 20 and 40 s
    let seconds = begun.elapsed().as_secs();
    assert!((70..74).contains(&seconds), "{seconds}");
    fake.assert_invariants();
}

#[tokio::test(start_paused = true)]
async fn bad_command_crash_loops_with_backoff() {
    let (agent, fake) = agent(3);
    let pod = Arc::new(PodBuilder::new("bad").container("a", IMAGE).build());
    fake.set_behavior("a", Behavior::fails_to_start("exec: \"nope\": not found"));
    let mut backoff = BackoffTable::default();
    let mut reasons = Vec::new();
    for _ in 0..4 {
        let outcome = agent.pass(&pod, backoff).await;
        reasons.extend(outcome.failures.iter().map(|f| f.reason.as_str()));
        backoff = outcome.backoff;
    }
    assert_eq!(
        reasons,
        [
            "RunContainerError",
            "RunContainerError",
            "CrashLoopBackOff",
            "CrashLoopBackOff"
        ]
    );
    fake.assert_invariants();
}

#[tokio::test(start_paused = true)]
async fn sync_cancelled_anywhere_is_completed_by_the_next() {
    for after in 0..60 {
        let (agent, fake) = agent(after);
        let pod = web();
        fake.set_behavior("setup", Behavior::exits(Duration::from_millis(5), 0));
        for operation in [
            Operation::RunPodSandbox,
            Operation::CreateContainer,
            Operation::StartContainer,
            Operation::RemoveContainer,
        ] {
            fake.set_latency(operation, Duration::from_millis(3));
        }
        let mut backoff = BackoffTable::default();
        for _ in 0..4 {
            let cancel = CancellationToken::new();
            let request = SyncPodRequest {
                pod: pod.clone(),
                inputs: Arc::default(),
                volumes: Arc::default(),
                observed: Arc::new(agent.observe(&pod.uid()).await),
                backoff: backoff.clone(),
                probe_results: Arc::default(),
                network_ready: true,
            };
            let pass = agent.runtime.sync_pod(request, cancel.clone());
            let timer = async {
                tokio::time::sleep(Duration::from_millis(after)).await;
                cancel.cancel();
            };
            backoff = tokio::join!(pass, timer).0.backoff;
            // calls in progress when the caller was dropped
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        agent
            .drive(&pod, backoff, |seen| all_running(&pod, seen))
            .await;
        fake.assert_invariants();
        let seen = agent.observe(&pod.uid()).await;
        let ready = seen.sandboxes.iter().filter(|s| s.ready).count();
        assert_eq!(ready, 1, "cancelled after {after} ms: {seen:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn lost_responses_and_failed_calls_only_delay_a_pod() {
    let operations = [
        Operation::RunPodSandbox,
        Operation::PodSandboxStatus,
        Operation::CreateContainer,
        Operation::StartContainer,
        Operation::ImageStatus,
        Operation::StopPodSandbox,
    ];
    for operation in operations {
        for fault in [
            Fault::lose_reply(operation, 2),
            Fault::fail(operation, 2, CriCode::Unavailable, "gone"),
        ] {
            let (agent, fake) = agent(5);
            let pod = web();
            fake.set_behavior("setup", Behavior::exits(Duration::from_millis(5), 0));
            let text = format!("{fault:?}");
            // faults apply to the executor, not to the reads of the test
            if operation != Operation::PodSandboxStatus {
                fake.inject(fault);
            }
            agent
                .drive(&pod, BackoffTable::default(), |seen| {
                    all_running(&pod, seen)
                })
                .await;
            fake.assert_invariants();
            let seen = agent.observe(&pod.uid()).await;
            let live = seen
                .containers
                .iter()
                .filter(|c| c.state == ContainerState::Running);
            assert_eq!(live.count(), 2, "{text}: {seen:#?}");
        }
    }
}

/// A runtime whose default handler supports user namespaces and strict supplemental groups.
fn capable(fake: &FakeRuntime) {
    let handler = RuntimeHandler {
        user_namespaces: true,
        ..RuntimeHandler::default()
    };
    fake.set_features(vec![handler], Some(true));
}

fn with_own_users(name: &str) -> Arc<Pod> {
    let pod = PodBuilder::new(name).uid(name).container("a", IMAGE);
    let own = |pod: &mut Pod| pod.spec.get_or_insert_default().host_users = Some(false);
    Arc::new(pod.with(own).build())
}

/// First ID of a pod that runs: the same for its sandbox and its container.
async fn first_id(agent: &Agent, fake: &FakeRuntime, pod: &Arc<Pod>) -> u32 {
    let running = |seen: &ObservedPod| all_running(pod, seen);
    agent.drive(pod, BackoffTable::default(), running).await;
    let uid = pod.uid();
    let seen = agent.observe(&uid).await;
    let sandbox = &seen.newest_sandbox().expect("a sandbox").id;
    let sandbox = fake.sandbox_config(sandbox).expect("its configuration");
    let container = seen.latest("a").expect("a container");
    let container = fake.container_config(&container.id).expect("its own");
    let users = sandbox.security.namespaces.users;
    assert_eq!(container.security.namespaces.users, users);
    match users {
        UserNamespace::Pod(ids) => {
            assert_eq!((ids.container_id, ids.length), (0, 65_536));
            ids.host_id
        }
        UserNamespace::Node => 0,
    }
}

async fn end(agent: &Agent, pod: &Arc<Pod>) {
    let request = KillPodRequest {
        pod: Some(pod.clone()),
        observed: Arc::new(agent.observe(&pod.uid()).await),
        grace: Duration::from_secs(1),
        waited: Duration::ZERO,
        message: String::new(),
    };
    agent.runtime.kill_pod(request).await.expect("killed");
    agent.release(&pod.uid()).await;
}

#[tokio::test(start_paused = true)]
async fn pods_keep_their_user_ids_over_an_agent_restart() {
    let clock = Arc::new(TokioClock::default());
    let fake = FakeRuntime::new(clock.clone(), 9);
    fake.add_image(IMAGE);
    capable(&fake);
    let files = MemoryFiles::default();
    let start = || {
        let (runtime, files) = (Arc::new(fake.clone()), in_memory(&files));
        Agent::new(runtime, files, clock.clone(), NodeFacts::default())
    };
    let agent = start();
    let [a, b, c, d] = ["a", "b", "c", "d"].map(with_own_users);
    let plain = Arc::new(PodBuilder::new("plain").container("a", IMAGE).build());
    assert_eq!(first_id(&agent, &fake, &a).await, 65_536);
    assert_eq!(first_id(&agent, &fake, &plain).await, 0);
    assert_eq!(first_id(&agent, &fake, &b).await, 131_072);
    let note = files.get(Path::new("/var/lib/kubelet/pods/b/userns"));
    assert_eq!(
        note.expect("a note"),
        "{\"uidMappings\":[{\"hostId\":131072,\"containerId\":0,\"length\":65536}],\
         \"gidMappings\":[{\"hostId\":131072,\"containerId\":0,\"length\":65536}]}"
    );

    let agent = start();
    assert_eq!(first_id(&agent, &fake, &c).await, 196_608);
    fake.set_behavior("a", Behavior::default());
    let seen = agent.observe(&a.uid()).await;
    fake.kill_container(&seen.latest("a").expect("a").id, 1);
    assert_eq!(first_id(&agent, &fake, &a).await, 65_536);
    end(&agent, &a).await;
    assert_eq!(first_id(&agent, &fake, &d).await, 65_536);
    fake.assert_invariants();
}

#[tokio::test(start_paused = true)]
async fn pod_waits_until_runtime_supports_its_isolation() {
    let (agent, fake) = agent(10);
    let strict = |pod: &mut Pod| {
        let spec = pod.spec.get_or_insert_default();
        let security = spec.security_context.get_or_insert_default();
        security.supplemental_groups_policy = Some("Strict".into());
    };
    let strict = PodBuilder::new("strict").container("a", IMAGE).with(strict);
    let strict = Arc::new(strict.build());
    let own = with_own_users("own");
    let refusals = [
        (
            &own,
            "can't set `spec.hostUsers: false`, runtime does not support user namespaces",
        ),
        (
            &strict,
            "SupplementalGroupsPolicy=Strict is not supported in this node",
        ),
    ];
    for (pod, why) in refusals {
        let outcome = agent.pass(pod, BackoffTable::default()).await;
        let failures: Vec<_> = outcome.failures.iter().map(ToString::to_string).collect();
        assert_eq!(
            failures,
            [format!("CreatePodSandboxError retry=later: {why}")]
        );
        assert!(outcome.retry_at.is_some());
        let told = format!("FailedCreatePodSandBox -: Failed to create pod sandbox: {why}");
        assert_eq!(agent.events.lines().last(), Some(&told));
    }
    assert!(fake.sandboxes().is_empty());
    let started = || {
        let metrics = &agent.metrics.containers;
        let errors = metrics.started_user_namespaced_pods_errors.get();
        (metrics.started_user_namespaced_pods.get(), errors)
    };
    assert_eq!(started(), (1.0, 1.0));
    capable(&fake);
    assert_eq!(first_id(&agent, &fake, &own).await, 65_536);
    assert_eq!(started(), (2.0, 1.0));
    assert_eq!(first_id(&agent, &fake, &strict).await, 0);
    assert_eq!(started(), (2.0, 1.0));
    let seen = agent.observe(&strict.uid()).await;
    let container = &seen.latest("a").expect("a container").id;
    let security = fake.container_config(container).expect("its own").security;
    assert_eq!(
        security.supplemental_groups_policy,
        SupplementalGroupsPolicy::Strict
    );
}

#[tokio::test(start_paused = true)]
async fn env_file_is_read_when_the_container_starts() {
    let clock = Arc::new(TokioClock::default());
    let fake = FakeRuntime::new(clock.clone(), 11);
    fake.add_image(IMAGE);
    let files = MemoryFiles::default();
    let agent = Agent::new(
        Arc::new(fake.clone()),
        in_memory(&files),
        clock,
        NodeFacts::default(),
    );
    let pod: Pod = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "u1"},
        "spec": {
            "containers": [{"name": "a", "image": IMAGE, "env": [
                {"name": "X", "valueFrom": {"fileKeyRef": {
                    "volumeName": "config", "path": "app/env", "key": "KEY",
                }}},
            ]}],
            "volumes": [{"name": "config", "emptyDir": {}}],
        },
    }))
    .expect("pod");
    let pod = Arc::new(pod);
    let outcome = agent.pass(&pod, BackoffTable::default()).await;
    let failures: Vec<_> = outcome.failures.iter().map(ToString::to_string).collect();
    assert_eq!(
        failures,
        ["CreateContainerConfigError container=a retry=later: couldn't parse env file"]
    );
    let path = "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~empty-dir/config/app/env";
    files.put(path, "# by init\nKEY='a value'\n");
    let running = |seen: &ObservedPod| all_running(&pod, seen);
    agent.drive(&pod, BackoffTable::default(), running).await;
    let seen = agent.observe(&pod.uid()).await;
    let container = &seen.latest("a").expect("a container").id;
    let config = fake.container_config(container).expect("its own");
    assert_eq!(config.envs, [("X".to_owned(), "a value".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn env_files_are_limited_to_the_request_size() {
    let clock = Arc::new(TokioClock::default());
    let fake = FakeRuntime::new(clock.clone(), 13);
    fake.add_image(IMAGE);
    let (runtime, files) = (Arc::new(fake.clone()), MemoryFiles::default());
    let agent = Agent::new(runtime, in_memory(&files), clock, NodeFacts::default());
    let variables = ["a", "b", "c"].map(|file| {
        let key = serde_json::json!({"volumeName": "v", "path": file, "key": "KEY"});
        serde_json::json!({"name": file, "valueFrom": {"fileKeyRef": key}})
    });
    let pod: Pod = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "u1"},
        "spec": {
            "containers": [{"name": "a", "image": IMAGE, "env": variables}],
            "volumes": [{"name": "v", "emptyDir": {}}],
        },
    }))
    .expect("pod");
    let pod = Arc::new(pod);
    let write = |file: &str, mebibytes: usize| {
        let path = format!("/var/lib/kubelet/pods/u1/volumes/kubernetes.io~empty-dir/v/{file}");
        let rest = "#\n".repeat(mebibytes << 19);
        files.put(path, &format!("KEY='v'\n{rest}"));
    };
    for file in ["a", "b", "c"] {
        write(file, 6);
    }
    let outcome = agent.pass(&pod, BackoffTable::default()).await;
    let failures: Vec<_> = outcome.failures.iter().map(ToString::to_string).collect();
    assert_eq!(
        failures,
        ["CreateContainerConfigError container=a retry=later: couldn't parse env file"]
    );
    write("c", 1);
    let running = |seen: &ObservedPod| all_running(&pod, seen);
    agent.drive(&pod, BackoffTable::default(), running).await;
}

#[tokio::test(start_paused = true)]
async fn hosts_file_is_written_for_each_container_that_mounts_it() {
    let clock = Arc::new(TokioClock::default());
    let fake = FakeRuntime::new(clock.clone(), 12);
    fake.add_image(IMAGE);
    let files = MemoryFiles::default();
    let agent = Agent::new(
        Arc::new(fake.clone()),
        in_memory(&files),
        clock,
        NodeFacts::default(),
    );
    files.put("/etc/hosts", "10.9.9.9 first\n");
    let pod: Pod = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "u1"},
        "spec": {
            "hostNetwork": true,
            "containers": [
                {"name": "a", "image": IMAGE},
                {"name": "own", "image": IMAGE,
                 "volumeMounts": [{"name": "v", "mountPath": "/etc/hosts"}]},
                {"name": "b", "image": IMAGE},
            ],
            "volumes": [{"name": "v", "emptyDir": {}}],
        },
    }))
    .expect("pod");
    let pod = Arc::new(pod);
    let running = |seen: &ObservedPod| all_running(&pod, seen);
    agent.drive(&pod, BackoffTable::default(), running).await;
    let written = || files.calls().iter().filter(|c| *c == "hosts u1").count();
    assert_eq!(written(), 2);
    // the node's file is read again when a container restarts
    files.put("/etc/hosts", "10.9.9.9 second\n");
    let seen = agent.observe(&pod.uid()).await;
    fake.kill_container(&seen.latest("b").expect("b").id, 1);
    agent.drive(&pod, BackoffTable::default(), running).await;
    assert_eq!(written(), 3);
    let hosts = files.get(Path::new("/var/lib/kubelet/pods/u1/etc-hosts"));
    assert_eq!(
        hosts.expect("hosts file"),
        "# Kubernetes-managed hosts file (host network).\n10.9.9.9 second\n"
    );
}
