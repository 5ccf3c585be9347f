//! Devices: staged once, attached by a controller, for one pod only, taken back after the last.

use super::*;

const STAGE: &str = "stage(kubernetes.io/csi/d^c)";
const UNSTAGE: &str = "unstage(kubernetes.io/csi/d^c)";

fn lies() -> Vec<DiscoveredVolume> {
    vec![found("csi", "pv-c", Some("c"))]
}

/// Takes everything from a pod that has the device; the last line.
fn gone(world: &mut World, pod: &str) -> String {
    world.release(pod, TearDownRequester::Worker);
    world.ends(&format!("find({pod})"), Ok(lies()));
    world.ok(&format!("unmount({pod}/pv-c)"))
}

#[test]
fn a_device_is_staged_once_for_two_pods_and_taken_back_after_the_last() {
    let mut world = World::new();
    let shared = [csi("c", |_| ())];
    assert_eq!(world.ask("p", &shared), STAGE);
    assert_eq!(world.ask("q", &shared), "");
    assert_eq!(world.ok(STAGE), "mount(p/c), mount(q/c)");
    assert_eq!(world.ok("mount(p/c)"), "ready#1(1)");
    assert_eq!(world.ok("mount(q/c)"), "ready#2(1)");
    assert_eq!(gone(&mut world, "p"), "released#3");
    assert_eq!(gone(&mut world, "q"), format!("released#4, {UNSTAGE}"));
    assert_eq!(world.ok(UNSTAGE), "");
    assert!(world.plan.devices.is_empty());
    assert_eq!(world.timer(), "idle");
}

#[test]
fn a_device_that_cannot_be_staged_fails_every_pod_that_waits_for_it() {
    let mut world = World::new();
    let shared = [csi("c", |_| ())];
    world.ask("p", &shared);
    world.ask("q", &shared);
    let failed = "MountVolume.MountDevice failed for volume \"pv-c\" : no driver";
    assert_eq!(
        world.fails(STAGE, "no driver"),
        format!(
            "event(p FailedMount: {failed}), event(q FailedMount: {failed}), \
             not#1(FailedMount: {failed}), not#2(FailedMount: {failed})"
        )
    );
    assert_eq!(world.tick(0.5), STAGE);
    assert_eq!(world.timer(), "idle");
    assert_eq!(world.ok(STAGE), "mount(p/c), mount(q/c)");
    assert_eq!(world.ok("mount(p/c)"), "wake(p)");
}

#[test]
fn a_device_that_is_not_given_back_is_tried_again_unless_a_pod_wants_it() {
    let mut world = World::new();
    let shared = [csi("c", |_| ())];
    world.ask("p", &shared);
    world.ok(STAGE);
    world.ok("mount(p/c)");
    gone(&mut world, "p");
    // who wants it meanwhile waits for the end
    assert_eq!(world.ask("q", &shared), "");
    assert_eq!(world.fails(UNSTAGE, "busy"), STAGE);
    world.ok(STAGE);
    world.ok("mount(q/c)");
    gone(&mut world, "q");
    assert_eq!(world.fails(UNSTAGE, "busy"), "");
    assert_eq!(world.timer(), "0.5s");
    assert_eq!(world.tick(0.5), UNSTAGE);
    assert_eq!(world.ok(UNSTAGE), "");
    assert_eq!(world.timer(), "idle");
}

