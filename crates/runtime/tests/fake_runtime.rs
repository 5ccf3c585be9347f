//! The executor against the model runtime: what it does converges, also when it is interrupted.

mod support;

use std::sync::Arc;
use std::time::Duration;

use support::{Agent, TokioClock, all_running};
use tokio_util::sync::CancellationToken;
use windlass_core::backoff::BackoffTable;
use windlass_core::node_facts::NodeFacts;
use windlass_cri::CriCode;
use windlass_runtime::{KillPodRequest, MemoryFiles, SyncPodRequest};
use windlass_testing::fake_runtime::{Behaviour, Fault, Operation};
use windlass_testing::{FakeRuntime, PodBuilder};
use windlass_types::{ContainerState, Pod, PodExt};

const IMAGE: &str = "registry.local/web:1";

fn agent(seed: u64) -> (Agent, FakeRuntime) {
    let clock = Arc::new(TokioClock::default());
    let fake = FakeRuntime::new(clock.clone(), seed);
    fake.add_image(IMAGE);
    let node = NodeFacts {
        memory_capacity: 1 << 32,
        ..NodeFacts::default()
    };
    let files = Arc::new(MemoryFiles::default());
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
async fn a_pod_with_an_init_container_comes_up_and_goes_down() {
    let (agent, fake) = agent(1);
    let pod = web();
    fake.set_behaviour("setup", Behaviour::exits(Duration::from_secs(1), 0));
    fake.set_behaviour("a", Behaviour::stubborn());
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
    agent
        .runtime
        .cleanup_pod(&pod.uid())
        .await
        .expect("cleanup");
    let report = agent
        .runtime
        .collect_garbage(&Default::default(), true)
        .await;
    assert!(report.failures.is_empty(), "{report:?}");
    assert!(agent.observe(&pod.uid()).await.is_empty());
    fake.assert_invariants();
}

#[tokio::test(start_paused = true)]
async fn a_crashing_container_is_restarted_with_doubling_delays() {
    let (agent, fake) = agent(2);
    let pod = Arc::new(PodBuilder::new("crash").container("a", IMAGE).build());
    fake.set_behaviour("a", Behaviour::exits(Duration::from_millis(50), 1));
    let begun = tokio::time::Instant::now();
    agent
        .drive(&pod, BackoffTable::default(), |seen| {
            seen.latest("a").is_some_and(|c| c.restart_count >= 4)
        })
        .await;
    // the first restart is at once, then after 10, 20 and 40 s
    let seconds = begun.elapsed().as_secs();
    assert!((70..74).contains(&seconds), "{seconds}");
    fake.assert_invariants();
}

#[tokio::test(start_paused = true)]
async fn a_bad_command_crash_loops_instead_of_being_tried_at_every_pass() {
    let (agent, fake) = agent(3);
    let pod = Arc::new(PodBuilder::new("bad").container("a", IMAGE).build());
    fake.set_behaviour("a", Behaviour::fails_to_start("exec: \"nope\": not found"));
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
async fn a_pass_cancelled_anywhere_is_finished_by_the_next() {
    for after in 0..60 {
        let (agent, fake) = agent(after);
        let pod = web();
        fake.set_behaviour("setup", Behaviour::exits(Duration::from_millis(5), 0));
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
                observed: Arc::new(agent.observe(&pod.uid()).await),
                backoff: backoff.clone(),
                verdicts: Arc::default(),
                network_ready: true,
            };
            let pass = agent.runtime.sync_pod(request, cancel.clone());
            let timer = async {
                tokio::time::sleep(Duration::from_millis(after)).await;
                cancel.cancel();
            };
            backoff = tokio::join!(pass, timer).0.backoff;
            // what the runtime was still busy with when its caller left
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
async fn lost_answers_and_failing_calls_delay_but_do_not_break_a_pod() {
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
            fake.set_behaviour("setup", Behaviour::exits(Duration::from_millis(5), 0));
            let text = format!("{fault:?}");
            // the faults are for the executor, not for the reads around it
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
