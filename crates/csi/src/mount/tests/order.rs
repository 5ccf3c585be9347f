//! Order of calls, without unnecessary ones.

use super::fixture::{Fault, Fixture, inline, persistent, pod};
use crate::port::NodeCapability;

const SHA: &str = "d2e8363faaac7ae76def3b14091d8eb5755f6b92e9531627aeec833a8731cc49";

fn staged() -> String {
    format!("vol-1 plugins/kubernetes.io/csi/host.csi.k8s.io/{SHA}/globalmount")
}

#[test]
fn volume_of_two_pods_is_staged_once_and_published_twice() {
    let fixture = Fixture::new(&[NodeCapability::Stage]);
    let (first, second) = (pod("uid-1"), pod("uid-2"));
    let volume = persistent(|_| {});
    for pod in [&first, &second] {
        fixture.stage(pod, &volume).unwrap();
        let mounted = fixture.set_up(pod, &volume).unwrap();
        assert!(mounted.relabel && !mounted.read_only);
    }
    let at = |uid: &str| format!("vol-1 pods/{uid}/volumes/kubernetes.io~csi/pv-1/mount");
    assert_eq!(
        fixture.journal(),
        format!(
            "stage {}, publish {one}, group 2000 data pods/uid-1/volumes/kubernetes.io~csi/pv-1/mount, \
             publish {two}, group 2000 data pods/uid-2/volumes/kubernetes.io~csi/pv-1/mount",
            staged(),
            one = at("uid-1"),
            two = at("uid-2"),
        )
    );
    fixture.tear_down(&first, &volume).unwrap();
    assert_eq!(fixture.journal(), format!("unpublish {}", at("uid-1")));
    fixture.tear_down(&second, &volume).unwrap();
    fixture.unstage(&volume).unwrap();
    assert_eq!(
        fixture.journal(),
        format!("unpublish {}, unstage {}", at("uid-2"), staged())
    );
    fixture.assert_clean("after the last pod");
}

#[test]
fn device_in_use_is_not_unstaged() {
    let mut fixture = Fixture::new(&[NodeCapability::Stage]);
    let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
    fixture.stage(&pod, &volume).unwrap();
    fixture.set_up(&pod, &volume).unwrap();
    fixture.journal();
    fixture.restart();
    let error = fixture.unstage(&volume).unwrap_err().to_string();
    assert!(
        error.starts_with(
            "device kubernetes.io/csi/host.csi.k8s.io^vol-1 is published to the pod at /"
        ),
        "{error}"
    );
    assert!(
        error.ends_with("pods/uid-1/volumes/kubernetes.io~csi/pv-1"),
        "{error}"
    );
    assert_eq!(fixture.journal(), "");
}

#[test]
fn driver_without_staging_only_publishes() {
    let fixture = Fixture::new(&[]);
    let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
    fixture.stage(&pod, &volume).unwrap();
    fixture.set_up(&pod, &volume).unwrap();
    assert!(fixture.journal().starts_with("publish vol-1 pods/"));
    assert_eq!(
        fixture
            .state()
            .last_publish
            .as_ref()
            .unwrap()
            .volume
            .staging_path,
        None
    );
    fixture.tear_down(&pod, &volume).unwrap();
    fixture.unstage(&volume).unwrap();
    assert!(fixture.journal().starts_with("unpublish vol-1 pods/"));
    fixture.assert_clean("after the pod");
}

#[test]
fn inline_volume_is_published_with_generated_handle() {
    let fixture = Fixture::new(&[NodeCapability::Stage]);
    let (pod, volume) = (pod("uid-1"), inline());
    fixture.stage(&pod, &volume).unwrap();
    fixture.set_up(&pod, &volume).unwrap();
    let handle = crate::mount::inline_handle(&"uid-1".to_owned().into(), "scratch");
    let at = "pods/uid-1/volumes/kubernetes.io~csi/scratch/mount";
    assert_eq!(
        fixture.journal(),
        format!("publish {handle} {at}, group 2000 data {at}")
    );
    fixture.tear_down(&pod, &volume).unwrap();
    assert_eq!(fixture.journal(), format!("unpublish {handle} {at}"));
    fixture.assert_clean("after the pod");
}

