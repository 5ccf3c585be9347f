//! The port to volumes with the stopwatch in hand: every operation is counted and in its pod's
//! timeline, and what is set up or gone is known to [`VolumeUsages`], whoever asked for it.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::time::Instant;
use windlass_volume_plan::volume_plan::{StepError, Survey};
use windlass_volume_plan::volume_source::PodVolume;
use windlass_volume_plan::volume_usage::{plugin_name, plugin_of_dir};
use windlass_metrics::VolumeMetrics;
use windlass_timelines::{RecordOutcome, Timelines, RecordKind, RecordKey};
use windlass_types::{DeviceName, EventRecorder, MountedVolume, PodExt, PodUid};
use windlass_volumes::{DiscoveredVolume, Measured, VolumeError, VolumePlugins, VolumeRequest};

use crate::usage::VolumeUsages;

/// Implementation of [`VolumePlugins`] around another.
#[derive(Clone, Debug)]
pub struct InstrumentedVolumes {
    inner: Arc<dyn VolumePlugins>,
    usages: VolumeUsages,
    metrics: VolumeMetrics,
    timelines: Timelines,
}

/// An operation in upstream's words (`operation_name`), by whether the volume is a block device.
#[derive(Clone, Copy)]
enum Operation {
    Mount,
    Unmount,
    UnmountDevice,
    Resize,
}

impl Operation {
    fn name(self, block: bool) -> &'static str {
        match (self, block) {
            (Self::Mount, false) => "volume_mount",
            (Self::Mount, true) => "map_volume",
            (Self::Unmount, false) => "volume_unmount",
            (Self::Unmount, true) => "unmap_volume",
            (Self::UnmountDevice, _) => "unmount_device",
            (Self::Resize, _) => "volume_fs_resize",
        }
    }
}

impl InstrumentedVolumes {
    /// Passes everything on to `inner`.
    pub fn new(
        inner: Arc<dyn VolumePlugins>,
        usages: VolumeUsages,
        metrics: VolumeMetrics,
        timelines: Timelines,
    ) -> Self {
        Self {
            inner,
            usages,
            metrics,
            timelines,
        }
    }

    /// Does a step of a pod's volume as the touch that it is.
    async fn record<T>(
        &self,
        uid: &PodUid,
        (step, volume): (&'static str, &str),
        work: impl Future<Output = Result<T, VolumeError>>,
    ) -> Result<T, VolumeError> {
        let what = RecordKey::with_subject(RecordKind::Volume, step, volume);
        let touch = self.timelines.begin(uid, what);
        let result = touch.within(work).await;
        touch.end(RecordOutcome::from_result(&result));
        result
    }

    fn observe<T, E: fmt::Display>(
        &self,
        plugin: &str,
        operation: &str,
        begin: Instant,
        result: &Result<T, E>,
    ) {
        let seconds = begin.elapsed().as_secs_f64();
        self.metrics
            .observe_operation(plugin, operation, seconds, result.is_err());
    }
}

#[async_trait]
impl VolumePlugins for InstrumentedVolumes {
    async fn find(&self, uid: &PodUid) -> Result<Vec<DiscoveredVolume>, VolumeError> {
        self.inner.find(uid).await
    }

    async fn find_pods(&self) -> Result<Vec<PodUid>, VolumeError> {
        self.inner.find_pods().await
    }

    async fn find_devices(&self) -> Result<Vec<DeviceName>, VolumeError> {
        self.inner.find_devices().await
    }

    /// A part of upstream's `volume_mount`: alone it is counted only if it fails.
    async fn stage(&self, request: &VolumeRequest) -> Result<(), VolumeError> {
        let begin = Instant::now();
        self.usages.desired(&request.pod, &request.volume, false);
        let staged = self.inner.stage(request);
        let (uid, step) = (request.pod.uid(), ("stage", &*request.volume.name));
        let result = self.record(&uid, step, staged).await;
        if result.is_err() {
            let operation = Operation::Mount.name(request.volume.source.is_block());
            self.observe(&plugin_name(&request.volume), operation, begin, &result);
        }
        result
    }

    async fn unstage(&self, device: &DeviceName) -> Result<(), VolumeError> {
        let begin = Instant::now();
        let result = self.inner.unstage(device).await;
        let operation = Operation::UnmountDevice.name(false);
        self.observe(&plugin_of_device(device), operation, begin, &result);
        result
    }

