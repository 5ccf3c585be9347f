//! Stages of a sync, and the terminated job.

use windlass_testing::PodBuilder;
use windlass_testing::fake_runtime::{Behavior, Fault, Operation};
use windlass_types::metav1::Time;
use windlass_types::names;

use super::super::terminate::{TerminatingJob, sync_terminated_pod, sync_terminating_pod};
use super::super::tests::{Node, builder, failures, job, no_inputs, no_volumes, pod};
use super::*;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The first stop of a pod, with a grace period of 1 s.
fn stop(pod: &SharedPod) -> TerminatingJob {
    TerminatingJob {
        pod: Some(Arc::clone(pod)),
        grace: seconds(1),
        waited: Duration::ZERO,
    }
}

#[tokio::test(start_paused = true)]
async fn stages_of_a_sync_run_in_upstreams_order() {
    let node = Node::new(1);
    node.cri.set_latency(Operation::RunPodSandbox, seconds(1));
    let report = node.sync(job(&pod("web"))).await;
    assert_eq!(
        node.log.take(),
        [
            "web observed @0",
            "web references @0",
            "web volumes @0",
            "web dispatched @0",
            // the observation before the sync is stale
            "web inspected @1",
        ]
    );
    let observed = report.observed.expect("observed");
    assert_eq!(observed.running().count(), 1);
    assert_eq!(report.issues, Some(vec![]));
}

#[tokio::test(start_paused = true)]
async fn sync_without_changes_reads_nothing_again() {
    let node = Node::new(1);
    let web = pod("web");
    let first = node.sync(job(&web)).await.observed.expect("observed");
    node.log.take();
    let again = SyncJob {
        known: Some(Arc::clone(&first)),
        ..job(&web)
    };
    let report = node.sync(again).await;
    assert_eq!(node.log.take(), [""; 0]);
    assert!(Arc::ptr_eq(&report.observed.expect("observed"), &first));
}

#[tokio::test(start_paused = true)]
async fn sync_after_a_failed_inspection_inspects_the_pod() {
    let node = Node::new(1);
    let web = pod("web");
    let failed = || Err(InspectError("list failed".to_owned()));
    let empty = ObservedPod {
        uid: web.uid(),
        ..ObservedPod::default()
    };
    node.peers.inspect(vec![Ok(empty), failed()]);
    let first = node.sync(job(&web)).await;
    assert!(first.has_unread_changes(false));
    assert_eq!(node.sandboxes(), 1);
    node.log.take();

    node.peers.inspect(vec![failed()]);
    let again = || SyncJob {
        must_inspect: true,
        ..job(&web)
    };
    let second = node.sync(again()).await;
    assert!(second.has_unread_changes(true), "nothing was read");
    let third = node.sync(again()).await;
    assert!(!third.has_unread_changes(true));
    let (inspected, observed) = ("web inspected @0", "web observed @0");
    assert_eq!(node.log.take(), [inspected, inspected, observed]);
    assert_eq!(node.sandboxes(), 1, "nothing is started again");
}

#[tokio::test(start_paused = true)]
async fn unresolved_references_block_a_start_and_are_retried() {
    let node = Node::new(1);
    let web = pod("web");
    for (retry, delay) in [(Retry::Soon, 1), (Retry::Later, 30)] {
        node.peers.fail_inputs(Some(no_inputs(retry)));
        let report = node.sync(job(&web)).await;
        let text = "FailedMount: configmap \"c\" not found";
        let expected = (vec![text.to_owned()], node.after(delay));
        assert_eq!(failures(&report), expected);
        assert_eq!(node.peers.events().pop().as_deref(), Some(text));
        assert_eq!(node.log.take(), ["web observed @0", "web references @0"]);
    }
    assert_eq!(node.sandboxes(), 0);
    node.peers.fail_inputs(None);
    let report = node.sync(job(&web)).await;
    assert_eq!(failures(&report), (vec![], None));
}

#[tokio::test(start_paused = true)]
async fn volumes_are_reported_before_a_missing_variable() {
    let node = Node::new(1);
    node.peers.miss(no_inputs(Retry::Later));
    node.peers.keep_payload("data is older");
    node.peers.fail_set_up(Some(no_volumes(node.after(7))));
    let report = node.sync(job(&pod("web"))).await;
    let volumes = "FailedMount: volume data: disk is gone".to_owned();
    assert_eq!(failures(&report), (vec![volumes], node.after(7)));
    assert_eq!(report.issues, None);

    node.peers.fail_set_up(None);
    let report = node.sync(job(&pod("web"))).await;
    let variable = "FailedMount: configmap \"c\" not found".to_owned();
    assert_eq!(failures(&report), (vec![variable], node.after(30)));
    assert_eq!(report.issues, Some(vec!["data is older".to_owned()]));
    assert_eq!(node.sandboxes(), 0);
}

