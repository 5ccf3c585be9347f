//! Volumes that cannot be brought up to date: who has one goes on with it.

use super::*;
use crate::volume_source::PayloadKind;
use windlass_pod_inputs::projection::{PayloadFile, VolumePayload};

const GONE: &str = "configmap \"c\" not found";
const TOLD: &str = "MountVolume.SetUp failed for volume \"v\" : configmap \"c\" not found";

/// The volume `v`, which shows a text.
fn shows(text: &str) -> PodVolume {
    let file = PayloadFile {
        data: text.as_bytes().into(),
        mode: 0o644,
        owner: None,
    };
    let payload = VolumePayload {
        files: [("key".to_owned(), file)].into(),
        in_memory: false,
    };
    volume("v", VolumeSource::Payload(PayloadKind::ConfigMap, payload))
}

/// The same, of which nobody knows what it is to show.
fn withheld() -> PodVolume {
    let source = VolumeSource::PayloadUnavailable(PayloadKind::ConfigMap, GONE.to_owned());
    volume("v", source)
}

/// A plan with the pod `u`, which has the volume.
fn with_volume() -> World {
    let mut world = World::new();
    assert_eq!(world.ask("u", &[shows("1")]), "mount(u/v)");
    assert_eq!(world.ok("mount(u/v)"), "ready#1(1)");
    world
}

#[test]
fn a_pod_that_never_had_the_volume_waits_for_what_it_shows() {
    let mut world = World::new();
    assert_eq!(world.ask("u", &[withheld()]), "mount(u/v)");
    assert_eq!(
        world.fails("mount(u/v)", GONE),
        format!("event(u FailedMount: {TOLD}), not#1(FailedMount: {TOLD})")
    );
    world.at(0.2);
    assert_eq!(
        world.ask("u", &[withheld()]),
        format!("not#2(FailedMount: {TOLD})")
    );
    // what it waits for is there: no pause
    assert_eq!(world.ask("u", &[shows("1")]), "mount(u/v)");
    assert_eq!(world.ok("mount(u/v)"), "ready#3(1), wake(u)");
    assert_eq!(world.timer(), "idle");
}

#[test]
fn a_pod_that_has_the_volume_keeps_what_it_shows_and_hears_why() {
    let mut world = with_volume();
    let kept = |ask: u64| format!("ready#{ask}(1, kept: {TOLD})");
    assert_eq!(
        world.ask("u", &[withheld()]),
        format!("event(u FailedMount: {TOLD}), {}", kept(2))
    );
    // told once in its pause, however often it is asked, and nothing is waited for
    world.at(0.1);
    assert_eq!(world.ask("u", &[withheld()]), kept(3));
    assert_eq!(world.timer(), "idle");
    world.at(60.0);
    assert_eq!(
        world.ask("u", &[withheld()]),
        format!("event(u FailedMount: {TOLD}), {}", kept(4))
    );
    // the object is back as it was, then with news
    assert_eq!(world.ask("u", &[shows("1")]), "ready#5(1)");
    assert_eq!(world.ask("u", &[shows("2")]), "mount(u/v)");
    assert_eq!(world.ok("mount(u/v)"), "ready#6(1)");
}

#[test]
fn what_an_earlier_life_shows_is_kept_too() {
    let mut world = World::new();
    assert_eq!(world.ask("u", &[withheld()]), "mount(u/v)");
    assert_eq!(
        world.ok("mount(u/v)"),
        format!("event(u FailedMount: {TOLD}), ready#1(1, kept: {TOLD})")
    );
    assert_eq!(world.timer(), "idle");
    // nobody knows what it shows, so the first content is compared with it
    assert_eq!(world.ask("u", &[shows("1")]), "mount(u/v)");
    assert_eq!(world.ok("mount(u/v)"), "ready#2(1)");
}

#[test]
fn what_is_lost_while_it_is_written_is_kept_as_it_was_written() {
    let mut world = with_volume();
    assert_eq!(world.ask("u", &[shows("2")]), "mount(u/v)");
    assert_eq!(world.ask("u", &[withheld()]), "");
    assert_eq!(
        world.ok("mount(u/v)"),
        format!("event(u FailedMount: {TOLD}), ready#2(1, kept: {TOLD}), ready#3(1, kept: {TOLD})")
    );
    assert_eq!(world.ask("u", &[shows("2")]), "ready#4(1)");
}

#[test]
fn a_write_that_fails_takes_nothing_either_and_the_pod_is_woken_when_it_is_done() {
    let mut world = with_volume();
    assert_eq!(world.ask("u", &[shows("2")]), "mount(u/v)");
    let full = "MountVolume.SetUp failed for volume \"v\" : no space left on device";
    assert_eq!(
        world.fails("mount(u/v)", "no space left on device"),
        format!("event(u FailedMount: {full}), ready#2(1, kept: {full})")
    );
    assert_eq!(world.timer(), "0.5s");
    assert_eq!(world.tick(0.5), "mount(u/v)");
    // its containers need not wait for the end of the try
    assert_eq!(
        world.ask("u", &[shows("2")]),
        format!("ready#3(1, kept: {full})")
    );
    assert_eq!(world.ok("mount(u/v)"), "wake(u)");
    assert_eq!(world.ask("u", &[shows("2")]), "ready#4(1)");
}

#[test]
fn other_volumes_hold_the_pod_up_all_the_same() {
    let mut world = with_volume();
    assert_eq!(
        world.ask("u", &[withheld(), empty("data")]),
        format!("event(u FailedMount: {TOLD}), mount(u/data)")
    );
    let busy = "MountVolume.SetUp failed for volume \"data\" : busy";
    assert_eq!(
        world.fails("mount(u/data)", "busy"),
        format!("event(u FailedMount: {busy}), not#2(FailedMount: {busy})")
    );
}

#[test]
fn what_was_taken_from_a_pod_is_not_kept() {
    let mut world = with_volume();
    assert_eq!(world.release("u", TearDownRequester::Worker), "find(u)");
    let lies = vec![found("configmap", "v", None)];
    assert_eq!(world.ends("find(u)", Ok(lies)), "unmount(u/v)");
    assert_eq!(world.ok("unmount(u/v)"), "released#2");
    assert_eq!(world.ask("u", &[withheld()]), "mount(u/v)");
    assert_eq!(
        world.fails("mount(u/v)", GONE),
        format!("event(u FailedMount: {TOLD}), not#3(FailedMount: {TOLD})")
    );
}
