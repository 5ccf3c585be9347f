//! Devices: staging, attachment by a controller, exclusive use, unstaging.

use super::*;

const STAGE: &str = "stage(kubernetes.io/csi/d^c)";
const UNSTAGE: &str = "unstage(kubernetes.io/csi/d^c)";

fn on_disk() -> Vec<DiscoveredVolume> {
    vec![found("csi", "pv-c", Some("c"))]
}

/// Tears down a pod that uses the device; returns the last steps.
fn tear_down(fixture: &mut Fixture, pod: &str) -> String {
    fixture.tear_down(pod, TearDownRequester::Worker);
    fixture.ends(&format!("discover({pod})"), Ok(on_disk()));
    fixture.ok(&format!("unmount({pod}/pv-c)"))
}

#[test]
fn shared_device_is_staged_once_and_unstaged_after_last_pod() {
    let mut fixture = Fixture::new();
    let shared = [csi("c", |_| ())];
    assert_eq!(fixture.set_up("p", &shared), STAGE);
    assert_eq!(fixture.set_up("q", &shared), "");
    assert_eq!(fixture.ok(STAGE), "mount(p/c), mount(q/c)");
    assert_eq!(fixture.ok("mount(p/c)"), "ready#1(1)");
    assert_eq!(fixture.ok("mount(q/c)"), "ready#2(1)");
    assert_eq!(tear_down(&mut fixture, "p"), "torn-down#3");
    assert_eq!(
        tear_down(&mut fixture, "q"),
        format!("torn-down#4, {UNSTAGE}")
    );
    assert_eq!(fixture.ok(UNSTAGE), "");
    assert!(fixture.reconciler.devices.is_empty());
    assert_eq!(fixture.timer(), "idle");
}

#[test]
fn failed_stage_fails_all_waiting_pods() {
    let mut fixture = Fixture::new();
    let shared = [csi("c", |_| ())];
    fixture.set_up("p", &shared);
    fixture.set_up("q", &shared);
    let failed = "MountVolume.MountDevice failed for volume \"pv-c\" : no driver";
    assert_eq!(
        fixture.fails(STAGE, "no driver"),
        format!(
            "event(p FailedMount: {failed}), event(q FailedMount: {failed}), \
             failed#1(FailedMount: {failed}), failed#2(FailedMount: {failed})"
        )
    );
    assert_eq!(fixture.tick(0.5), STAGE);
    assert_eq!(fixture.timer(), "idle");
    assert_eq!(fixture.ok(STAGE), "mount(p/c), mount(q/c)");
    assert_eq!(fixture.ok("mount(p/c)"), "requeue(p)");
}

#[test]
fn failed_unstage_is_retried_unless_pod_uses_device() {
    let mut fixture = Fixture::new();
    let shared = [csi("c", |_| ())];
    fixture.set_up("p", &shared);
    fixture.ok(STAGE);
    fixture.ok("mount(p/c)");
    tear_down(&mut fixture, "p");
    // a set-up waits for the unstage in progress
    assert_eq!(fixture.set_up("q", &shared), "");
    assert_eq!(fixture.fails(UNSTAGE, "busy"), STAGE);
    fixture.ok(STAGE);
    fixture.ok("mount(q/c)");
    tear_down(&mut fixture, "q");
    assert_eq!(fixture.fails(UNSTAGE, "busy"), "");
    assert_eq!(fixture.timer(), "0.5s");
    assert_eq!(fixture.tick(0.5), UNSTAGE);
    assert_eq!(fixture.ok(UNSTAGE), "");
    assert_eq!(fixture.timer(), "idle");
}

