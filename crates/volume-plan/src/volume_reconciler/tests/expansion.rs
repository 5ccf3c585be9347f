//! Volumes that grow.

use super::*;

/// A volume whose PersistentVolume has `wanted` bytes, and whose claim says `known`.
fn sized(wanted: u64, known: u64) -> PodVolume {
    csi("c", |volume| {
        volume.size = Some(PvcSize {
            claim: "c".into(),
            uid: "claim-uid".into(),
            wanted,
            known,
            open: true,
        });
    })
}

fn refused(message: &str, retry: Retry) -> Expanded {
    Expanded::Refused(StepError {
        operation: None,
        message: message.to_owned(),
        retry,
    })
}

const STAGE: &str = "stage(kubernetes.io/csi/d^c)";
const GROWN: &str = "FileSystemResizeSuccessful: MountVolume.NodeExpandVolume succeeded for volume \
                     \"pv-c\" ";
const FAILED: &str = "NodeExpandVolume.NodeExpandVolume failed for volume \"pv-c\" : ";
const FAILED_NEW: &str = "MountVolume.Setup failed while expanding volume for volume \"pv-c\" : ";

/// Pod and claim are told.
fn told(pod: &str) -> String {
    format!("event({pod} {GROWN}), claim-event(c {GROWN})")
}

/// A world in which the pod has the volume at its size.
fn mounted(volume: PodVolume) -> World {
    let mut world = World::new();
    assert_eq!(world.ask("p", &[volume]), STAGE);
    world.ok(STAGE);
    assert_eq!(world.ok("mount(p/c)"), "ready#1(1)");
    world
}

#[test]
fn a_volume_grows_after_it_is_mounted_and_once_for_each_size() {
    let mut world = mounted(sized(10, 10));
    assert_eq!(world.ask("p", &[sized(20, 10)]), "mount(p/c)");
    // what grows is there meanwhile
    assert_eq!(world.ok("mount(p/c)"), "expand(p/c), ready#2(1)");
    assert_eq!(world.ask("p", &[sized(20, 10)]), "ready#3(1)");
    assert_eq!(
        world.fails("expand(p/c)", "busy"),
        format!("event(p VolumeResizeFailed: {FAILED}busy)")
    );
    assert_eq!(world.tick(0.1), "");
    // nor does its pause keep a container from coming back
    assert_eq!(world.ask("p", &[sized(20, 10)]), "mount(p/c)");
    assert_eq!(world.ok("mount(p/c)"), "ready#4(1)");
    assert_eq!(world.tick(0.5), "expand(p/c)");
    assert_eq!(world.ok("expand(p/c)"), told("p"));
    // the claim's status may lag behind
    assert_eq!(world.ask("p", &[sized(20, 10)]), "mount(p/c)");
    assert_eq!(world.ok("mount(p/c)"), "ready#5(1)");
}

#[test]
fn a_new_volume_is_not_used_before_it_has_grown_unless_it_never_will() {
    let mut world = World::new();
    world.ask("p", &[sized(20, 10)]);
    world.ok(STAGE);
    assert_eq!(world.ok("mount(p/c)"), "expand(p/c)");
    let failed = format!("FailedMount: {FAILED_NEW}no");
    assert_eq!(
        world.expanded("expand(p/c)", refused("no", Retry::Later)),
        format!("event(p {failed}), not#1({failed})")
    );
    // that it was refused before counts when its user asks for another size
    assert_eq!(world.tick(0.5), "expand(p/c again)");
    assert_eq!(
        world.expanded("expand(p/c again)", refused("no", Retry::Never)),
        format!("event(p {failed}), wake(p)")
    );
    // its claim says so by now
    let mut infeasible = sized(20, 10);
    if let VolumeSource::Csi(csi) = &mut infeasible.source {
        csi.size.as_mut().expect("a size").open = false;
    }
    let volumes = [infeasible];
    assert_eq!(world.ask("p", &volumes), "mount(p/c)");
    assert_eq!(world.ok("mount(p/c)"), "ready#2(1)");
    // until the resizer lets it be tried again
    assert_eq!(world.ask("p", &[sized(20, 10)]), "mount(p/c)");
    assert_eq!(world.ok("mount(p/c)"), "expand(p/c again), ready#3(1)");
}

