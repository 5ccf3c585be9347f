//! Registration of a CSI driver: failed CSI volumes are retried without back-off.

use super::*;

const STAGE: &str = "stage(kubernetes.io/csi/d^c)";
const UNSTAGE: &str = "unstage(kubernetes.io/csi/d^c)";

#[test]
fn driver_registration_retries_failed_csi_volumes() {
    let mut fixture = Fixture::new();
    fixture.set_up("p", &[csi("c", |_| ()), empty("a")]);
    fixture.fails("mount(p/a)", "disk full");
    fixture.fails(STAGE, "no driver");
    assert_eq!(fixture.timer(), "0.5s");
    assert_eq!(fixture.input(Input::DriverRegistered), STAGE);
    fixture.ok(STAGE);
    assert_eq!(fixture.ok("mount(p/c)"), "requeue(p)");
    // other volumes keep their back-off
    assert_eq!(fixture.timer(), "0.5s");
    assert_eq!(fixture.input(Input::DriverRegistered), "");
}

#[test]
fn driver_registration_retries_failed_unstage() {
    let mut fixture = Fixture::new();
    fixture.set_up("p", &[csi("c", |_| ())]);
    fixture.ok(STAGE);
    fixture.ok("mount(p/c)");
    fixture.tear_down("p", TearDownRequester::Worker);
    fixture.ends("discover(p)", Ok(vec![found("csi", "pv-c", Some("c"))]));
    assert_eq!(
        fixture.ok("unmount(p/pv-c)"),
        format!("torn-down#2, {UNSTAGE}")
    );
    fixture.fails(UNSTAGE, "no driver");
    assert_eq!(fixture.input(Input::DriverRegistered), UNSTAGE);
    assert_eq!(fixture.ok(UNSTAGE), "");
    assert_eq!(fixture.input(Input::DriverRegistered), "");
}

#[test]
fn driver_registration_requeues_failed_csi_tear_down() {
    let mut fixture = Fixture::new();
    fixture.set_up("p", &[csi("c", |_| ()), empty("a")]);
    fixture.ok(STAGE);
    fixture.ok("mount(p/a)");
    fixture.ok("mount(p/c)");
    let left = || {
        let csi = found("csi", "pv-c", Some("c"));
        vec![csi, found("empty-dir", "a", None)]
    };
    fixture.tear_down("p", TearDownRequester::Worker);
    assert_eq!(
        fixture.ends("discover(p)", Ok(left())),
        "unmount(p/pv-c), unmount(p/a)"
    );
    assert_eq!(fixture.ok("unmount(p/a)"), "");
    assert_eq!(
        fixture.fails("unmount(p/pv-c)", "no driver"),
        "failed#2(FailedMount: UnmountVolume.TearDown failed for volume \"pv-c\" : no driver)"
    );
    assert_eq!(fixture.input(Input::DriverRegistered), "requeue(p)");
    // once per failure
    assert_eq!(fixture.input(Input::DriverRegistered), "");
    assert_eq!(
        fixture.tear_down("p", TearDownRequester::Worker),
        "discover(p)"
    );
    fixture.ends("discover(p)", Ok(left()));
    fixture.ok("unmount(p/pv-c)");
    // other volumes are not retried
    fixture.fails("unmount(p/a)", "busy");
    assert_eq!(fixture.input(Input::DriverRegistered), "");
}
