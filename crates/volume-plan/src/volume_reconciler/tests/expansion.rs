//! Volume expansion.

use super::*;

/// Returns a volume whose PersistentVolume has `desired` bytes, and whose PVC has `reported`.
fn sized(desired: u64, reported: u64) -> PodVolume {
    csi("c", |volume| {
        volume.size = Some(PvcSize {
            pvc: "c".into(),
            uid: "pvc-uid".into(),
            desired,
            reported,
            actionable: true,
        });
    })
}

fn rejected(message: &str, retry: Retry) -> ExpansionResult {
    ExpansionResult::Rejected(StepError {
        operation: None,
        message: message.to_owned(),
        retry,
    })
}

const STAGE: &str = "stage(kubernetes.io/csi/d^c)";
const EXPANDED: &str = "FileSystemResizeSuccessful: MountVolume.NodeExpandVolume succeeded for volume \
                     \"pv-c\" ";
const FAILED: &str = "NodeExpandVolume.NodeExpandVolume failed for volume \"pv-c\" : ";
const FAILED_NEW: &str = "MountVolume.Setup failed while expanding volume for volume \"pv-c\" : ";

/// Returns the events of an expansion.
fn expanded_events(pod: &str) -> String {
    format!("event({pod} {EXPANDED}), pvc-event(c {EXPANDED})")
}

/// Returns a reconciler with the pod `p` and its mounted volume.
fn mounted_fixture(volume: PodVolume) -> Fixture {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.set_up("p", &[volume]), STAGE);
    fixture.ok(STAGE);
    assert_eq!(fixture.ok("mount(p/c)"), "ready#1(1)");
    fixture
}

#[test]
fn mounted_volume_is_expanded_once_per_size() {
    let mut fixture = mounted_fixture(sized(10, 10));
    assert_eq!(fixture.set_up("p", &[sized(20, 10)]), "mount(p/c)");
    // the pod does not wait for the expansion
    assert_eq!(fixture.ok("mount(p/c)"), "expand(p/c), ready#2(1)");
    assert_eq!(fixture.set_up("p", &[sized(20, 10)]), "ready#3(1)");
    assert_eq!(
        fixture.fails("expand(p/c)", "busy"),
        format!("event(p VolumeResizeFailed: {FAILED}busy)")
    );
    assert_eq!(fixture.tick(0.1), "");
    // its back-off does not delay a restart
    assert_eq!(fixture.set_up("p", &[sized(20, 10)]), "mount(p/c)");
    assert_eq!(fixture.ok("mount(p/c)"), "ready#4(1)");
    assert_eq!(fixture.tick(0.5), "expand(p/c)");
    assert_eq!(fixture.ok("expand(p/c)"), expanded_events("p"));
    // the PVC status may be stale
    assert_eq!(fixture.set_up("p", &[sized(20, 10)]), "mount(p/c)");
    assert_eq!(fixture.ok("mount(p/c)"), "ready#5(1)");
}

#[test]
fn new_volume_is_ready_after_expansion_or_when_infeasible() {
    let mut fixture = Fixture::new();
    fixture.set_up("p", &[sized(20, 10)]);
    fixture.ok(STAGE);
    assert_eq!(fixture.ok("mount(p/c)"), "expand(p/c)");
    let failed = format!("FailedMount: {FAILED_NEW}no");
    assert_eq!(
        fixture.expanded("expand(p/c)", rejected("no", Retry::Later)),
        format!("event(p {failed}), failed#1({failed})")
    );
    // the step reports the earlier rejection
    assert_eq!(fixture.tick(0.5), "expand(p/c again)");
    assert_eq!(
        fixture.expanded("expand(p/c again)", rejected("no", Retry::Never)),
        format!("event(p {failed}), requeue(p)")
    );
    // the PVC reports it
    let mut infeasible = sized(20, 10);
    if let VolumeSource::Csi(csi) = &mut infeasible.source {
        csi.size.as_mut().expect("a size").actionable = false;
    }
    let volumes = [infeasible];
    assert_eq!(fixture.set_up("p", &volumes), "mount(p/c)");
    assert_eq!(fixture.ok("mount(p/c)"), "ready#2(1)");
    // until the resizer allows a retry
    assert_eq!(fixture.set_up("p", &[sized(20, 10)]), "mount(p/c)");
    assert_eq!(fixture.ok("mount(p/c)"), "expand(p/c again), ready#3(1)");
}

