//! Metrics, timeline records, hung operations and usage tracking around [`VolumePlugins`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use windlass_hung_operations::{HungOperations, Operation as HungOperation, OperationKind};
use windlass_metrics::VolumeMetrics;
use windlass_timelines::{RecordKey, RecordKind, RecordOutcome, Timelines};
use windlass_types::{DeviceName, EventRecorder, MountedVolume, PodExt, PodUid};
use windlass_volume_plan::empty_dir::{EMPTY_DIR_PLUGIN, REMOVAL_HANG_THRESHOLD};
use windlass_volume_plan::volume_reconciler::{Reconstruction, StepError};
use windlass_volume_plan::volume_source::{CSI_PLUGIN, PodVolume};
use windlass_volume_plan::volume_usage::{plugin_name, plugin_of_dir};
use windlass_volumes::{DiscoveredVolume, Measured, VolumeError, VolumePlugins, VolumeRequest};

use crate::usage::VolumeUsages;

/// A step that takes longer has hung, or waits for a disk, a server or a driver that is slow: local
/// steps take milliseconds.
const HANG_THRESHOLD: Duration = Duration::from_secs(4);

/// Implementation of [`VolumePlugins`] that instruments another one.
#[derive(Clone, Debug)]
pub struct InstrumentedVolumes {
    inner: Arc<dyn VolumePlugins>,
    usages: VolumeUsages,
    metrics: VolumeMetrics,
    timelines: Timelines,
    hung: HungOperations,
}

