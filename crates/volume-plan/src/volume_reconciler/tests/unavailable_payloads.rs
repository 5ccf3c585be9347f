//! Volumes with an unavailable payload: a mounted one stays.

use super::*;
use crate::volume_source::PayloadKind;
use windlass_pod_inputs::projection::{PayloadFile, VolumePayload};

const CAUSE: &str = "configmap \"c\" not found";
const FAILED: &str = "MountVolume.SetUp failed for volume \"v\" : configmap \"c\" not found";

/// Returns the volume `v` with this content.
fn payload(text: &str) -> PodVolume {
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

/// Returns the volume `v` with an unavailable payload.
fn unavailable() -> PodVolume {
    let source = VolumeSource::PayloadUnavailable(PayloadKind::ConfigMap, CAUSE.to_owned());
    volume("v", source)
}

/// Returns a reconciler with the pod `u` and its mounted volume.
fn with_volume() -> Fixture {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.set_up("u", &[payload("1")]), "mount(u/v)");
    assert_eq!(fixture.ok("mount(u/v)"), "ready#1(1)");
    fixture
}

#[test]
fn pod_without_mounted_volume_waits_for_payload() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.set_up("u", &[unavailable()]), "mount(u/v)");
    assert_eq!(
        fixture.fails("mount(u/v)", CAUSE),
        format!("event(u FailedMount: {FAILED}), failed#1(FailedMount: {FAILED})")
    );
    fixture.at(0.2);
    assert_eq!(
        fixture.set_up("u", &[unavailable()]),
        format!("failed#2(FailedMount: {FAILED})")
    );
    // the payload is available: no back-off
    assert_eq!(fixture.set_up("u", &[payload("1")]), "mount(u/v)");
    assert_eq!(fixture.ok("mount(u/v)"), "ready#3(1), requeue(u)");
    assert_eq!(fixture.timer(), "idle");
}

#[test]
fn pod_with_mounted_volume_keeps_stale_payload() {
    let mut fixture = with_volume();
    let kept = |ask: u64| format!("ready#{ask}(1, kept: {FAILED})");
    assert_eq!(
        fixture.set_up("u", &[unavailable()]),
        format!("event(u FailedMount: {FAILED}), {}", kept(2))
    );
    // one event per back-off and no timer
    fixture.at(0.1);
    assert_eq!(fixture.set_up("u", &[unavailable()]), kept(3));
    assert_eq!(fixture.timer(), "idle");
    fixture.at(60.0);
    assert_eq!(
        fixture.set_up("u", &[unavailable()]),
        format!("event(u FailedMount: {FAILED}), {}", kept(4))
    );
    // the payload is available unchanged, then changed
    assert_eq!(fixture.set_up("u", &[payload("1")]), "ready#5(1)");
    assert_eq!(fixture.set_up("u", &[payload("2")]), "mount(u/v)");
    assert_eq!(fixture.ok("mount(u/v)"), "ready#6(1)");
}

#[test]
fn payload_of_previous_agent_run_is_kept() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.set_up("u", &[unavailable()]), "mount(u/v)");
    assert_eq!(
        fixture.ok("mount(u/v)"),
        format!("event(u FailedMount: {FAILED}), ready#1(1, kept: {FAILED})")
    );
    assert_eq!(fixture.timer(), "idle");
    // the mounted content is unknown, so the payload is mounted
    assert_eq!(fixture.set_up("u", &[payload("1")]), "mount(u/v)");
    assert_eq!(fixture.ok("mount(u/v)"), "ready#2(1)");
}

#[test]
fn payload_lost_during_mount_is_kept_as_mounted() {
    let mut fixture = with_volume();
    assert_eq!(fixture.set_up("u", &[payload("2")]), "mount(u/v)");
    assert_eq!(fixture.set_up("u", &[unavailable()]), "");
    assert_eq!(
        fixture.ok("mount(u/v)"),
        format!(
            "event(u FailedMount: {FAILED}), ready#2(1, kept: {FAILED}), ready#3(1, kept: {FAILED})"
        )
    );
    assert_eq!(fixture.set_up("u", &[payload("2")]), "ready#4(1)");
}

#[test]
fn failed_write_keeps_payload_and_retry_requeues_pod() {
    let mut fixture = with_volume();
    assert_eq!(fixture.set_up("u", &[payload("2")]), "mount(u/v)");
    let full = "MountVolume.SetUp failed for volume \"v\" : no space left on device";
    assert_eq!(
        fixture.fails("mount(u/v)", "no space left on device"),
        format!("event(u FailedMount: {full}), ready#2(1, kept: {full})")
    );
    assert_eq!(fixture.timer(), "0.5s");
    assert_eq!(fixture.tick(0.5), "mount(u/v)");
    // containers do not wait for the retry
    assert_eq!(
        fixture.set_up("u", &[payload("2")]),
        format!("ready#3(1, kept: {full})")
    );
    assert_eq!(fixture.ok("mount(u/v)"), "requeue(u)");
    assert_eq!(fixture.set_up("u", &[payload("2")]), "ready#4(1)");
}

#[test]
fn other_volume_failures_block_pod_with_stale_payload() {
    let mut fixture = with_volume();
    assert_eq!(
        fixture.set_up("u", &[unavailable(), empty("data")]),
        format!("event(u FailedMount: {FAILED}), mount(u/data)")
    );
    let busy = "MountVolume.SetUp failed for volume \"data\" : busy";
    assert_eq!(
        fixture.fails("mount(u/data)", "busy"),
        format!("event(u FailedMount: {busy}), failed#2(FailedMount: {busy})")
    );
}

#[test]
fn unmounted_payload_is_not_kept() {
    let mut fixture = with_volume();
    assert_eq!(
        fixture.tear_down("u", TearDownRequester::Worker),
        "discover(u)"
    );
    let on_disk = vec![found("configmap", "v", None)];
    assert_eq!(fixture.ends("discover(u)", Ok(on_disk)), "unmount(u/v)");
    assert_eq!(fixture.ok("unmount(u/v)"), "torn-down#2");
    assert_eq!(fixture.set_up("u", &[unavailable()]), "mount(u/v)");
    assert_eq!(
        fixture.fails("mount(u/v)", CAUSE),
        format!("event(u FailedMount: {FAILED}), failed#3(FailedMount: {FAILED})")
    );
}
