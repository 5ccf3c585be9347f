//! Usage requests, on paused time.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde_json::json;
use windlass_mailboxes::SimClock;
use windlass_timelines::Timelines;
use windlass_types::{DeviceName, MountedContent, MountedVolume};
use windlass_volume_plan::volume_source::{VolumeSource, plain_volumes};
use windlass_volume_plan::volume_usage::StatsSource;
use windlass_volumes::{Measured, VolumeError, VolumeRequest};

use super::*;
use crate::InstrumentedVolumes;

const SECOND: Duration = Duration::from_secs(1);

/// Volumes with the usage and measurement duration of the test.
#[derive(Debug, Default)]
struct FakePlugins {
    used: Mutex<BTreeMap<String, u64>>,
    takes: Mutex<Duration>,
    measurements: Mutex<Vec<(u64, String)>>,
    began: Mutex<Option<Instant>>,
}

impl FakePlugins {
    fn set(&self, volume: &str, used: u64) {
        self.used.lock().insert(volume.to_owned(), used);
    }

    /// Takes the second and volume of each measurement.
    fn measurements(&self) -> Vec<(u64, String)> {
        std::mem::take(&mut self.measurements.lock())
    }
}

#[async_trait]
impl VolumePlugins for FakePlugins {
    async fn find(&self, _: &PodUid) -> Result<Vec<DiscoveredVolume>, VolumeError> {
        Ok(Vec::new())
    }

    async fn find_pods(&self) -> Result<Vec<PodUid>, VolumeError> {
        Ok(Vec::new())
    }

    async fn find_devices(&self) -> Result<Vec<DeviceName>, VolumeError> {
        Ok(Vec::new())
    }

    async fn stage(&self, _: &VolumeRequest) -> Result<(), VolumeError> {
        Ok(())
    }

    async fn unstage(&self, _: &DeviceName) -> Result<(), VolumeError> {
        Ok(())
    }

    async fn set_up(&self, request: &VolumeRequest) -> Result<MountedVolume, VolumeError> {
        if request.volume.name.starts_with("bad") {
            return Err(VolumeError::Invalid {
                volume: request.volume.name.clone(),
                message: "bad".to_owned(),
            });
        }
        if request.volume.name == "share" {
            let takes = *self.takes.lock();
            tokio::time::sleep(takes).await;
        }
        Ok(MountedVolume {
            content: MountedContent::Path("/v".into()),
            read_only: false,
            relabel: false,
        })
    }

    async fn expand(&self, _: &VolumeRequest, _: u64) -> Result<(), VolumeError> {
        Ok(())
    }

    async fn tear_down(&self, _: &PodUid, _: &DiscoveredVolume) -> Result<(), VolumeError> {
        Ok(())
    }

    async fn usage(&self, _: &PodUid, volume: &PodVolume) -> Result<Option<Measured>, VolumeError> {
        let at = self.began.lock().expect("began").elapsed();
        let measurement = (at.as_secs(), volume.name.clone());
        self.measurements.lock().push(measurement);
        let takes = *self.takes.lock();
        tokio::time::sleep(takes).await;
        let used = self.used.lock().get(&volume.name).copied();
        let stats = |used| VolumeStats {
            used,
            capacity: 1 << 30,
            ..VolumeStats::default()
        };
        Ok(used.map(|used| (stats(used), StatsSource::Walk)))
    }
}

struct Fixture {
    plugins: Arc<FakePlugins>,
    measured: InstrumentedVolumes,
    usages: VolumeUsages,
    metrics: Metrics,
    hung: HungOperations,
}

impl Fixture {
    fn new() -> Self {
        let metrics = Metrics::new().unwrap();
        let plugins = Arc::new(FakePlugins::default());
        *plugins.began.lock() = Some(Instant::now());
        let clock: Arc<dyn Clock> = Arc::new(SimClock::starting_at(Timestamp::UNIX_EPOCH));
        let hung = HungOperations::new(Arc::clone(&clock));
        let usages = VolumeUsages::new(VolumeUsagesDeps {
            plugins: plugins.clone(),
            clock: Arc::clone(&clock),
            metrics: metrics.clone(),
            hung: hung.clone(),
        });
        let measured = InstrumentedVolumes::new(
            plugins.clone(),
            usages.clone(),
            metrics.volumes.clone(),
            Timelines::new(clock, None),
            hung.clone(),
        );
        Self {
            plugins,
            measured,
            usages,
            metrics,
            hung,
        }
    }

