//! The resize in progress of a pod: its condition, events and metric.

use windlass_metrics::{Metrics, WorkerMetrics};
use windlass_pod_status::status::ResizeInProgress;
use windlass_pod_status::status::pod_sizes::resize_event;
use windlass_types::view::EventType;
use windlass_types::{AllocatedResources, Pod, Reason};

use super::WorkerDeps;

/// The resize of a pod, from its allocation until the running containers have the allocated sizes.
#[derive(Debug, Default)]
pub(crate) struct ResizeReport(Option<Counted>);

#[derive(Debug)]
struct Counted {
    resize: ResizeInProgress,
    metrics: WorkerMetrics,
}

impl Counted {
    fn new(resize: ResizeInProgress, metrics: &Metrics) -> Self {
        metrics.workers.resizes_in_progress.inc();
        Self {
            resize,
            metrics: metrics.workers.clone(),
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.metrics.resizes_in_progress.dec();
    }
}

impl ResizeReport {
    /// Restores a resize that a previous agent run reported.
    pub(crate) fn from_previous_run(pod: &Pod, metrics: &Metrics) -> Self {
        let reported = pod.status.as_ref().and_then(ResizeInProgress::from_status);
        Self(reported.map(|resize| Counted::new(resize, metrics)))
    }

    /// Returns the resize in progress.
    pub(crate) fn in_progress(&self) -> Option<&ResizeInProgress> {
        self.0.as_ref().map(|counted| &counted.resize)
    }

    /// Handles a changed pod; true if new sizes were allocated. They replace a resize in progress
    /// and its error.
    pub(crate) fn updated(&mut self, before: &Pod, pod: &Pod, deps: &WorkerDeps) -> bool {
        if AllocatedResources::from_pod(before) == AllocatedResources::from_pod(pod) {
            return false;
        }
        let generation = pod.metadata.generation;
        let resize = ResizeInProgress {
            generation,
            error: None,
        };
        self.0 = Some(Counted::new(resize, &deps.metrics));
        let text = resize_event("Pod resize started", pod, generation, "");
        let events = &deps.events;
        events.record(pod, None, EventType::Normal, Reason::ResizeStarted, &text);
        true
    }

    /// Handles the result of a sync.
    pub(crate) fn resized(&mut self, pod: &Pod, result: Result<(), String>, deps: &WorkerDeps) {
        let Err(error) = result else {
            if let Some(done) = self.0.take() {
                let generation = done.resize.generation;
                let text = resize_event("Pod resize completed", pod, generation, "");
                let reason = Reason::ResizeCompleted;
                let events = &deps.events;
                events.record(pod, None, EventType::Normal, reason, &text);
            }
            return;
        };
        let counted = self.0.get_or_insert_with(|| {
            let resize = ResizeInProgress {
                generation: pod.metadata.generation,
                error: None,
            };
            Counted::new(resize, &deps.metrics)
        });
        let resize = &mut counted.resize;
        if resize.error.as_ref() == Some(&error) {
            return;
        }
        let text = resize_event("Pod resize error", pod, resize.generation, &error);
        let events = &deps.events;
        events.record(pod, None, EventType::Warning, Reason::ResizeError, &text);
        resize.error = Some(error);
    }
}