    async fn set_up(&self, request: &VolumeRequest) -> Result<MountedVolume, VolumeError> {
        let begin = Instant::now();
        self.usages.desired(&request.pod, &request.volume, false);
        let mounted = self.inner.set_up(request);
        let (uid, step) = (request.pod.uid(), ("mount", &*request.volume.name));
        let result = self.record(&uid, step, mounted).await;
        let operation = Operation::Mount.name(request.volume.source.is_block());
        self.observe(&plugin_name(&request.volume), operation, begin, &result);
        if result.is_ok() {
            self.usages.desired(&request.pod, &request.volume, true);
        }
        result
    }

    async fn expand(&self, request: &VolumeRequest, bytes: u64) -> Result<(), VolumeError> {
        let begin = Instant::now();
        let grown = self.inner.expand(request, bytes);
        let (uid, step) = (request.pod.uid(), ("expand", &*request.volume.name));
        let result = self.record(&uid, step, grown).await;
        let operation = Operation::Resize.name(request.volume.source.is_block());
        self.observe(&plugin_name(&request.volume), operation, begin, &result);
        result
    }

    async fn is_node_full(&self, volume: &PodVolume) -> bool {
        self.inner.is_node_full(volume).await
    }

    async fn tear_down(&self, uid: &PodUid, volume: &DiscoveredVolume) -> Result<(), VolumeError> {
        let begin = Instant::now();
        let unmounted = self.inner.tear_down(uid, volume);
        let step = ("unmount", volume.name.as_str());
        let result = self.record(uid, step, unmounted).await;
        let operation = Operation::Unmount.name(volume.block);
        self.observe(
            &plugin_of_dir(&volume.plugin_dir),
            operation,
            begin,
            &result,
        );
        if result.is_ok() {
            self.usages.gone(uid, volume);
        }
        result
    }

    async fn cancel_operations(&self, uid: &PodUid) {
        self.inner.cancel_operations(uid).await;
    }

    async fn usage(
        &self,
        uid: &PodUid,
        volume: &PodVolume,
    ) -> Result<Option<Measured>, VolumeError> {
        self.inner.usage(uid, volume).await
    }

    fn set_event_recorder(&self, events: Arc<dyn EventRecorder>) {
        self.inner.set_event_recorder(events);
    }
}

/// Counts the volumes of an earlier life that were found, or that they could not be looked for.
pub(crate) fn count_survey(metrics: &VolumeMetrics, survey: &Result<Survey, StepError>) {
    match survey {
        Ok(survey) => {
            let volumes: usize = survey.pods.values().map(Vec::len).sum();
            metrics.reconstructed.inc_by(volumes as f64);
        }
        Err(_) => {
            metrics.reconstructed.inc();
            metrics.reconstruct_errors.inc();
        }
    }
}

/// `kubernetes.io/csi/<driver>^<handle>` belongs to `kubernetes.io/csi:<driver>`.
fn plugin_of_device(device: &DeviceName) -> String {
    let plugin = device.0.split_once('^').map_or("", |(plugin, _)| plugin);
    match plugin.split_once("/csi/") {
        Some((group, driver)) => format!("{group}/csi:{driver}"),
        None => device
            .0
            .rsplit_once('/')
            .map_or("", |(plugin, _)| plugin)
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use windlass_metrics::Metrics;
    use windlass_types::Retry;

    use super::*;

    #[test]
    fn what_an_earlier_life_left_is_counted_and_that_it_cannot_be_read() {
        let metrics = Metrics::new().unwrap().volumes;
        let found = |name: &str| DiscoveredVolume {
            plugin_dir: "kubernetes.io~empty-dir".to_owned(),
            name: name.to_owned(),
            block: false,
            device: None,
        };
        let pods = [
            ("a".into(), vec![found("x"), found("y")]),
            ("b".into(), vec![found("x")]),
        ];
        let survey = Survey {
            pods: pods.into(),
            ..Survey::default()
        };
        count_survey(&metrics, &Ok(survey));
        let counts = || {
            (
                metrics.reconstructed.get(),
                metrics.reconstruct_errors.get(),
            )
        };
        assert_eq!(counts(), (3.0, 0.0));
        let error = StepError {
            operation: None,
            message: "read error".to_owned(),
            retry: Retry::Later,
        };
        count_survey(&metrics, &Err(error));
        assert_eq!(counts(), (4.0, 1.0));
    }

    #[test]
    fn a_device_belongs_to_its_plugin_or_driver() {
        let check = |device: &str, expected: &str| {
            let plugin = plugin_of_device(&DeviceName(device.to_owned()));
            assert_eq!(plugin, expected, "{device}");
        };
        check(
            "kubernetes.io/csi/d.example^vol/1",
            "kubernetes.io/csi:d.example",
        );
        check(
            "kubernetes.io/local-volume/pv",
            "kubernetes.io/local-volume",
        );
    }
}