#[test]
fn a_volume_that_another_node_told_of_grows_here_too_and_nobody_waits_for_that() {
    let mut world = mounted(sized(10, 10));
    // PersistentVolume and claim have it already, but not what is mounted here
    assert_eq!(world.ask("p", &[sized(20, 20)]), "mount(p/c)");
    assert_eq!(world.ok("mount(p/c)"), "expand(p/c), ready#2(1)");
    // a pod that comes meanwhile does not wait, nor does the volume grow twice
    assert_eq!(world.ask("q", &[sized(20, 20)]), "mount(q/c)");
    assert_eq!(world.ok("mount(q/c)"), "ready#3(1)");
    assert_eq!(world.ok("expand(p/c)"), told("p"));
    assert_eq!(world.ask("q", &[sized(20, 20)]), "mount(q/c)");
    assert_eq!(world.ok("mount(q/c)"), "ready#4(1)");
}

#[test]
fn two_pods_of_a_node_grow_their_volume_once() {
    let mut world = mounted(sized(10, 10));
    world.ask("q", &[sized(10, 10)]);
    world.ok("mount(q/c)");
    world.ask("p", &[sized(20, 10)]);
    world.ok("mount(p/c)");
    world.ask("q", &[sized(20, 10)]);
    assert_eq!(world.ok("mount(q/c)"), "ready#4(1)");
    // the second takes its turn if the first fails
    let failed = format!("event(p VolumeResizeFailed: {FAILED}busy)");
    assert_eq!(
        world.fails("expand(p/c)", "busy"),
        format!("{failed}, expand(q/c)")
    );
    assert_eq!(world.ok("expand(q/c)"), told("q"));
    assert_eq!(world.tick(1.0), "");
    assert_eq!(world.timer(), "idle");
}

#[test]
fn what_is_not_the_nodes_turn_waits_for_the_next_sync() {
    let mut world = World::new();
    world.ask("p", &[sized(20, 10)]);
    world.ok(STAGE);
    world.ok("mount(p/c)");
    assert_eq!(
        world.expanded("expand(p/c)", Expanded::NotNow),
        "ready#1(1)"
    );
    assert_eq!(world.timer(), "idle");
    world.ask("p", &[sized(20, 10)]);
    assert_eq!(world.ok("mount(p/c)"), "expand(p/c), ready#2(1)");
    // the claim had it without this node: no event
    assert_eq!(world.expanded("expand(p/c)", Expanded::Has(20)), "");
    world.ask("p", &[sized(20, 10)]);
    assert_eq!(world.ok("mount(p/c)"), "ready#3(1)");
}

#[test]
fn what_does_not_grow_in_use_is_left_until_its_device_was_taken_back() {
    let mut world = mounted(sized(10, 10));
    world.ask("p", &[sized(20, 10)]);
    world.ok("mount(p/c)");
    assert_eq!(world.expanded("expand(p/c)", Expanded::Left), "");
    world.ask("p", &[sized(20, 10)]);
    assert_eq!(world.ok("mount(p/c)"), "ready#3(1)");
    world.release("p", TearDownRequester::Worker);
    world.ends("find(p)", Ok(vec![found("csi", "pv-c", Some("c"))]));
    world.ok("unmount(p/pv-c)");
    world.ok("unstage(kubernetes.io/csi/d^c)");
    assert_eq!(world.ask("p", &[sized(20, 10)]), STAGE);
    world.ok(STAGE);
    assert_eq!(world.ok("mount(p/c)"), "expand(p/c)");
}

#[test]
fn a_pod_that_may_only_read_hears_once_that_its_volume_does_not_grow() {
    let mut volume = sized(20, 10);
    volume.read_only = true;
    let volumes = [volume];
    let mut world = World::new();
    world.ask("p", &volumes);
    world.ok(STAGE);
    let text = "FileSystemResizeFailed: MountVolume.NodeExpandVolume failed for volume \"pv-c\" \
                requested read-only file system";
    assert_eq!(
        world.ok("mount(p/c)"),
        format!("event(p {text}), claim-event(c {text}), ready#1(1)")
    );
    world.ask("p", &volumes);
    assert_eq!(world.ok("mount(p/c)"), "ready#2(1)");
}
