//! Volumes that are not attached.

use super::*;

fn attached_elsewhere() -> PodVolume {
    csi("c", |volume| volume.attach_required = true)
}

fn answered(fixture: &mut Fixture, full: bool) -> String {
    let Some(Step::CheckAttachLimit(work)) = fixture.open.remove("check-attach-limit(p/c)") else {
        panic!("no check in progress");
    };
    fixture.input(Input::StepFinished(StepResult::AttachLimitChecked(
        work.pod.uid(),
        work.key,
        full,
    )))
}

/// Returns a reconciler with a check in progress.
fn waiting() -> Fixture {
    let mut fixture = Fixture::new();
    let name = device("c");
    let in_use = format!("in-use({name})");
    assert_eq!(
        fixture.set_up("p", &[attached_elsewhere(), empty("e")]),
        format!("mount(p/e), {in_use}")
    );
    fixture.ok("mount(p/e)");
    fixture.node(&[], &["c"]);
    assert!(
        fixture
            .tick(10.0)
            .starts_with("failed#1(FailedAttachVolume: ")
    );
    assert_eq!(fixture.timer(), "113s");
    assert_eq!(fixture.tick(123.0), "check-attach-limit(p/c)");
    assert_eq!(fixture.timer(), "idle");
    fixture
}

#[test]
fn pod_is_rejected_when_attach_limit_is_reached() {
    let mut fixture = waiting();
    assert_eq!(
        answered(&mut fixture, true),
        "reject(p: Node has reached its volume attachment limit, rejecting pod. unmounted \
         volumes=[c], unattached volumes=[c], failed to process volumes=[]: context deadline \
         exceeded)"
    );
    // only once
    for later in [246.0, 369.0] {
        assert_eq!(fixture.tick(later), "");
        assert_eq!(fixture.timer(), "idle");
    }
}

#[test]
fn attach_limit_is_checked_again_until_attached() {
    let mut fixture = waiting();
    assert_eq!(answered(&mut fixture, false), "");
    assert_eq!(fixture.timer(), "123s");
    assert_eq!(fixture.tick(246.0), "check-attach-limit(p/c)");
    // a result after the attachment is ignored
    let stage = format!("stage({})", device("c"));
    assert_eq!(fixture.node(&["c"], &["c"]), stage);
    assert_eq!(answered(&mut fixture, true), "");
    assert_eq!(fixture.ok(&stage), "mount(p/c)");
    assert_eq!(fixture.ok("mount(p/c)"), "requeue(p)");
    assert_eq!(fixture.timer(), "idle");
}
