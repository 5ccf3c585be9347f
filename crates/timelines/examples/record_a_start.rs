//! Records the start of a pod and prints its timeline. Time is virtual.
//!
//! `cargo run -p windlass-timelines --example record_a_start`
//!
//! Runs without a container runtime.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use windlass_mailboxes::SimClock;
use windlass_timelines::{RecordKey, RecordKind, RecordOutcome, Timelines};
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
    timelines.record_instant(
        &uid,
        RecordKey::new(RecordKind::Source, "ADD"),
        RecordOutcome::Done,
    );
    for attempt in 1..=3 {
        let call = timelines.begin(
            &uid,
            RecordKey::new(RecordKind::RuntimeCall, "RunPodSandbox"),
        );
        sleep(Duration::from_millis(400)).await;
        // a repeat increases the count of its record
        call.end(match attempt {
            3 => RecordOutcome::Done,
            _ => RecordOutcome::failed("no network"),
        });
    }
    let pull = timelines.begin(
        &uid,
        RecordKey::with_subject(RecordKind::RuntimeCall, "PullImage", "nginx"),
    );
    sleep(Duration::from_secs(2)).await;
    pull.end(RecordOutcome::Done);
    timelines.started(&uid, Ok(()));
    // dropping the guard records a cancellation
    drop(timelines.begin(&uid, RecordKey::new(RecordKind::Sync, "syncPod")));
    timelines.forget(&uid);

    let found = timelines.find("default", "web");
    let timeline = found.ok_or("no pod of this name")?;
    println!("{}/{}", timeline.namespace, timeline.pod);
    for record in &timeline.records {
        println!("  {record}");
    }
    if let Some(removed) = timeline.removed_at {
        println!(
            "  removed after {:#}",
            removed.duration_since(Timestamp::UNIX_EPOCH)
        );
    }
    Ok(())
}
