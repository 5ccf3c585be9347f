//! A hung CRI call is reported by its pod and affects no other pod.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use windlass_testing::cri_proxy::{Action, Rule};
use windlass_testing::pod_watch::PodTable;

use crate::manifest::shell;
use crate::test_env::{SOON, TestEnv, eventually, scaled, signal, skipped};

const OTHERS: usize = 11;
/// Max time until a hung call is reported.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Duration of starts, an exit and stops of the other pods.
#[derive(Debug)]
struct Round {
    start_median: Duration,
    start_last: Duration,
    restart: Duration,
    stop_last: Duration,
}

fn others() -> impl Iterator<Item = String> {
    (0..OTHERS).map(|n| format!("other{n}"))
}

/// When the first and the last of the pods were seen to be so, counted from `begun`.
async fn times(
    env: &mut TestEnv,
    what: &str,
    begun: Instant,
    so: impl Fn(&PodTable, &str) -> bool,
) -> Vec<Duration> {
    let mut seen = BTreeMap::new();
    env.wait(what, |table| {
        for name in others().filter(|name| table.connected && so(table, name)) {
            seen.entry(name).or_insert_with(|| begun.elapsed());
        }
        seen.len() == OTHERS
    })
    .await;
    let mut times: Vec<Duration> = seen.into_values().collect();
    times.sort();
    times
}

async fn round(env: &mut TestEnv) -> Round {
    let begun = Instant::now();
    for name in others() {
        env.apply(&format!("{name}.yaml"), &shell(&name, "HOLD"));
    }
    let ready = |table: &PodTable, name: &str| table.pod(name).is_some_and(|pod| pod.ready);
    let starts = times(env, "the others run", begun, ready).await;

    let process = env.process("other0", "main").await;
    let begun = Instant::now();
    signal(process, rustix::process::Signal::KILL);
    env.wait("a container is replaced", |table| {
        table
            .pod("other0")
            .is_some_and(|pod| pod.ready && pod.restarts() == 1)
    })
    .await;
    let restart = begun.elapsed();

    let begun = Instant::now();
    for name in others() {
        env.remove(&format!("{name}.yaml"));
    }
    let gone = |table: &PodTable, name: &str| table.pod(name).is_none();
    let stops = times(env, "the others are gone", begun, gone).await;
    Round {
        start_median: starts[OTHERS / 2],
        start_last: starts[OTHERS - 1],
        restart,
        stop_last: stops[OTHERS - 1],
    }
}

/// Texts of event and blocker of the pod about the hung call.
async fn hung_call(env: &TestEnv, pod: &str) -> Result<(String, String), String> {
    let entry = env.entry(pod).await;
    let hangs =
        |event: &&windlass_node_proto::windlass_v1::Event| event.reason == "RuntimeCallHung";
    let event = entry.events.iter().find(hangs);
    let blocker = entry
        .blocker
        .filter(|blocker| blocker.reason == "RuntimeCallHung");
    match (event, blocker) {
        (Some(event), Some(blocker)) => Ok((event.message.clone(), blocker.message)),
        (event, blocker) => Err(format!("{event:?} and {blocker:?}")),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_hung_status_call_delays_no_other_pod() {
    if skipped() {
        return;
    }
    let (mut env, proxy) = TestEnv::behind_proxy("i-hung").await;
    env.apply("sick.yaml", &shell("sick", "HOLD"));
    env.ready("sick").await;
    let without = round(&mut env).await;

    let sandbox = env.ready_sandboxes("sick").await[0].id.clone();
    let hang = proxy.add(Rule::new("PodSandboxStatus", Action::Hang).with(&sandbox));
    // its exit triggers the inspection
    let process = env.process("sick", "main").await;
    signal(process, rustix::process::Signal::KILL);
    eventually("the status is requested", SOON, async || {
        (hang.hits() > 0).then_some(()).ok_or("no call".to_owned())
    })
    .await;
    let begun = Instant::now();
    let (event, blocker) = eventually("the pod reports what hangs", REPORT_TIMEOUT, async || {
        hung_call(&env, "sick").await
    })
    .await;
    let told_after = begun.elapsed();
    assert_eq!(event, blocker, "the same words");
    let words = format!("PodSandboxStatus on sandbox {} hung since", &sandbox[..13]);
    assert!(event.starts_with(&words), "{event}");
    let status = env.ctl_output(&["status"]).await;
    let named = format!("PodSandboxStatus on sandbox {} for ", &sandbox[..13]);
    assert!(status.contains(&named), "{status}");
    let explained = env.ctl_output(&["explain", "pod", "sick-node"]).await;
    assert!(explained.contains("RuntimeCallHung"), "{explained}");
    assert!(explained.contains(&words), "{explained}");

    let with = round(&mut env).await;
    let attempts = hang.hits();
    assert!(
        hung_call(&env, "sick").await.is_ok(),
        "it still hangs and reports it"
    );
    assert_eq!(env.http("/healthz").await.unwrap().0, 200);
    println!("without the hang: {without:?}");
    println!("with it:          {with:?}");
    println!("told after {told_after:?}, asked {attempts} times meanwhile");
    // generous for a busy host; a held slot or lock would cost 10 s
    for (before, after) in [
        (without.start_median, with.start_median),
        (without.start_last, with.start_last),
        (without.restart, with.restart),
        (without.stop_last, with.stop_last),
    ] {
        let limit = before * 2 + scaled(Duration::from_secs(1));
        assert!(after < limit, "{after:?} instead of {before:?}");
    }

    // the pod can be stopped although its status is unreadable
    let begun = Instant::now();
    env.remove("sick.yaml");
    env.gone("sick").await;
    println!("the sick pod was stopped in {:?}", begun.elapsed());
    assert!(begun.elapsed() < scaled(Duration::from_secs(10)));
    assert_eq!(env.ready_sandboxes("sick").await, []);
    hang.release();
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_pod_recovers_once_hung_call_returns() {
    if skipped() {
        return;
    }
    let (mut env, proxy) = TestEnv::behind_proxy("i-unhung").await;
    env.wait("the agent answers", |table| table.connected).await;
    let hang = proxy.add(Rule::new("CreateContainer", Action::Hang).times(1));
    env.apply("web.yaml", &shell("web", "HOLD"));
    env.wait("web is listed", |table| table.pod("web").is_some())
        .await;
    let (event, _) = eventually("the pod reports what hangs", SOON, async || {
        hung_call(&env, "web").await
    })
    .await;
    assert!(
        event.starts_with("CreateContainer on container main hung since"),
        "{event}"
    );
    hang.release();
    env.ready("web").await;
    let explained = env.ctl_output(&["explain", "pod", "web-node"]).await;
    assert!(explained.contains("no blocker"), "{explained}");
    env.stop().await;
}
