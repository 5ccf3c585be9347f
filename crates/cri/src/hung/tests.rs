//! Hung calls, in paused time.

use std::sync::Arc;
use std::time::Duration;

use windlass_mailboxes::clock::SimClock;
use windlass_types::Clock;

use super::*;
use crate::error::CriError;

fn calls() -> (HungCalls, Arc<SimClock>) {
    let start = "2026-01-01T00:00:00Z".parse().expect("time");
    let clock = Arc::new(SimClock::starting_at(start));
    (HungCalls::new(clock.clone()), clock)
}

fn status_of(id: &str) -> CallKey {
    let id = SandboxId::from(id);
    ("PodSandboxStatus", CallObject::Sandbox(id))
}

fn timed_out() -> CriResult<()> {
    let code = CriCode::DeadlineExceeded;
    Err(CriError::new("podsandbox_status", code, "no answer"))
}

fn row(id: &str, uid: &str, ready: bool) -> SandboxSummary {
    SandboxSummary {
        id: id.into(),
        uid: uid.into(),
        name: "web".into(),
        namespace: "default".into(),
        attempt: 0,
        ready,
        created_at: Timestamp::UNIX_EPOCH,
    }
}

fn container(id: &str, name: &str, state: ContainerState) -> ContainerSummary {
    ContainerSummary {
        id: id.into(),
        sandbox_id: "s1".into(),
        uid: "u1".into(),
        name: name.into(),
        attempt: 0,
        state,
        created_at: Timestamp::UNIX_EPOCH,
        image_id: String::new(),
    }
}

const READ_HANG_THRESHOLD: Duration = Duration::from_secs(3);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Runs a call that ends with `result` after `takes`.
async fn call(calls: &HungCalls, key: CallKey, takes: Duration, result: CriResult<()>) {
    let call = async {
        tokio::time::sleep(takes).await;
        result
    };
    drop(calls.track(key, None, READ_HANG_THRESHOLD, call).await);
}

fn lines(calls: &HungCalls) -> Vec<String> {
    let line = |call: &HungCall| format!("{} {} x{}", call.operation, call.object, call.attempts);
    let all = calls.all();
    let operations = calls.0.operations.list();
    assert_eq!(operations.len(), all.len(), "hung operations of the node");
    all.iter().map(line).collect()
}

#[tokio::test(start_paused = true)]
async fn call_is_listed_as_hung_from_threshold_until_response() {
    let (calls, _) = calls();
    calls.record_sandbox_list(&[row("s1", "u1", true)], true);
    call(&calls, status_of("s1"), seconds(2), Ok(())).await;
    assert!(calls.all().is_empty(), "slow is not hanging");

    let watched = tokio::spawn({
        let calls = calls.clone();
        async move { call(&calls, status_of("s1"), seconds(8), Ok(())).await }
    });
    let news = calls.changed().await;
    assert_eq!(news, BTreeSet::from([PodUid::from("u1")]));
    assert_eq!(
        calls.for_pod(&"u1".into())[0].to_string(),
        "PodSandboxStatus on sandbox s1 hung since 2026-01-01T00:00:02Z: no response from the \
         container runtime"
    );
    assert!(calls.for_pod(&"u2".into()).is_empty());
    assert_eq!(calls.changed().await, news, "reported again at its end");
    assert!(calls.all().is_empty());
    watched.await.expect("watched");
}

/// Maximum number of calls listed as hung, of `sent` concurrent calls to a runtime that serves them
/// one after the other, each for `time`.
async fn listed_of_a_serial_runtime(sent: usize, time: Duration) -> usize {
    let (calls, _) = calls();
    let runtime = tokio::sync::Mutex::new(());
    let all = (0..sent).map(|n| {
        let call = async {
            let _served = runtime.lock().await;
            tokio::time::sleep(time).await;
            Ok(())
        };
        calls.track(status_of(&format!("s{n}")), None, READ_HANG_THRESHOLD, call)
    });
    let listed = async {
        let mut max = 0;
        loop {
            max = max.max(calls.all().len());
            if tokio::time::timeout(seconds(5), calls.changed())
                .await
                .is_err()
            {
                return max;
            }
        }
    };
    let (_, max) = futures::future::join(futures::future::join_all(all), listed).await;
    max
}