#[test]
fn a_device_waits_until_the_node_says_that_it_is_in_use_and_then_for_the_controller() {
    let mut world = World::new();
    let attached = [csi("c", |volume| volume.attach_required = true)];
    let name = device("c").0;
    assert_eq!(world.ask("p", &attached), format!("in-use({name})"));
    let words = format!(
        "Volume has not been added to the list of VolumesInUse in the node's volume status for \
         volume \"pv-c\" (UniqueName: \"{name}\")"
    );
    assert_eq!(
        world.tick(10.0),
        format!(
            "not#1(FailedAttachVolume: {words}), event(p FailedAttachVolume: Unable to attach or \
             mount volumes: {words})"
        )
    );
    // only why nobody attaches it is asked some day
    assert_eq!(world.timer(), "113s");
    assert_eq!(world.node(&[], &["c"]), "");
    world.ask("p", &attached);
    assert_eq!(
        world.tick(20.0),
        format!(
            "not#2(FailedAttachVolume: Volume not attached according to node status for volume \
             \"pv-c\" (UniqueName: \"{name}\"))"
        )
    );
    assert_eq!(world.node(&["c"], &["c"]), STAGE);
    assert_eq!(world.ok(STAGE), "mount(p/c)");
    assert_eq!(world.ok("mount(p/c)"), "wake(p)");
    // once staged, what the status says changes nothing
    assert_eq!(world.node(&[], &["c"]), "");
    assert_eq!(gone(&mut world, "p"), format!("released#3, {UNSTAGE}"));
    // until it is taken back it is in use
    assert_eq!(world.ok(UNSTAGE), "in-use()");
}

#[test]
fn a_volume_for_one_pod_goes_to_the_next_when_the_first_has_let_go() {
    let mut world = World::new();
    let mut alone = csi("c", |_| ());
    if let Some(claim) = &mut alone.claim {
        claim.exclusive = true;
    }
    let alone = [alone];
    world.ask("p", &alone);
    world.ok(STAGE);
    assert_eq!(world.ok("mount(p/c)"), "ready#1(1)");
    let taken = "MountVolume.SetUp failed for volume \"pv-c\" : volume uses the ReadWriteOncePod \
                 access mode and is already in use by another pod";
    assert_eq!(
        world.ask("q", &alone),
        format!("event(q FailedMount: {taken}), not#2(FailedMount: {taken})")
    );
    assert_eq!(gone(&mut world, "p"), "released#3, mount(q/c)");
    assert_eq!(world.ok("mount(q/c)"), "wake(q)");
}

#[test]
fn what_an_earlier_life_staged_goes_when_the_sources_have_spoken_and_nobody_uses_it() {
    let mut world = World::unsurveyed();
    assert_eq!(world.tick(0.0), "survey");
    let survey = Survey {
        pods: BTreeMap::from([(PodUid::from("p"), lies())]),
        devices: vec![device("c"), device("left")],
    };
    assert_eq!(world.surveyed(survey), "");
    let left = "unstage(kubernetes.io/csi/d^left)";
    assert_eq!(world.hear(Input::SourcesReady), left);
    // the pod's own device goes with the pod
    assert_eq!(gone(&mut world, "p"), format!("released#1, {UNSTAGE}"));
}

#[test]
fn a_pod_that_was_released_while_the_disk_was_read_uses_nothing() {
    let mut world = World::unsurveyed();
    world.hear(Input::SourcesReady);
    assert_eq!(gone(&mut world, "p"), "released#1");
    let survey = Survey {
        pods: BTreeMap::from([(PodUid::from("p"), lies())]),
        devices: vec![device("c")],
    };
    assert_eq!(world.surveyed(survey), UNSTAGE);
}

#[test]
fn a_disk_that_cannot_be_read_is_read_again_and_nothing_is_taken_back_before() {
    let mut world = World::unsurveyed();
    world.hear(Input::SourcesReady);
    let shared = [csi("c", |_| ())];
    assert_eq!(world.ask("p", &shared), STAGE);
    world.ok(STAGE);
    assert_eq!(world.ok("mount(p/c)"), "ready#1(1)");
    assert_eq!(gone(&mut world, "p"), "released#2");
    assert_eq!(world.fails("survey", "io"), "");
    assert_eq!(world.timer(), "0.5s");
    assert_eq!(world.tick(0.5), "survey");
    assert_eq!(world.ok("survey"), UNSTAGE);
}

#[test]
fn what_the_node_was_said_to_use_stays_until_it_is_known_who_does() {
    let mut world = World::unsurveyed();
    world.tick(0.0);
    let name = device("c").0;
    assert_eq!(world.node(&["c"], &["c"]), format!("in-use({name})"));
    world.surveyed(Survey::default());
    assert_eq!(world.hear(Input::SourcesReady), "in-use()");
}