#[test]
fn device_waits_for_volumes_in_use_then_for_controller() {
    let mut fixture = Fixture::new();
    let attached = [csi("c", |volume| volume.attach_required = true)];
    let name = device("c").0;
    assert_eq!(fixture.set_up("p", &attached), format!("in-use({name})"));
    let words = format!(
        "Volume has not been added to the list of VolumesInUse in the node's volume status for \
         volume \"pv-c\" (UniqueName: \"{name}\")"
    );
    assert_eq!(
        fixture.tick(10.0),
        format!(
            "failed#1(FailedAttachVolume: {words}), event(p FailedAttachVolume: Unable to attach or \
             mount volumes: {words})"
        )
    );
    // the next timer is the check of the attach limit
    assert_eq!(fixture.timer(), "113s");
    assert_eq!(fixture.node(&[], &["c"]), "");
    fixture.set_up("p", &attached);
    assert_eq!(
        fixture.tick(20.0),
        format!(
            "failed#2(FailedAttachVolume: Volume not attached according to node status for volume \
             \"pv-c\" (UniqueName: \"{name}\"))"
        )
    );
    assert_eq!(fixture.node(&["c"], &["c"]), STAGE);
    assert_eq!(fixture.ok(STAGE), "mount(p/c)");
    assert_eq!(fixture.ok("mount(p/c)"), "requeue(p)");
    // the Node status does not affect a staged device
    assert_eq!(fixture.node(&[], &["c"]), "");
    assert_eq!(
        tear_down(&mut fixture, "p"),
        format!("torn-down#3, {UNSTAGE}")
    );
    // a device is in use until it is unstaged
    assert_eq!(fixture.ok(UNSTAGE), "in-use()");
}

#[test]
fn exclusive_volume_mounts_after_other_pod_tear_down() {
    let mut fixture = Fixture::new();
    let mut alone = csi("c", |_| ());
    if let Some(pvc) = &mut alone.pvc {
        pvc.exclusive = true;
    }
    let alone = [alone];
    fixture.set_up("p", &alone);
    fixture.ok(STAGE);
    assert_eq!(fixture.ok("mount(p/c)"), "ready#1(1)");
    let taken = "MountVolume.SetUp failed for volume \"pv-c\" : volume uses the ReadWriteOncePod \
                 access mode and is already in use by another pod";
    assert_eq!(
        fixture.set_up("q", &alone),
        format!("event(q FailedMount: {taken}), failed#2(FailedMount: {taken})")
    );
    assert_eq!(tear_down(&mut fixture, "p"), "torn-down#3, mount(q/c)");
    assert_eq!(fixture.ok("mount(q/c)"), "requeue(q)");
}

#[test]
fn unused_staged_device_is_unstaged_after_sources_ready() {
    let mut fixture = Fixture::before_reconstruction();
    assert_eq!(fixture.tick(0.0), "reconstruct");
    let survey = Reconstruction {
        pods: BTreeMap::from([(PodUid::from("p"), on_disk())]),
        devices: vec![device("c"), device("left")],
    };
    assert_eq!(fixture.reconstructed(survey), "");
    let left = "unstage(kubernetes.io/csi/d^left)";
    assert_eq!(fixture.input(Input::SourcesReady), left);
    // the device of the pod is unstaged after its tear-down
    assert_eq!(
        tear_down(&mut fixture, "p"),
        format!("torn-down#1, {UNSTAGE}")
    );
}

#[test]
fn pod_torn_down_during_reconstruction_uses_no_device() {
    let mut fixture = Fixture::before_reconstruction();
    fixture.input(Input::SourcesReady);
    assert_eq!(tear_down(&mut fixture, "p"), "torn-down#1");
    let survey = Reconstruction {
        pods: BTreeMap::from([(PodUid::from("p"), on_disk())]),
        devices: vec![device("c")],
    };
    assert_eq!(fixture.reconstructed(survey), UNSTAGE);
}

#[test]
fn failed_reconstruction_is_retried_before_any_unstage() {
    let mut fixture = Fixture::before_reconstruction();
    fixture.input(Input::SourcesReady);
    let shared = [csi("c", |_| ())];
    assert_eq!(fixture.set_up("p", &shared), STAGE);
    fixture.ok(STAGE);
    assert_eq!(fixture.ok("mount(p/c)"), "ready#1(1)");
    assert_eq!(tear_down(&mut fixture, "p"), "torn-down#2");
    assert_eq!(fixture.fails("reconstruct", "io"), "");
    assert_eq!(fixture.timer(), "0.5s");
    assert_eq!(fixture.tick(0.5), "reconstruct");
    assert_eq!(fixture.ok("reconstruct"), UNSTAGE);
}

#[test]
fn volumes_in_use_stay_until_users_are_known() {
    let mut fixture = Fixture::before_reconstruction();
    fixture.tick(0.0);
    let name = device("c").0;
    assert_eq!(fixture.node(&["c"], &["c"]), format!("in-use({name})"));
    fixture.reconstructed(Reconstruction::default());
    assert_eq!(fixture.input(Input::SourcesReady), "in-use()");
}
