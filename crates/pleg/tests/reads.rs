//! The PLEG with the fake runtime, in paused time: inspections, relists and changes.

#![allow(clippy::expect_used, reason = "a helper of a test fails it")]

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::task::LocalSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass_actors::{OomKillCache, PlegHandle, PlegHealth, PodChanged, RuntimeName, StatusCache};
use windlass_cri::{HungCalls, RuntimeService, TrackedRuntime};
use windlass_mailboxes::clock::SimClock;
use windlass_mailboxes::{ActorKind, Merge, SlotReceiver, mailbox, slots, start_actor};
use windlass_metrics::Metrics;
use windlass_pleg::{Pleg, PlegDeps};
use windlass_pod_lifecycle::pleg::RelistAge;
use windlass_testing::FakeRuntime;
use windlass_testing::fake_runtime::{EventMode, Fault, Operation};
use windlass_timelines::Timelines;
use windlass_types::cri::SandboxConfig;
use windlass_types::{Clock, PodUid, SandboxId, names};

/// A running PLEG and its dependencies.
struct TestEnv {
    runtime: FakeRuntime,
    pleg: PlegHandle,
    health: PlegHealth,
    changes: SlotReceiver<PodUid, PodChanged>,
}

/// Runs a scenario with a PLEG that has just started.
async fn with_pleg<R>(
    prepare: impl AsyncFnOnce(&FakeRuntime),
    scenario: impl AsyncFnOnce(TestEnv) -> R,
) -> R {
    let start = "2026-01-01T00:00:00Z".parse().expect("time");
    let clock: Arc<dyn Clock> = Arc::new(SimClock::starting_at(start));
    let runtime = FakeRuntime::new(Arc::clone(&clock), 5);
    prepare(&runtime).await;
    let metrics = Metrics::new().expect("metrics");
    let (mailbox_sender, pleg_mailbox) = mailbox(windlass_pleg::PLEG, &metrics.mailboxes);
    let (change_sender, changes) = slots(ActorKind::new("SyncLoop", 50), &metrics.mailboxes);
    let hung = HungCalls::new(Arc::clone(&clock));
    let cache = StatusCache::new();
    let deps = PlegDeps {
        runtime: Arc::new(TrackedRuntime::new(
            Arc::new(runtime.clone()),
            hung.clone(),
            Timelines::new(Arc::clone(&clock), None),
        )),
        clock,
        metrics: metrics.pleg,
        mailboxes: metrics.mailboxes,
        cache: cache.clone(),
        changes: change_sender,
        cancel: CancellationToken::new(),
        health: PlegHealth::default(),
        runtime_name: RuntimeName::default(),
        hung,
        oom_kills: OomKillCache::default(),
    };
    let health = deps.health.clone();
    let local = LocalSet::new();
    local
        .run_until(Box::pin(async move {
            start_actor(Pleg::new(deps, pleg_mailbox));
            let mailbox = mailbox_sender;
            let pleg = PlegHandle { mailbox, cache };
            scenario(TestEnv {
                runtime,
                pleg,
                health,
                changes,
            })
            .await
        }))
        .await
}

async fn sandbox(runtime: &FakeRuntime, name: &str) -> SandboxId {
    let config = SandboxConfig {
        name: name.into(),
        namespace: "default".into(),
        uid: name.into(),
        labels: [(names::LABEL_POD_UID.to_owned(), name.to_owned())].into(),
        ..SandboxConfig::default()
    };
    let id = runtime.run_pod_sandbox(&config, "").await;
    id.expect("sandbox")
}

fn lists(runtime: &FakeRuntime) -> usize {
    runtime.calls_of(Operation::ListPodSandboxes, "").len()
}

/// Duration of an inspection, and whether it succeeded.
async fn read(env: &TestEnv, name: &str) -> (Duration, bool) {
    let begun = Instant::now();
    let answer = env.pleg.inspect(&name.into()).await;
    (begun.elapsed(), answer.is_ok())
}