    async fn set_up(&self, pod: &SharedPod) {
        for volume in plain_volumes(pod, &Default::default()) {
            let request = VolumeRequest {
                pod: SharedPod::clone(pod),
                volume,
                now: Timestamp::UNIX_EPOCH,
            };
            let _ = self.measured.set_up(&request).await;
        }
    }

    async fn tear_down(&self, pod: &Pod) {
        for volume in plain_volumes(pod, &Default::default()) {
            let found = DiscoveredVolume {
                plugin_dir: volume.source.plugin_dir().unwrap_or_default().to_owned(),
                name: volume.dir_name().to_owned(),
                block: false,
                device: None,
            };
            let released = self.measured.tear_down(&pod.uid(), &found).await;
            released.unwrap();
        }
    }
}

fn pod(name: &str, volumes: serde_json::Value) -> SharedPod {
    let pod = json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("{name}-uid")},
        "spec": {"containers": [], "volumes": volumes},
    });
    Arc::new(serde_json::from_value(pod).unwrap())
}

impl Fixture {
    /// Requests a recent sample every 10 s; returns the bytes, at most 3 s later.
    async fn recent(&self, pod: &Pod, volume: &str) -> Option<u64> {
        let names = [volume.to_owned()];
        let (interval, wait) = (9 * SECOND, 3 * SECOND);
        let begin = Instant::now();
        let samples = self.usages.recent(&pod.uid(), &names, interval, wait).await;
        assert!(begin.elapsed() <= wait);
        tokio::time::sleep_until(begin + 10 * SECOND).await;
        Some(samples.get(volume)?.used)
    }
}

#[tokio::test(start_paused = true)]
async fn slow_volume_is_measured_less_often_without_delay() {
    let fixture = Fixture::new();
    fixture.plugins.set("slow", 7);
    let web = pod("web", json!([{"name": "slow", "emptyDir": {}}]));
    fixture.set_up(&web).await;
    *fixture.plugins.takes.lock() = 4 * SECOND;
    assert_eq!(fixture.recent(&web, "slow").await, None);
    *fixture.plugins.takes.lock() = Duration::ZERO;
    for _ in 0..12 {
        assert_eq!(fixture.recent(&web, "slow").await, Some(7));
    }
    let of = fixture.plugins.measurements().into_iter().map(|(at, _)| at);
    assert_eq!(of.collect::<Vec<_>>(), [0, 90, 100, 110, 120]);
}

#[tokio::test(start_paused = true)]
async fn sample_of_hung_volume_becomes_absent() {
    let fixture = Fixture::new();
    fixture.plugins.set("data", 7);
    let web = pod("web", json!([{"name": "data", "emptyDir": {}}]));
    fixture.set_up(&web).await;
    assert_eq!(fixture.recent(&web, "data").await, Some(7));
    *fixture.plugins.takes.lock() = 3600 * SECOND;
    for _ in 0..4 {
        assert_eq!(fixture.recent(&web, "data").await, Some(7));
    }
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(fixture.recent(&web, "data").await, None);
    assert_eq!(
        fixture.plugins.measurements().len(),
        2,
        "no pile of waiters"
    );
}

