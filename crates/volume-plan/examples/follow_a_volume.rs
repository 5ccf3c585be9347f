//! Prints the steps of the volume reconciler for a pod with an emptyDir volume.
//!
//! `cargo run -p windlass-volume-plan --example follow_a_volume`
//!
//! Runs without a container runtime.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use windlass_types::{ClockReading, Pod, Timestamp};
use windlass_volume_plan::volume_reconciler::{
    Input, Reconstruction, RequestId, StepResult, VolumeReconciler,
};
use windlass_volume_plan::volume_source::plain_volumes;

fn main() -> Result<(), Box<dyn Error>> {
    let pod: Pod = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "web-uid"},
        "spec": {
            "containers": [{"name": "app", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
    }))?;
    let mut reconciler = VolumeReconciler::new();
    let mut second = 0;
    let mut print = |input: Input| {
        let now = ClockReading {
            wall: Timestamp::UNIX_EPOCH,
            monotonic: Duration::from_secs(second),
        };
        second += 1;
        for step in reconciler.handle(input, now) {
            println!("{second} s: {step}");
        }
    };
    print(Input::SourcesReady);
    let nothing = Reconstruction::default();
    print(Input::StepFinished(StepResult::Reconstructed(Ok(nothing))));
    print(Input::SetUp {
        request: RequestId(1),
        volumes: Arc::new(plain_volumes(&pod, &Default::default())),
        pod: Arc::new(pod),
        timeout: Duration::from_secs(120),
    });
    Ok(())
}