#[tokio::test(start_paused = true)]
async fn call_queued_behind_other_calls_is_not_hung() {
    let time = Duration::from_millis(200);
    assert_eq!(listed_of_a_serial_runtime(300, time).await, 0);
}

#[tokio::test(start_paused = true)]
async fn call_as_slow_as_recent_ones_is_not_hung() {
    let (calls, _) = calls();
    calls.record_sandbox_list(&[row("s1", "u1", true)], true);
    let takes = |duration| call(&calls, status_of("s1"), duration, Ok(()));
    let listed = async |duration: Duration| {
        let begun = Instant::now();
        tokio::select! {
            biased;
            _ = calls.changed() => Some(begun.elapsed()),
            () = takes(duration) => None,
        }
    };
    assert_eq!(listed(seconds(2)).await, None);
    assert_eq!(
        listed(seconds(5)).await,
        None,
        "less than three times as long"
    );
    assert_eq!(listed(seconds(60)).await, Some(seconds(15)));
    tokio::time::sleep(seconds(120)).await;
    calls.forget(&"u1".into());
    assert_eq!(
        listed(seconds(60)).await,
        Some(seconds(3)),
        "they are no longer slow"
    );
}

#[tokio::test(start_paused = true)]
async fn stop_with_long_grace_period_does_not_raise_the_threshold() {
    let (calls, _) = calls();
    calls.record_sandbox_list(&[row("s1", "u1", true)], true);
    let stop = async |threshold: Duration, takes: Duration| {
        let call = async {
            tokio::time::sleep(takes).await;
            Ok(())
        };
        drop(calls.track(status_of("s1"), None, threshold, call).await);
    };
    stop(READ_HANG_THRESHOLD + seconds(30), seconds(30)).await;
    let begun = Instant::now();
    let listed = tokio::select! {
        biased;
        _ = calls.changed() => Some(begun.elapsed()),
        () = stop(READ_HANG_THRESHOLD, seconds(20)) => None,
    };
    assert_eq!(listed, Some(READ_HANG_THRESHOLD));
}

