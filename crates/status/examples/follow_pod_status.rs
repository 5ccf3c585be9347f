//! Follows a pod status store while a pod starts, crashes and terminates.
//!
//! `cargo run -p windlass-status --example follow_pod_status` acts as the pod worker and as a slow
//! reader.
//!
//! Runs without a container runtime.

use std::error::Error;
use std::sync::Arc;

use windlass_mailboxes::SystemClock;
use windlass_status::{
    EventLog, EventRecorder, PodStatusEntry, PodStatusStore, StatusSubscription,
};
use windlass_types::corev1::PodStatus;
use windlass_types::view::{EventType, PodWorkerState};
use windlass_types::{Pod, PodExt, Reason};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = PodStatusStore::new();
    let events = EventLog::new(store.clone(), Arc::new(SystemClock));
    let mut reader = store.subscribe();
    print_changes(&mut reader).await?;

    let mut pod = Pod::default();
    pod.metadata.uid = Some("u1".to_owned());
    pod.metadata.name = Some("web".to_owned());
    pod.metadata.namespace = Some("default".to_owned());
    let pod = Arc::new(pod);
    store.publish(entry(&pod, "Pending"));
    print_changes(&mut reader).await?;

    // the slow reader gets the newest state with all repeats counted
    store.publish(entry(&pod, "Running"));
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
    store.update(&pod.uid(), |entry| {
        entry.worker_state = PodWorkerState::TerminatingPod
    });
    print_changes(&mut reader).await?;

    store.remove(&pod.uid());
    print_changes(&mut reader).await
}

async fn print_changes(reader: &mut StatusSubscription) -> Result<(), Box<dyn Error>> {
    let change = reader.next().await.ok_or("store dropped")?;
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
