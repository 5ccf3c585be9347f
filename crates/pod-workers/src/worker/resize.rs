//! The resize in progress of a pod: its condition, events and metric.

use windlass_metrics::{Metrics, WorkerMetrics};
use windlass_pod_status::status::ResizeInProgress;
use windlass_pod_status::status::pod_sizes::resize_event;
use windlass_types::view::EventType;
use windlass_types::{AllocatedResources, Pod, PodExt, Reason};

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
    /// Restores the resize of a previous agent run.
    pub(crate) fn from_previous_run(pod: &Pod, metrics: &Metrics) -> Self {
        let resize = ResizeInProgress::from_previous_run(pod);
        Self(resize.map(|resize| Counted::new(resize, metrics)))
    }

    /// Returns the resize in progress.
    pub(crate) fn in_progress(&self) -> Option<&ResizeInProgress> {
        self.0.as_ref().map(|counted| &counted.resize)
    }

    /// Handles a changed pod; true if new sizes were allocated. They replace a resize in progress
    /// and its error.
    pub(crate) fn updated(&mut self, before: &Pod, pod: &Pod, deps: &WorkerDeps) -> bool {
        if before.is_restored() && !pod.is_restored() {
            *self = Self::from_previous_run(pod, &deps.metrics);
        }
        if AllocatedResources::from_pod(before) == AllocatedResources::from_pod(pod) {
            return false;
        }
        let resize = ResizeInProgress {
            generation: pod.metadata.generation,
            error: None,
        };
        self.0 = Some(Counted::new(resize, &deps.metrics));
        true
    }

    /// Handles the result of a sync.
    pub(crate) fn resized(&mut self, pod: &Pod, result: Result<(), String>, deps: &WorkerDeps) {
        let Err(error) = result else {
            if let Some(file) = &deps.actuated_file {
                let resources = AllocatedResources::from_pod(pod);
                let resources = match deps.settings.resize_pod_level {
                    true => resources.with_pod_limits(),
                    false => resources,
                };
                file.record(&pod.uid(), &resources);
            }
            if let Some(mut done) = self.0.take() {
                done.resize.error = None;
                record(Reason::ResizeCompleted, pod, &done.resize, deps);
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
        if resize.error.as_ref() != Some(&error) {
            resize.error = Some(error);
            record(Reason::ResizeError, pod, resize, deps);
        }
    }
}

/// Records an event of a resize. A pod from the checkpoint has none before the API server shows what
/// the previous agent run reported.
fn record(reason: Reason, pod: &Pod, resize: &ResizeInProgress, deps: &WorkerDeps) {
    if pod.is_restored() {
        return;
    }
    let (kind, title) = match reason {
        Reason::ResizeCompleted => (EventType::Normal, "Pod resize completed"),
        _ => (EventType::Warning, "Pod resize error"),
    };
    let error = resize.error.as_deref().unwrap_or_default();
    let text = resize_event(title, pod, resize.generation, error);
    deps.events.record(pod, None, kind, reason, &text);
}
