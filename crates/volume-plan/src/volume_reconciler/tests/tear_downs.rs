//! Taking volumes away: what is looked up, in which order, and what resists.

use super::*;

/// A pod with a mounted volume.
fn with_pod() -> World {
    let mut world = World::new();
    world.ask("p", &[empty("a")]);
    assert_eq!(world.ok("mount(p/a)"), "ready#1(1)");
    world
}

fn a() -> Vec<DiscoveredVolume> {
    vec![found("empty-dir", "a", None)]
}

#[test]
fn everything_that_lies_there_goes_and_nothing_is_remembered() {
    let mut world = with_pod();
    assert_eq!(world.release("p", TearDownRequester::Worker), "find(p)");
    let lies = vec![found("empty-dir", "a", None), found("secret", "old", None)];
    assert_eq!(
        world.ends("find(p)", Ok(lies)),
        "unmount(p/a), unmount(p/old)"
    );
    assert_eq!(world.ok("unmount(p/old)"), "");
    assert_eq!(world.ok("unmount(p/a)"), "released#2");
    assert!(world.plan.pods.is_empty());
    assert_eq!(world.timer(), "idle");
}

#[test]
fn what_resists_is_named_and_tried_again_by_who_asks_again() {
    let mut world = with_pod();
    world.release("p", TearDownRequester::Worker);
    world.ends("find(p)", Ok(a()));
    assert_eq!(
        world.fails("unmount(p/a)", "device or resource busy"),
        "not#2(FailedMount: UnmountVolume.TearDown failed for volume \"a\" : device or resource \
         busy)"
    );
    assert_eq!(world.timer(), "idle");
    assert_eq!(world.release("p", TearDownRequester::Worker), "find(p)");
    assert_eq!(world.ends("find(p)", Ok(a())), "unmount(p/a)");
    assert_eq!(world.ok("unmount(p/a)"), "released#3");
}

#[test]
fn a_disk_that_cannot_be_read_is_told() {
    let mut world = with_pod();
    world.release("p", TearDownRequester::Worker);
    assert_eq!(
        world.fails("find(p)", "cannot list"),
        "not#2(FailedMount: cannot list)"
    );
    assert_eq!(world.release("p", TearDownRequester::Worker), "find(p)");
}

#[test]
fn a_release_waits_for_what_is_under_way_and_who_asked_hears_what_for() {
    let mut world = World::new();
    world.ask("p", &[empty("a")]);
    assert_eq!(
        world.release("p", TearDownRequester::Worker),
        "not#1(FailedMount: the pod's volumes are being released), give-up(p)"
    );
    let hangs = "MountVolume.SetUp of volume \"a\" is under way since 2023-11-14T22:13:20Z";
    assert_eq!(world.tick(10.0), format!("not#2(FailedMount: {hangs})"));
    world.at(50.0);
    assert_eq!(world.release("p", TearDownRequester::Worker), "give-up(p)");
    // it failed, and nobody wants it: no event, no further try
    assert_eq!(world.fails("mount(p/a)", "gone"), "find(p)");
    assert_eq!(world.ends("find(p)", Ok(a())), "unmount(p/a)");
    let hangs = "UnmountVolume.TearDown of volume \"a\" is under way since 2023-11-14T22:14:10Z";
    assert_eq!(world.tick(60.0), format!("not#3(FailedMount: {hangs})"));
    assert_eq!(world.ok("unmount(p/a)"), "");
    assert_eq!(world.release("p", TearDownRequester::Worker), "find(p)");
    assert_eq!(world.ends("find(p)", Ok(vec![])), "released#4");
}

#[test]
fn a_pod_that_comes_back_waits_for_the_release_and_is_set_up_anew() {
    let mut world = with_pod();
    world.release("p", TearDownRequester::Worker);
    assert_eq!(world.ask("p", &[empty("a")]), "");
    assert_eq!(world.ends("find(p)", Ok(a())), "unmount(p/a)");
    assert_eq!(world.ok("unmount(p/a)"), "released#2, mount(p/a)");
    assert_eq!(world.ok("mount(p/a)"), "ready#3(1)");
}

#[test]
fn housekeeping_takes_nothing_from_a_pod_that_is_asked_for() {
    let mut world = with_pod();
    assert_eq!(
        world.release("p", TearDownRequester::Housekeeping),
        "not#2(FailedMount: the pod is asked for again)"
    );
    assert_eq!(world.release("q", TearDownRequester::Housekeeping), "find(q)");
    assert_eq!(world.ends("find(q)", Ok(vec![])), "released#3");
}