#[test]
fn volume_expanded_on_other_node_is_expanded_without_wait() {
    let mut fixture = mounted_fixture(sized(10, 10));
    // PersistentVolume and PVC have the size, but the mounted file system does not
    assert_eq!(fixture.set_up("p", &[sized(20, 20)]), "mount(p/c)");
    assert_eq!(fixture.ok("mount(p/c)"), "expand(p/c), ready#2(1)");
    // another pod does not wait and does not expand the volume again
    assert_eq!(fixture.set_up("q", &[sized(20, 20)]), "mount(q/c)");
    assert_eq!(fixture.ok("mount(q/c)"), "ready#3(1)");
    assert_eq!(fixture.ok("expand(p/c)"), expanded_events("p"));
    assert_eq!(fixture.set_up("q", &[sized(20, 20)]), "mount(q/c)");
    assert_eq!(fixture.ok("mount(q/c)"), "ready#4(1)");
}

#[test]
fn volume_of_two_pods_is_expanded_once() {
    let mut fixture = mounted_fixture(sized(10, 10));
    fixture.set_up("q", &[sized(10, 10)]);
    fixture.ok("mount(q/c)");
    fixture.set_up("p", &[sized(20, 10)]);
    fixture.ok("mount(p/c)");
    fixture.set_up("q", &[sized(20, 10)]);
    assert_eq!(fixture.ok("mount(q/c)"), "ready#4(1)");
    // the second pod expands it if the first fails
    let failed = format!("event(p VolumeResizeFailed: {FAILED}busy)");
    assert_eq!(
        fixture.fails("expand(p/c)", "busy"),
        format!("{failed}, expand(q/c)")
    );
    assert_eq!(fixture.ok("expand(q/c)"), expanded_events("q"));
    assert_eq!(fixture.tick(1.0), "");
    assert_eq!(fixture.timer(), "idle");
}

#[test]
fn deferred_expansion_is_retried_by_next_sync() {
    let mut fixture = Fixture::new();
    fixture.set_up("p", &[sized(20, 10)]);
    fixture.ok(STAGE);
    fixture.ok("mount(p/c)");
    assert_eq!(
        fixture.expanded("expand(p/c)", ExpansionResult::Deferred),
        "ready#1(1)"
    );
    assert_eq!(fixture.timer(), "idle");
    fixture.set_up("p", &[sized(20, 10)]);
    assert_eq!(fixture.ok("mount(p/c)"), "expand(p/c), ready#2(1)");
    // the PVC had the size already: no event
    assert_eq!(
        fixture.expanded("expand(p/c)", ExpansionResult::AlreadyExpanded(20)),
        ""
    );
    fixture.set_up("p", &[sized(20, 10)]);
    assert_eq!(fixture.ok("mount(p/c)"), "ready#3(1)");
}

#[test]
fn expansion_skipped_in_use_is_retried_after_unstage() {
    let mut fixture = mounted_fixture(sized(10, 10));
    fixture.set_up("p", &[sized(20, 10)]);
    fixture.ok("mount(p/c)");
    assert_eq!(
        fixture.expanded("expand(p/c)", ExpansionResult::SkippedInUse),
        ""
    );
    fixture.set_up("p", &[sized(20, 10)]);
    assert_eq!(fixture.ok("mount(p/c)"), "ready#3(1)");
    fixture.tear_down("p", TearDownRequester::Worker);
    fixture.ends("discover(p)", Ok(vec![found("csi", "pv-c", Some("c"))]));
    fixture.ok("unmount(p/pv-c)");
    fixture.ok("unstage(kubernetes.io/csi/d^c)");
    assert_eq!(fixture.set_up("p", &[sized(20, 10)]), STAGE);
    fixture.ok(STAGE);
    assert_eq!(fixture.ok("mount(p/c)"), "expand(p/c)");
}

#[test]
fn read_only_volume_records_unexpanded_size_once() {
    let mut volume = sized(20, 10);
    volume.read_only = true;
    let volumes = [volume];
    let mut fixture = Fixture::new();
    fixture.set_up("p", &volumes);
    fixture.ok(STAGE);
    let text = "FileSystemResizeFailed: MountVolume.NodeExpandVolume failed for volume \"pv-c\" \
                requested read-only file system";
    assert_eq!(
        fixture.ok("mount(p/c)"),
        format!("event(p {text}), pvc-event(c {text}), ready#1(1)")
    );
    fixture.set_up("p", &volumes);
    assert_eq!(fixture.ok("mount(p/c)"), "ready#2(1)");
}
