//! `requiresRepublish`: each set-up publishes again, and failures do not affect the pod.

use super::fixture::{DRIVER, Fault, Fixture, inline, pod};
use crate::port::CsiDriverSpec;

fn fixture() -> Fixture {
    let fixture = Fixture::new(&[]);
    fixture.state().spec = Some(CsiDriverSpec {
        ephemeral: true,
        requires_republish: true,
        ..CsiDriverSpec::default()
    });
    fixture
}

#[test]
fn each_set_up_republishes() {
    let mut fixture = fixture();
    let (pod, volume) = (pod("uid-1"), inline());
    fixture.set_up(&pod, &volume).unwrap();
    fixture.set_up(&pod, &volume).unwrap();
    fixture.restart();
    fixture.set_up(&pod, &volume).unwrap();
    assert_eq!(fixture.journal().matches("publish csi-").count(), 3);
}

#[test]
fn failed_republish_keeps_the_mount() {
    let fixture = fixture();
    let (pod, volume) = (pod("uid-1"), inline());
    fixture.set_up(&pod, &volume).unwrap();
    let mounts = fixture.state().mounts.clone();
    for fault in [Fault::Refuse, Fault::LoseRequest, Fault::LoseAnswer] {
        fixture.next("publish", fault);
        fixture.set_up(&pod, &volume).unwrap();
        assert_eq!(fixture.state().mounts, mounts, "{fault:?}");
    }
    fixture.state().unreachable = true;
    fixture.set_up(&pod, &volume).unwrap();
    fixture.state().unreachable = false;
    fixture.drivers.remove(DRIVER);
    fixture.set_up(&pod, &volume).unwrap();
    fixture.register();
    fixture.tear_down(&pod, &volume).unwrap();
    fixture.assert_clean("unpublished by its volume data");
}

#[test]
fn failed_republish_keeps_the_volume_completed() {
    let mut fixture = fixture();
    let (pod, volume) = (pod("uid-1"), inline());
    fixture.set_up(&pod, &volume).unwrap();
    fixture.next("publish", Fault::LoseAnswer);
    fixture.set_up(&pod, &volume).unwrap();
    fixture.restart();
    fixture.drivers.remove(DRIVER);
    fixture.set_up(&pod, &volume).unwrap();
}