#[tokio::test(start_paused = true)]
async fn hung_inspections_lose_their_permits() {
    let prepare = async |runtime: &FakeRuntime| {
        for n in 0..20 {
            sandbox(runtime, &format!("sick{n}")).await;
        }
        sandbox(runtime, "well").await;
        runtime.inject(Fault::hang(Operation::PodSandboxStatus).on("default/sick"));
    };
    with_pleg(prepare, async |env| {
        // the first relist triggers all inspections; twenty hang with eight permits
        tokio::time::sleep(Duration::from_millis(1600)).await;
        for _ in 0..40 {
            let (took, read) = read(&env, "well").await;
            assert!(read);
            assert!(took < Duration::from_millis(10), "{took:?}");
            tokio::time::sleep(Duration::from_millis(700)).await;
        }
        let (took, read) = read(&env, "sick3").await;
        assert!(!read, "it hangs");
        assert!(took <= Duration::from_secs(25), "{took:?}");
        // the relist continues, so that the node stays ready
        let RelistAge::Last(age) = env.health.age() else {
            panic!("never listed");
        };
        assert!(age <= Duration::from_secs(10), "{age:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn pod_is_notified_of_hung_call_and_its_end() {
    let prepare = async |runtime: &FakeRuntime| {
        sandbox(runtime, "sick").await;
        runtime.inject(Fault::hang(Operation::PodSandboxStatus).on("default/sick"));
    };
    with_pleg(prepare, async |mut env| {
        let next = tokio::time::timeout(Duration::from_secs(4), env.changes.next());
        let (uid, changed) = next.await.expect("in time").expect("open");
        assert_eq!(uid.as_str(), "sick");
        assert!(changed.calls && changed.events.is_empty());
        env.runtime.release(Operation::PodSandboxStatus);
        // the end of the hang, and the observed change
        let mut seen = PodChanged::default();
        let both = async {
            while !(seen.calls && seen.events.len() == 1) {
                let (_, changed) = env.changes.next().await.expect("open");
                seen.merge(changed);
            }
        };
        tokio::time::timeout(Duration::from_secs(4), both)
            .await
            .expect("in time");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn lost_event_stream_triggers_relist_now_and_every_second() {
    let prepare = async |runtime: &FakeRuntime| {
        runtime.set_latency(Operation::ListPodSandboxes, Duration::from_millis(20));
    };
    with_pleg(prepare, async |env| {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let before = lists(&env.runtime);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(lists(&env.runtime) - before, 6, "every 10 s with events");

        // the stream is down for a while
        let before = lists(&env.runtime);
        env.runtime.inject(Fault::hang(Operation::Events));
        env.runtime.disconnect_events();
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(lists(&env.runtime) - before, 1, "at once");
        tokio::time::sleep(Duration::from_secs(10)).await;
        let meanwhile = lists(&env.runtime) - before;
        assert!((10..=11).contains(&meanwhile), "{meanwhile} in 10 s");

        let before = lists(&env.runtime);
        env.runtime.release(Operation::Events);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(lists(&env.runtime) > before, "at once");
        let before = lists(&env.runtime);
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(lists(&env.runtime) - before, 3, "every 10 s again");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn change_during_stream_open_is_found_by_second_relist() {
    let prepare = async |runtime: &FakeRuntime| {
        runtime.set_event_mode(EventMode::Cri);
        // the relist begins before the stream is open and ends after it
        runtime.set_latency(Operation::Events, Duration::from_millis(10));
        runtime.set_latency(Operation::ListContainers, Duration::from_millis(100));
    };
    with_pleg(prepare, async |env| {
        tokio::time::sleep(Duration::from_millis(5)).await;
        sandbox(&env.runtime, "late").await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        let uid = PodUid::from("late");
        assert!(env.pleg.cache.get(&uid).is_some(), "found by the second");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn failing_relist_makes_pleg_unhealthy() {
    let prepare = async |runtime: &FakeRuntime| {
        runtime.inject(Fault::hang(Operation::ListContainers));
    };
    with_pleg(prepare, async |env| {
        tokio::time::sleep(Duration::from_secs(179)).await;
        assert_eq!(env.health.age().error(), None);
        tokio::time::sleep(Duration::from_secs(2)).await;
        let text = "pleg has yet to be successful";
        assert_eq!(env.health.age().error().as_deref(), Some(text));
        env.runtime.release(Operation::ListContainers);
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!(env.health.age().error(), None);
        env.runtime.inject(Fault::hang(Operation::ListPodSandboxes));
        tokio::time::sleep(Duration::from_secs(250)).await;
        let text = "pleg was last seen active 4m0s ago; threshold is 3m0s";
        assert_eq!(env.health.age().error().as_deref(), Some(text));
    })
    .await;
}