#[tokio::test(start_paused = true)]
async fn failed_refresh_of_volumes_leaves_containers_running() {
    let node = Node::new(1);
    // not mounted
    let web = PodBuilder::new("web").uid("web").empty_dir("data");
    let web = Arc::new(web.container("app", "img:1").build());
    node.sync(job(&web)).await;
    node.peers.fail_set_up(Some(no_volumes(node.after(7))));
    let report = node.sync(job(&web)).await;
    let text = "FailedMount: volume data: disk is gone".to_owned();
    assert_eq!(failures(&report), (vec![text], node.after(7)));
    assert_eq!(node.cri.starts(&"web".into(), "app"), 1);
    assert!(node.cri.running(&"web".into(), "app").is_some());

    // the sync continues: the sandbox of an ended pod is stopped
    let once = PodBuilder::new("once").uid("once").empty_dir("data");
    let once = once.container("once", "img:1").restart_policy("Never");
    let once = Arc::new(once.build());
    node.cri
        .set_behavior("once", Behavior::exits(seconds(1), 0));
    node.peers.fail_set_up(None);
    node.sync(job(&once)).await;
    tokio::time::sleep(seconds(2)).await;
    let observed = node.peers.observed(&"once".into()).await.expect("observed");
    node.deps.pleg.cache.record(Arc::new(observed));
    node.peers.fail_set_up(Some(no_volumes(None)));
    assert_eq!(
        node.sync(job(&once)).await.outcome.map(|it| it.changed),
        Some(true)
    );

    // its references are not awaited for long
    node.peers.delay_inputs(seconds(60));
    let begin = tokio::time::Instant::now();
    node.sync(job(&web)).await;
    assert_eq!(begin.elapsed(), REFRESH_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn start_waits_for_a_slot_that_a_slow_start_loses() {
    let node = Node::new(1);
    let hang = Fault::hang(Operation::RunPodSandbox).on("default/slow");
    node.cri.inject(hang);
    let slow = node.begin(job(&pod("slow")));
    tokio::time::sleep(seconds(1)).await;
    let (a, b) = (node.begin(job(&pod("a"))), node.begin(job(&pod("b"))));
    a.await.expect("no panic");
    b.await.expect("no panic");
    let log = node.log.take();
    let dispatched: Vec<_> = log.iter().filter(|it| it.contains("dispatched")).collect();
    // the slot of `a` is free when it has started
    assert_eq!(
        dispatched,
        ["slow dispatched @0", "a dispatched @2", "b dispatched @2"]
    );
    assert!(!slow.is_finished());
    node.cri.release(Operation::RunPodSandbox);
    slow.await.expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn sandbox_is_made_while_tokens_are_requested() {
    let node = Node::new(1);
    node.peers.know_sandbox();
    node.peers.delay_inputs(seconds(3));
    node.cri.set_latency(Operation::RunPodSandbox, seconds(3));
    let report = node.sync(job(&pod("web"))).await;
    assert_eq!(failures(&report), (vec![], None));
    assert_eq!(
        node.log.take(),
        [
            "web observed @0",
            "web dispatched @0",
            "web references @0",
            "web volumes @3",
            "web inspected @3",
        ]
    );

    node.peers.fail_inputs(Some(no_inputs(Retry::Soon)));
    let report = node.sync(job(&pod("other"))).await;
    let text = "FailedMount: configmap \"c\" not found".to_owned();
    assert_eq!(failures(&report).0, [text]);
    assert_eq!(node.sandboxes(), 2);
    assert_eq!(node.cri.starts(&"other".into(), "app"), 0);
}

#[tokio::test(start_paused = true)]
async fn pod_past_its_deadline_is_observed_only() {
    let node = Node::new(1);
    let with_deadline = |seconds| {
        let change = |pod: &mut Pod| {
            pod.spec.get_or_insert_default().active_deadline_seconds = Some(seconds);
        };
        let pod = builder("web").with(change).build();
        let status = PodStatus {
            start_time: Some(Time(node.deps.clock.now())),
            ..PodStatus::default()
        };
        SyncJob {
            status: Arc::new(status),
            ..job(&Arc::new(pod))
        }
    };
    let late = with_deadline(10);
    tokio::time::sleep(seconds(10)).await;
    let report = node.sync(late).await;
    assert!(report.outcome.is_none());
    assert_eq!(node.log.take(), ["web observed @10"]);
    let report = node.sync(with_deadline(11)).await;
    assert!(report.outcome.is_some());
}

#[tokio::test(start_paused = true)]
async fn restored_pod_starts_once_the_api_server_confirms_it() {
    let node = Node::new(1);
    let restored = |pod: PodBuilder| pod.annotation(names::ANN_RESTORED, "true");
    let report = node
        .sync(job(&Arc::new(restored(builder("web")).build())))
        .await;
    let (lines, retry_at) = failures(&report);
    assert!(lines[0].starts_with("WaitingForApiServer: "), "{lines:?}");
    assert_eq!(retry_at, None);
    assert_eq!(node.log.take(), ["web observed @0"]);
    let report = node.sync(job(&pod("web"))).await;
    assert_eq!(failures(&report), (vec![], None));
}

#[tokio::test(start_paused = true)]
async fn restored_pod_with_kept_objects_starts_unconfirmed() {
    let node = Node::new(1);
    node.peers.keep_objects(node.deps.clock.now());
    let restored = builder("web").annotation(names::ANN_RESTORED, "true");
    let report = node.sync(job(&Arc::new(restored.build()))).await;
    assert_eq!(failures(&report), (vec![], None));
    assert_eq!(node.sandboxes(), 1);
}

#[tokio::test(start_paused = true)]
async fn static_pod_waits_for_one_with_the_same_name() {
    let node = Node::new(1);
    node.sync(job(&pod("web"))).await;
    let edited = Arc::new(builder("web").uid("edited").build());
    let report = node.sync(job(&edited)).await;
    let text =
        "WaitingForPodTermination: waiting for the termination of pod web with the same name";
    assert_eq!(failures(&report).0, [text]);

    let uid = "web".into();
    let killed = sync_terminating_pod(&node.deps, &uid, stop(&pod("web"))).await;
    killed.expect("killed");
    let report = node.sync(job(&edited)).await;
    assert_eq!(failures(&report).0, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn stopped_pod_is_read_until_it_shows_its_end() {
    let node = Node::new(1);
    let (web, uid) = (pod("web"), PodUid::from("web"));
    node.sync(job(&web)).await;
    let stale = || async { Ok(node.peers.observed(&uid).await.expect("observed")) };
    let planned = vec![stale().await, stale().await];
    node.peers.inspect(planned);
    node.log.take();
    let killed = sync_terminating_pod(&node.deps, &uid, stop(&web)).await;
    assert!(!killed.expect("killed").is_alive());
    assert_eq!(node.log.take(), ["web inspected @0"; 3]);

    // after three reads the lists decide, and the exit codes are unknown
    let mut running = ObservedPod::clone(&node.deps.pleg.cache.get(&uid).expect("observed"));
    running.containers[0].state = ContainerState::Running;
    let planned = std::iter::repeat_with(|| Ok(running.clone()));
    node.peers.inspect(planned.take(4).collect());
    let killed = sync_terminating_pod(&node.deps, &uid, stop(&web)).await;
    let observed = killed.expect("killed");
    assert_eq!(observed.containers[0].exit_code, 137);
    assert_eq!(node.log.take(), ["web inspected @0"; 3]);
}

#[tokio::test(start_paused = true)]
async fn volumes_are_torn_down_before_the_directory_goes() {
    let node = Node::new(1);
    let uid = PodUid::from("web");
    node.sync(job(&pod("web"))).await;
    node.log.take();
    node.peers.fail_tear_down(Some(no_volumes(None)));
    let error = sync_terminated_pod(&node.deps, &uid).await;
    assert_eq!(
        error.expect_err("busy").message,
        "volume data: disk is gone"
    );
    assert!(node.files.pod_dirs().contains(&uid));

    node.peers.fail_tear_down(None);
    node.files.mount(&uid, true);
    let error = sync_terminated_pod(&node.deps, &uid).await;
    error.expect_err("still mounted");
    node.files.mount(&uid, false);
    sync_terminated_pod(&node.deps, &uid)
        .await
        .expect("released");
    assert!(!node.files.pod_dirs().contains(&uid));
    assert_eq!(node.log.take(), ["web torn down @0"; 3]);
}