#[tokio::test(start_paused = true)]
async fn hung_calls_do_not_count_as_load() {
    let (calls, _) = calls();
    let hung: Vec<_> = (0..20)
        .map(|n| {
            let calls = calls.clone();
            tokio::spawn(async move {
                let key = status_of(&format!("s{n}"));
                call(&calls, key, seconds(3600), Ok(())).await;
            })
        })
        .collect();
    tokio::time::sleep(seconds(1)).await;
    assert_eq!(calls.load().expected_delay(), seconds(4));
    tokio::time::sleep(seconds(10)).await;
    assert_eq!(calls.load().expected_delay(), Duration::ZERO);
    assert_eq!(calls.all().len(), 20);
    hung.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn hung_call_stays_listed_over_deadlines_and_retries() {
    let (calls, clock) = calls();
    let key = || status_of("0123456789abcdef");
    let began = clock.now();
    call(&calls, key(), seconds(10), timed_out()).await;
    assert_eq!(lines(&calls), ["PodSandboxStatus sandbox 0123456789abc x1"]);
    tokio::time::sleep(seconds(5)).await;
    let given_up = call(&calls, key(), seconds(100), Ok(()));
    drop(tokio::time::timeout(seconds(1), given_up).await);
    assert_eq!(lines(&calls), ["PodSandboxStatus sandbox 0123456789abc x2"]);
    assert_eq!(calls.all()[0].since, began);
    call(&calls, status_of("s2"), seconds(1), Ok(())).await;
    assert_eq!(calls.all().len(), 1, "another object's answer is not it");
    call(&calls, key(), seconds(1), Ok(())).await;
    assert!(calls.all().is_empty());
}

#[tokio::test(start_paused = true)]
async fn error_or_deadline_from_the_runtime_ends_a_hang() {
    let (calls, _) = calls();
    for answer in [CriCode::NotFound, CriCode::DeadlineExceeded] {
        call(&calls, status_of("s1"), seconds(10), timed_out()).await;
        assert_eq!(calls.all().len(), 1);
        let answer = Err(CriError::new("podsandbox_status", answer, "said at once"));
        call(&calls, status_of("s1"), Duration::ZERO, answer).await;
        assert!(calls.all().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn hung_call_ends_when_lists_show_its_effect_or_removal() {
    let (calls, _) = calls();
    let hang = async |key: CallKey| call(&calls, key, seconds(10), timed_out()).await;
    let container_call = |operation, id| {
        let id = ContainerId::from(id);
        (operation, CallObject::Container(id))
    };
    hang(status_of("s1")).await;
    hang(("RunPodSandbox", CallObject::Pod("u1".into()))).await;
    let new = CallObject::NewContainer("u1".into(), "app".into());
    hang(("CreateContainer", new)).await;
    hang(container_call("StartContainer", "c1")).await;
    hang(container_call("StopContainer", "c2")).await;
    hang(container_call("ContainerStatus", "c2")).await;
    assert_eq!(calls.all().len(), 6);

    calls.record_sandbox_list(&[row("s9", "u9", true)], false);
    calls.record_container_list(&[container("c9", "other", ContainerState::Running)], false);
    assert_eq!(
        calls.all().len(),
        6,
        "a part of the list shows nothing gone"
    );

    calls.record_sandbox_list(&[row("s2", "u1", true)], true);
    let left = [
        "CreateContainer container app x1",
        "StartContainer container c1 x1",
        "StopContainer container c2 x1",
        "ContainerStatus container c2 x1",
    ];
    assert_eq!(lines(&calls), left);
    let all = [
        container("c1", "app", ContainerState::Created),
        container("c2", "old", ContainerState::Running),
    ];
    calls.record_container_list(&all, true);
    assert_eq!(lines(&calls), left, "nothing of it happened yet");
    let all = [
        container("c1", "app", ContainerState::Created),
        container("c3", "app", ContainerState::Running),
        container("c2", "old", ContainerState::Exited),
    ];
    calls.record_container_list(&all, true);
    assert_eq!(lines(&calls), ["ContainerStatus container c2 x1"]);
    calls.record_container_list(&[], true);
    assert!(calls.all().is_empty());
}

#[tokio::test(start_paused = true)]
async fn hung_call_without_retries_is_dropped() {
    let (calls, _) = calls();
    let image = ("ImageStatus", CallObject::Image("busybox".into()));
    let for_pod = Some(PodUid::from("u1"));
    let hangs = async {
        tokio::time::sleep(seconds(10)).await;
        timed_out()
    };
    drop(
        calls
            .track(image, for_pod, READ_HANG_THRESHOLD, hangs)
            .await,
    );
    call(
        &calls,
        ("Status", CallObject::Runtime),
        seconds(10),
        timed_out(),
    )
    .await;
    assert_eq!(calls.for_pod(&"u1".into()).len(), 1);
    calls.forget(&"u1".into());
    assert_eq!(lines(&calls), ["Status the runtime x1"]);
    tokio::time::sleep(FORGET_AFTER).await;
    calls.record_sandbox_list(&[], true);
    assert!(calls.all().is_empty());
}

#[tokio::test(start_paused = true)]
async fn owners_of_removed_containers_are_dropped() {
    let (calls, _) = calls();
    for n in 0..MIN_STALE_OWNERS + 10 {
        let owner = Owner::new("u1".into(), None);
        calls.record_created(&format!("old{n}"), owner);
    }
    calls.record_container_list(&[container("c1", "app", ContainerState::Running)], true);
    let owners: BTreeSet<String> = calls.0.state.lock().owners.keys().cloned().collect();
    assert_eq!(owners, BTreeSet::from(["c1".to_owned()]));
}
