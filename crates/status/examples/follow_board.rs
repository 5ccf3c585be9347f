//! Follows a board while a pod comes, crashes and goes.
//!
//! `cargo run -p windlass-status --example follow_board` plays the pod's worker, and a reader that
//! looks only now and then.
//!
//! Runs without a container runtime.

use std::error::Error;
use std::sync::Arc;

use windlass_actors::SystemClock;
use windlass_status::{StatusSubscription, EventLog, EventRecorder, PodStatusStore, PodStatusEntry};
use windlass_types::corev1::PodStatus;
use windlass_types::view::{EventType, PodWorkerState};
use windlass_types::{Pod, PodExt, Reason};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let board = PodStatusStore::new();
    let events = EventLog::new(board.clone(), Arc::new(SystemClock));
    let mut reader = board.subscribe();
    look(&mut reader).await?;

    let mut pod = Pod::default();
    pod.metadata.uid = Some("u1".to_owned());
    pod.metadata.name = Some("web".to_owned());
    pod.metadata.namespace = Some("default".to_owned());
    let pod = Arc::new(pod);
    board.publish(entry(&pod, "Pending"));
    look(&mut reader).await?;

    // the reader is busy meanwhile: it finds the newest state, and every repeat counted
    board.publish(entry(&pod, "Running"));
    for _ in 0..40 {
        let reason = Reason::BackOff;
        events.record(
            &pod,
            Some("web"),
            EventType::Warning,
            reason,
            "Back-off restarting web",
        );
    }
    events.record(
        &pod,
        None,
        EventType::Normal,
        Reason::Killing,
        "Stopping container web",
    );
    board.update(&pod.uid(), |entry| {
        entry.worker_state = PodWorkerState::TerminatingPod
    });
    look(&mut reader).await?;

    board.remove(&pod.uid());
    look(&mut reader).await
}

async fn look(reader: &mut StatusSubscription) -> Result<(), Box<dyn Error>> {
    let change = reader.next().await.ok_or("the board is gone")?;
    println!(
        "{} changed, {} removed",
        change.changed.len(),
        change.removed.len()
    );
    for entry in &change.changed {
        let phase = entry.status.phase.as_deref().unwrap_or_default();
        println!(
            "  {} {phase}, worker {}",
            entry.pod.full_name(),
            entry.worker_state
        );
        for event in &entry.events {
            println!("    {}x {}: {}", event.count, event.reason, event.message);
        }
    }
    Ok(())
}

fn entry(pod: &Arc<Pod>, phase: &str) -> PodStatusEntry {
    PodStatusEntry {
        status: Arc::new(PodStatus {
            phase: Some(phase.to_owned()),
            ..PodStatus::default()
        }),
        ..PodStatusEntry::new(Arc::clone(pod))
    }
}