/// Operation with upstream's `operation_name`, which differs for block volumes.
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
    /// Delegates to `inner`.
    pub fn new(
        inner: Arc<dyn VolumePlugins>,
        usages: VolumeUsages,
        metrics: VolumeMetrics,
        timelines: Timelines,
        hung: HungOperations,
    ) -> Self {
        Self {
            inner,
            usages,
            metrics,
            timelines,
            hung,
        }
    }

    /// Runs a step with a timeline record; lists it while it hangs.
    async fn record<T>(
        &self,
        uid: &PodUid,
        step: (&'static str, &str, &str),
        work: impl Future<Output = Result<T, VolumeError>>,
    ) -> Result<T, VolumeError> {
        self.record_within(HANG_THRESHOLD, uid, step, work).await
    }

    /// As [`Self::record`]; the step has hung after `threshold`.
    async fn record_within<T>(
        &self,
        threshold: Duration,
        uid: &PodUid,
        (step, volume, plugin): (&'static str, &str, &str),
        work: impl Future<Output = Result<T, VolumeError>>,
    ) -> Result<T, VolumeError> {
        let key = RecordKey::with_subject(RecordKind::Volume, step, volume);
        let record = self.timelines.begin(uid, key);
        let operation = || hung_operation(Some(uid), step, volume, plugin);
        let work = record.within(work);
        let work = self.hung.track(threshold, operation, Result::is_ok, work);
        let result = work.await;
        record.end(RecordOutcome::from_result(&result));
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

    /// Part of upstream's `volume_mount`: counted separately only if it fails.
    async fn stage(&self, request: &VolumeRequest) -> Result<(), VolumeError> {
        let begin = Instant::now();
        self.usages.track(&request.pod, &request.volume, false);
        let staged = self.inner.stage(request);
        let (uid, plugin) = (request.pod.uid(), plugin_name(&request.volume));
        let step = ("stage", &*request.volume.name, &*plugin);
        let result = self.record(&uid, step, staged).await;
        if result.is_err() {
            let operation = Operation::Mount.name(request.volume.source.is_block());
            self.observe(&plugin, operation, begin, &result);
        }
        result
    }

    async fn unstage(&self, device: &DeviceName) -> Result<(), VolumeError> {
        let begin = Instant::now();
        let plugin = plugin_of_device(device);
        // no pod has the device any more
        let operation = || hung_operation(None, "unstage", &device.0, &plugin);
        let work = self.inner.unstage(device);
        let work = self
            .hung
            .track(HANG_THRESHOLD, operation, Result::is_ok, work);
        let result = work.await;
        let operation = Operation::UnmountDevice.name(false);
        self.observe(&plugin, operation, begin, &result);
        result
    }

    async fn set_up(&self, request: &VolumeRequest) -> Result<MountedVolume, VolumeError> {
        let begin = Instant::now();
        self.usages.track(&request.pod, &request.volume, false);
        let mounted = self.inner.set_up(request);
        let (uid, plugin) = (request.pod.uid(), plugin_name(&request.volume));
        let step = ("mount", &*request.volume.name, &*plugin);
        let result = self.record(&uid, step, mounted).await;
        let operation = Operation::Mount.name(request.volume.source.is_block());
        self.observe(&plugin, operation, begin, &result);
        if result.is_ok() {
            self.usages.track(&request.pod, &request.volume, true);
        }
        result
    }

    async fn expand(&self, request: &VolumeRequest, bytes: u64) -> Result<(), VolumeError> {
        let begin = Instant::now();
        let expanded = self.inner.expand(request, bytes);
        let (uid, plugin) = (request.pod.uid(), plugin_name(&request.volume));
        let step = ("expand", &*request.volume.name, &*plugin);
        let result = self.record(&uid, step, expanded).await;
        let operation = Operation::Resize.name(request.volume.source.is_block());
        self.observe(&plugin, operation, begin, &result);
        result
    }

    async fn is_node_full(&self, volume: &PodVolume) -> bool {
        self.inner.is_node_full(volume).await
    }

    async fn tear_down(&self, uid: &PodUid, volume: &DiscoveredVolume) -> Result<(), VolumeError> {
        let begin = Instant::now();
        let unmounted = self.inner.tear_down(uid, volume);
        let plugin = plugin_of_dir(&volume.plugin_dir);
        let step = ("unmount", volume.name.as_str(), &*plugin);
        let threshold = match volume.plugin_dir == EMPTY_DIR_PLUGIN {
            true => REMOVAL_HANG_THRESHOLD,
            false => HANG_THRESHOLD,
        };
        let result = self.record_within(threshold, uid, step, unmounted);
        let result = result.await;
        let operation = Operation::Unmount.name(volume.block);
        self.observe(&plugin, operation, begin, &result);
        if result.is_ok() {
            self.usages.remove(uid, volume);
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

/// A step on a volume as a hung operation.
fn hung_operation(uid: Option<&PodUid>, step: &str, volume: &str, plugin: &str) -> HungOperation {
    let driver = plugin.strip_prefix(CSI_PLUGIN);
    HungOperation {
        kind: match driver {
            Some(_) => OperationKind::Csi,
            None => OperationKind::Volume,
        },
        pod: uid.cloned(),
        name: match driver.and_then(|driver| driver.strip_prefix(':')) {
            Some(driver) => format!("{step} of volume {volume} by CSI driver {driver}"),
            None => format!("{step} of volume {volume} ({plugin})"),
        },
    }
}

/// Counts reconstructed volumes, or the failure of the reconstruction.
pub(crate) fn count_reconstruction(
    metrics: &VolumeMetrics,
    reconstruction: &Result<Reconstruction, StepError>,
) {
    match reconstruction {
        Ok(reconstruction) => {
            let volumes: usize = reconstruction.pods.values().map(Vec::len).sum();
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
    fn reconstruction_and_its_failure_are_counted() {
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
        let reconstruction = Reconstruction {
            pods: pods.into(),
            ..Reconstruction::default()
        };
        count_reconstruction(&metrics, &Ok(reconstruction));
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
        count_reconstruction(&metrics, &Err(error));
        assert_eq!(counts(), (4.0, 1.0));
    }

    #[test]
    fn plugin_of_device_is_plugin_or_driver() {
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