#[tokio::test(start_paused = true)]
async fn hung_measurement_of_a_server_is_listed_but_no_walk() {
    let fixture = Fixture::new();
    let nfs = json!({"server": "dead", "path": "/x"});
    let volumes = json!([{"name": "share", "nfs": nfs}, {"name": "tree", "emptyDir": {}}]);
    let web = pod("web", volumes);
    fixture.set_up(&web).await;
    fixture.plugins.set("share", 7);
    fixture.plugins.set("tree", 7);
    *fixture.plugins.takes.lock() = 15 * SECOND;
    let lines = || -> Vec<String> {
        let hung = fixture.hung.list();
        hung.iter().map(ToString::to_string).collect()
    };
    assert_eq!(fixture.recent(&web, "tree").await, None);
    assert_eq!(lines(), [""; 0], "files are counted");
    assert_eq!(fixture.recent(&web, "share").await, None);
    let words = "usage of volume share (kubernetes.io/nfs) hung since 1970-01-01T00:00:10Z";
    assert_eq!(lines(), [words]);
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(lines(), [""; 0], "it ended");
    // its files are counted, so that it may take long
    tokio::time::sleep(100 * SECOND).await;
    fixture.recent(&web, "share").await;
    assert_eq!(lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn slow_step_of_a_volume_is_listed_until_it_ends() {
    let fixture = Fixture::new();
    let nfs = json!({"server": "dead", "path": "/x"});
    let web = pod("web", json!([{"name": "share", "nfs": nfs}]));
    *fixture.plugins.takes.lock() = 20 * SECOND;
    let lines = || -> Vec<String> {
        let hung = fixture.hung.list();
        hung.iter().map(ToString::to_string).collect()
    };
    let mounted = fixture.set_up(&web);
    tokio::pin!(mounted);
    let early = tokio::time::timeout(5 * SECOND, &mut mounted).await;
    early.expect_err("it takes longer");
    let words = "mount of volume share (kubernetes.io/nfs) hung since 1970-01-01T00:00:00Z";
    assert_eq!(lines(), [words]);
    mounted.await;
    assert_eq!(lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn volumes_without_request_are_not_measured() {
    let fixture = Fixture::new();
    let volumes = json!([
        {"name": "a", "emptyDir": {"sizeLimit": "1Mi"}},
        {"name": "c", "hostPath": {"path": "/"}},
        {"name": "bad", "emptyDir": {"sizeLimit": "1Mi"}},
    ]);
    let web = pod("web", volumes);
    fixture.set_up(&web).await;
    tokio::time::sleep(3600 * SECOND).await;
    assert_eq!(fixture.plugins.measurements(), []);
    for name in ["c", "bad", "unknown"] {
        assert_eq!(fixture.recent(&web, name).await, None);
    }
    fixture.tear_down(&web).await;
    assert_eq!(fixture.recent(&web, "a").await, None);
    assert_eq!(fixture.plugins.measurements(), []);
}

#[tokio::test(start_paused = true)]
async fn stats_are_measured_again_after_max_age() {
    let fixture = Fixture::new();
    fixture.plugins.set("a", 100);
    fixture.plugins.set("claimed", 200);
    let volumes = json!([
        {"name": "a", "emptyDir": {}},
        {"name": "silent", "emptyDir": {}},
        {"name": "bad", "emptyDir": {}},
    ]);
    let web = pod("web", volumes);
    fixture.set_up(&web).await;
    let changes = fixture.usages.stats(&web.uid(), 60 * SECOND).await;
    let names: Vec<_> = changes
        .iter()
        .map(|it| (it.volume.as_str(), it.stats.used))
        .collect();
    assert_eq!(names, [("a", 100)]);
    assert_eq!(fixture.plugins.measurements().len(), 2);
    fixture.plugins.set("a", 300);
    let used = async |age| fixture.usages.stats(&web.uid(), age).await[0].stats.used;
    tokio::time::sleep(30 * SECOND).await;
    assert_eq!(used(60 * SECOND).await, 100);
    tokio::time::sleep(31 * SECOND).await;
    assert_eq!(used(60 * SECOND).await, 300);
    assert!(
        fixture
            .usages
            .stats(&"unknown".into(), SECOND)
            .await
            .is_empty()
    );
}

#[tokio::test(start_paused = true)]
async fn metrics_use_last_samples_of_pvcs_and_refresh_old_ones() {
    let fixture = Fixture::new();
    fixture.plugins.set("v", 200);
    let web = pod("web", json!([{"name": "v", "ephemeral": {}}]));
    let mut volume = plain_volumes(&web, &Default::default()).remove(0);
    volume.source = VolumeSource::EmptyDir(Default::default());
    let request = VolumeRequest {
        pod: web,
        volume,
        now: Timestamp::UNIX_EPOCH,
    };
    fixture.measured.set_up(&request).await.unwrap();
    let used = || {
        fixture.usages.publish_metrics();
        let text = fixture.metrics.render().unwrap();
        let mut lines = text.lines();
        let line = lines.find(|line| line.starts_with("kubelet_volume_stats_used_bytes{"));
        line.map(str::to_owned)
    };
    assert_eq!(used(), None);
    tokio::time::sleep(SECOND).await;
    let line = "kubelet_volume_stats_used_bytes{namespace=\"default\",\
                persistentvolumeclaim=\"web-v\"}";
    assert_eq!(used(), Some(format!("{line} 200")));
    fixture.plugins.set("v", 300);
    tokio::time::sleep(61 * SECOND).await;
    assert_eq!(used(), Some(format!("{line} 200")));
    tokio::time::sleep(SECOND).await;
    assert_eq!(used(), Some(format!("{line} 300")));
    assert_eq!(fixture.plugins.measurements().len(), 2);
    let text = fixture.metrics.render().unwrap();
    for line in [
        "volume_manager_total_volumes{plugin_name=\"kubernetes.io/empty-dir\",\
         state=\"actual_state_of_world\"} 1",
        "storage_operation_duration_seconds_count{migrated=\"false\",\
         operation_name=\"volume_mount\",status=\"success\",\
         volume_plugin=\"kubernetes.io/empty-dir\"} 1",
        "kubelet_volume_metric_collection_duration_seconds_count{metric_source=\"du\"} 2",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_requests_share_one_measurement() {
    let fixture = Fixture::new();
    fixture.plugins.set("v", 200);
    *fixture.plugins.takes.lock() = 100 * SECOND;
    let web = pod("web", json!([{"name": "v", "ephemeral": {}}]));
    let mut volume = plain_volumes(&web, &Default::default()).remove(0);
    volume.source = VolumeSource::EmptyDir(Default::default());
    let request = VolumeRequest {
        pod: web.clone(),
        volume,
        now: Timestamp::UNIX_EPOCH,
    };
    fixture.measured.set_up(&request).await.unwrap();
    for _ in 0..50 {
        fixture.usages.publish_metrics();
        tokio::time::sleep(SECOND).await;
    }
    assert_eq!(
        fixture.plugins.measurements().len(),
        1,
        "scrapes share one measurement"
    );
    let uid = web.uid();
    let request = || fixture.usages.stats(&uid, SECOND);
    let (one, other) = tokio::join!(request(), request());
    assert_eq!((one.len(), other.len()), (1, 1));
    assert_eq!(
        fixture.plugins.measurements().len(),
        0,
        "requests share one measurement"
    );
}

#[tokio::test(start_paused = true)]
async fn volume_states_are_counted_and_mount_duration_observed_once() {
    let fixture = Fixture::new();
    let web = pod("web", json!([{"name": "v", "emptyDir": {}}]));
    let volume = plain_volumes(&web, &Default::default()).remove(0);
    let lines = |family: &str| -> Vec<String> {
        fixture.usages.publish_metrics();
        let text = fixture.metrics.render().unwrap();
        let lines = text.lines().filter(|line| line.starts_with(family));
        lines.map(str::to_owned).collect()
    };
    let total = |state: &str| {
        format!(
            "volume_manager_total_volumes{{plugin_name=\"kubernetes.io/empty-dir\",\
             state=\"{state}_state_of_world\"}} 1"
        )
    };
    fixture.usages.track(&web, &volume, false);
    assert_eq!(lines("volume_manager_total"), [total("desired")]);
    // for example waiting for a controller
    tokio::time::sleep(3 * SECOND).await;
    let request = VolumeRequest {
        pod: web.clone(),
        volume,
        now: Timestamp::UNIX_EPOCH,
    };
    fixture.measured.set_up(&request).await.unwrap();
    fixture.measured.set_up(&request).await.unwrap();
    let both = [total("actual"), total("desired")];
    assert_eq!(lines("volume_manager_total"), both);
    let whole = |what: &str| {
        let labels =
            "operation_name=\"overall_volume_mount\",plugin_name=\"kubernetes.io/empty-dir\"";
        format!("volume_operation_total_seconds_{what}{{{labels}}}")
    };
    assert_eq!(lines(&whole("sum")), [format!("{} 3", whole("sum"))]);
    assert_eq!(lines(&whole("count")), [format!("{} 1", whole("count"))]);
    fixture.usages.remove_pod(&web.uid());
    assert_eq!(lines("volume_manager_total"), [""; 0]);
}
