//! Records what touches a pod while it starts, and shows its timeline. Time is virtual.
//!
//! `cargo run -p windlass-timelines --example record_a_start`
//!
//! Runs without a container runtime.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use windlass_actors::SimClock;
use windlass_timelines::{Outcome, Timelines, RecordKind, What};
use windlass_types::{Pod, PodExt, Timestamp};

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    let clock = Arc::new(SimClock::starting_at(Timestamp::UNIX_EPOCH));
    let timelines = Timelines::new(clock, None);
    let mut pod = Pod::default();
    pod.metadata.namespace = Some("default".to_owned());
    pod.metadata.name = Some("web".to_owned());
    pod.metadata.uid = Some("1234".to_owned());
    let uid = pod.uid();

    timelines.seen(&pod);
    timelines.instant(&uid, What::new(RecordKind::Source, "ADD"), Outcome::Done);
    for attempt in 1..=3 {
        let call = timelines.begin(&uid, What::new(RecordKind::RuntimeCall, "RunPodSandbox"));
        sleep(Duration::from_millis(400)).await;
        // the same touch that fails again is counted on the record that is there
        call.end(match attempt {
            3 => Outcome::Done,
            _ => Outcome::failed("no network"),
        });
    }
    let pull = timelines.begin(&uid, What::of(RecordKind::RuntimeCall, "PullImage", "nginx"));
    sleep(Duration::from_secs(2)).await;
    pull.end(Outcome::Done);
    timelines.started(&uid, Ok(()));
    // dropped before its end: it counts as cancelled
    drop(timelines.begin(&uid, What::new(RecordKind::Sync, "syncPod")));
    timelines.forget(&uid);

    let found = timelines.find("default", "web");
    let timeline = found.ok_or("there is no pod of this name")?;
    println!("{}/{}", timeline.namespace, timeline.pod);
    for touch in &timeline.records {
        println!("  {touch}");
    }
    if let Some(gone) = timeline.removed_at {
        println!(
            "  gone after {:#}",
            gone.duration_since(Timestamp::UNIX_EPOCH)
        );
    }
    Ok(())
}