#[test]
fn completed_set_up_needs_no_driver() {
    let mut fixture = Fixture::new(&[NodeCapability::Stage]);
    let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
    fixture.stage(&pod, &volume).unwrap();
    fixture.set_up(&pod, &volume).unwrap();
    fixture.journal();
    fixture.drivers.remove(super::fixture::DRIVER);
    fixture.state().unreachable = true;
    for restarted in [false, true] {
        if restarted {
            fixture.restart();
        }
        fixture.stage(&pod, &volume).unwrap();
        fixture.set_up(&pod, &volume).unwrap();
        assert_eq!(fixture.journal(), "", "restarted: {restarted}");
    }
}

#[test]
fn everything_is_mounted_again_after_a_reboot() {
    let mut fixture = Fixture::new(&[NodeCapability::Stage]);
    let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
    fixture.stage(&pod, &volume).unwrap();
    fixture.set_up(&pod, &volume).unwrap();
    fixture.journal();
    {
        let mut state = fixture.state();
        state.mounts.clear();
        state.staged.clear();
        state.published.clear();
    }
    fixture.restart();
    fixture.stage(&pod, &volume).unwrap();
    fixture.set_up(&pod, &volume).unwrap();
    let journal = fixture.journal();
    assert!(journal.starts_with("stage vol-1"), "{journal}");
    assert!(journal.contains("publish vol-1"), "{journal}");
}

#[test]
fn hung_publish_does_not_delay_other_pods() {
    let fixture = Fixture::new(&[]);
    let volume = persistent(|_| {});
    fixture.next("publish", Fault::Hang);
    assert!(fixture.try_set_up(&pod("uid-1"), &volume).is_none());
    fixture.set_up(&pod("uid-2"), &volume).unwrap();
}

#[test]
fn driver_with_capability_expands_to_the_requested_size() {
    let check = |capabilities: &[NodeCapability], line: &str| {
        let fixture = Fixture::new(capabilities);
        let volume = persistent(|_| {});
        fixture.expand(&pod("uid-1"), &volume, 20).unwrap();
        assert_eq!(fixture.journal(), line);
    };
    let both = [NodeCapability::Stage, NodeCapability::Expand];
    let at = "pods/uid-1/volumes/kubernetes.io~csi/pv-1/mount";
    check(&both, &format!("expand vol-1 to 20 staged true {at}"));
    check(
        &[NodeCapability::Expand],
        &format!("expand vol-1 to 20 staged false {at}"),
    );
}

#[test]
fn expansion_errors_are_classified() {
    let check = |capabilities: &[NodeCapability], fault: Option<Fault>, expected: &str| {
        let fixture = Fixture::new(capabilities);
        if let Some(fault) = fault {
            fixture.next("expand", fault);
        }
        let error = fixture.expand(&pod("uid-1"), &persistent(|_| {}), 20);
        let error = error.unwrap_err();
        let line = format!("{:?} {:?}: {error}", error.expansion_error(), error.retry());
        assert_eq!(line, expected);
    };
    let can = [NodeCapability::Expand];
    check(
        &[],
        None,
        "Unsupported Later: NodeExpand is not supported by the CSI driver host.csi.k8s.io",
    );
    let refused = "Expander.NodeExpand failed to expand the volume";
    check(
        &can,
        Some(Fault::Refuse),
        &format!("Infeasible Never: {refused} rpc error: code = InvalidArgument desc = no"),
    );
    check(
        &can,
        Some(Fault::Code("FailedPrecondition")),
        &format!("InUse Later: {refused} : rpc error: code = FailedPrecondition desc = no"),
    );
    check(
        &can,
        Some(Fault::Code("Internal")),
        &format!("Failed Later: {refused} : rpc error: code = Internal desc = no"),
    );
}

#[test]
fn usage_needs_capability_and_published_volume() {
    let fixture = Fixture::new(&[NodeCapability::Usage]);
    let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
    assert_eq!(fixture.usage(&pod, &volume).unwrap(), None);
    fixture.set_up(&pod, &volume).unwrap();
    fixture.journal();
    let usage = fixture.usage(&pod, &volume).unwrap().unwrap();
    assert_eq!(usage.entries[0].used, 4);
    assert_eq!(
        fixture.journal(),
        "usage vol-1 pods/uid-1/volumes/kubernetes.io~csi/pv-1/mount"
    );
    fixture.state().capabilities.clear();
    assert_eq!(fixture.usage(&pod, &volume).unwrap(), None);
}
