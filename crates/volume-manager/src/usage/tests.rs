//! The watch over limits on a clock that stands still, and what those who ask are told.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde_json::json;
use windlass_mailboxes::{ActorKind, SimClock, SlotReceiver, slots};
use windlass_volume_plan::volume_source::{VolumeSource, plain_volumes};
use windlass_volume_plan::volume_usage::StatsSource;
use windlass_timelines::Timelines;
use windlass_types::{DeviceName, MountedContent, MountedVolume};
use windlass_volumes::{Measured, VolumeError, VolumeRequest};

use super::*;
use crate::InstrumentedVolumes;

const SECOND: Duration = Duration::from_secs(1);

/// Volumes that hold what the test says, and how long it takes to find out.
#[derive(Debug, Default)]
struct Scripted {
    used: Mutex<BTreeMap<String, u64>>,
    takes: Mutex<Duration>,
    looks: Mutex<Vec<(u64, String)>>,
    began: Mutex<Option<Instant>>,
}

impl Scripted {
    fn set(&self, volume: &str, used: u64) {
        self.used.lock().unwrap().insert(volume.to_owned(), used);
    }

    /// Second and volume of each look since this was asked last.
    fn looks(&self) -> Vec<(u64, String)> {
        std::mem::take(&mut self.looks.lock().unwrap())
    }
}

#[async_trait]
impl VolumePlugins for Scripted {
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
        let at = self.began.lock().unwrap().expect("began").elapsed();
        let look = (at.as_secs(), volume.name.clone());
        self.looks.lock().unwrap().push(look);
        let takes = *self.takes.lock().unwrap();
        tokio::time::sleep(takes).await;
        let used = self.used.lock().unwrap().get(&volume.name).copied();
        let stats = |used| VolumeStats {
            used,
            capacity: 1 << 30,
            ..VolumeStats::default()
        };
        Ok(used.map(|used| (stats(used), StatsSource::Walk)))
    }
}

#[derive(Debug, Default)]
struct Events(Mutex<Vec<String>>);

impl EventRecorder for Events {
    fn record(&self, pod: &Pod, _: Option<&str>, kind: EventType, reason: Reason, message: &str) {
        let line = format!("{} {kind:?} {reason} {message}", pod.name());
        self.0.lock().unwrap().push(line);
    }

    fn record_node(&self, _: EventType, _: Reason, _: &str) {}
}

struct Scene {
    plugins: Arc<Scripted>,
    measured: InstrumentedVolumes,
    usages: VolumeUsages,
    changed: SlotReceiver<PodUid, VolumesChanged>,
    events: Arc<Events>,
    metrics: Metrics,
    cancel: CancellationToken,
}

impl Scene {
    fn new() -> Self {
        let metrics = Metrics::new().unwrap();
        let plugins = Arc::new(Scripted::default());
        *plugins.began.lock().unwrap() = Some(Instant::now());
        let events = Arc::new(Events::default());
        let (sender, changed) = slots(ActorKind::new("SyncLoop", 50), &metrics.mailboxes);
        let cancel = CancellationToken::new();
        let clock: Arc<dyn Clock> = Arc::new(SimClock::starting_at(Timestamp::UNIX_EPOCH));
        let usages = VolumeUsages::new(VolumeUsagesDeps {
            plugins: plugins.clone(),
            clock: Arc::clone(&clock),
            events: events.clone(),
            changed: sender,
            metrics: metrics.clone(),
            cancel: cancel.clone(),
        });
        let measured = InstrumentedVolumes::new(
            plugins.clone(),
            usages.clone(),
            metrics.volumes.clone(),
            Timelines::new(clock, None),
        );
        Self {
            plugins,
            measured,
            usages,
            changed,
            events,
            metrics,
            cancel,
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

    /// What the SyncLoop was told by now.
    async fn told(&mut self) -> Vec<(PodUid, Option<String>)> {
        let mut told = Vec::new();
        while let Ok(Some((uid, changed))) =
            tokio::time::timeout(Duration::from_millis(1), self.changed.next()).await
        {
            told.push((uid, changed.over_limit));
        }
        told
    }
}

fn pod(name: &str, volumes: serde_json::Value) -> SharedPod {
    let pod = json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("{name}-uid")},
        "spec": {"containers": [], "volumes": volumes},
    });
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn limited(volume: &str) -> serde_json::Value {
    json!([{"name": volume, "emptyDir": {"sizeLimit": "1Mi"}}])
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_outgrows_its_limit_is_evicted_once_in_upstreams_words() {
    let mut scene = Scene::new();
    scene.plugins.set("data", 1 << 20);
    scene.plugins.set("small", 1 << 20);
    scene.set_up(&pod("web", limited("data"))).await;
    scene.set_up(&pod("other", limited("small"))).await;
    tokio::time::sleep(25 * SECOND).await;
    assert_eq!(scene.told().await, []);
    scene.plugins.set("data", (1 << 20) + 4096);
    tokio::time::sleep(60 * SECOND).await;
    let words = "Usage of EmptyDir volume \"data\" exceeds the limit \"1Mi\". ";
    let expected = [(PodUid::from("web-uid"), Some(words.to_owned()))];
    assert_eq!(scene.told().await, expected);
    let events = scene.events.0.lock().unwrap().clone();
    assert_eq!(events, [format!("web Warning Evicted {words}")]);
    let text = scene.metrics.render().unwrap();
    let counted = "kubelet_evictions{eviction_signal=\"emptydirfs.limit\"} 1";
    assert!(text.contains(counted), "{text}");
}

#[tokio::test(start_paused = true)]
async fn all_limits_are_looked_at_together_every_ten_seconds() {
    let scene = Scene::new();
    scene.plugins.set("a", 0);
    scene.plugins.set("b", 0);
    tokio::time::sleep(3 * SECOND).await;
    scene.set_up(&pod("web", limited("a"))).await;
    tokio::time::sleep(4 * SECOND).await;
    scene.set_up(&pod("other", limited("b"))).await;
    tokio::time::sleep(25 * SECOND).await;
    let mut looks = scene.plugins.looks();
    looks.sort();
    let round = |at: u64| [(at, "a".to_owned()), (at, "b".to_owned())];
    assert_eq!(looks, [round(10), round(20), round(30)].concat());
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_takes_long_to_look_at_rests_twenty_times_as_long_and_delays_no_other() {
    let scene = Scene::new();
    scene.plugins.set("slow", 0);
    scene.set_up(&pod("web", limited("slow"))).await;
    *scene.plugins.takes.lock().unwrap() = 3 * SECOND;
    tokio::time::sleep(11 * SECOND).await;
    *scene.plugins.takes.lock().unwrap() = Duration::ZERO;
    scene.plugins.set("quick", 0);
    scene.set_up(&pod("other", limited("quick"))).await;
    tokio::time::sleep(80 * SECOND).await;
    let looks = scene.plugins.looks();
    let of = |name: &str| -> Vec<u64> {
        let looks = looks.iter().filter(|(_, volume)| volume == name);
        looks.map(|(at, _)| *at).collect()
    };
    assert_eq!(of("slow"), [10, 70, 80, 90]);
    assert_eq!(of("quick"), [20, 30, 40, 50, 60, 70, 80, 90]);
}

#[tokio::test(start_paused = true)]
async fn without_a_limit_or_somebody_who_asks_nothing_is_measured() {
    let scene = Scene::new();
    let volumes = json!([
        {"name": "a", "emptyDir": {}},
        {"name": "b", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        {"name": "c", "hostPath": {"path": "/"}},
        {"name": "bad", "emptyDir": {"sizeLimit": "1Mi"}},
    ]);
    scene.set_up(&pod("web", volumes)).await;
    tokio::time::sleep(3600 * SECOND).await;
    assert_eq!(scene.plugins.looks(), []);
}

#[tokio::test(start_paused = true)]
async fn what_is_gone_is_looked_at_no_more_and_a_watch_ends_with_the_agent() {
    let scene = Scene::new();
    scene.plugins.set("data", 0);
    let web = pod("web", limited("data"));
    scene.set_up(&web).await;
    tokio::time::sleep(15 * SECOND).await;
    assert_eq!(scene.plugins.looks().len(), 1);
    scene.tear_down(&web).await;
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(scene.plugins.looks(), []);
    scene.set_up(&web).await;
    scene.cancel.cancel();
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(scene.plugins.looks(), []);
}

#[tokio::test(start_paused = true)]
async fn who_asks_is_told_numbers_of_the_age_that_suffices() {
    let scene = Scene::new();
    scene.plugins.set("a", 100);
    scene.plugins.set("claimed", 200);
    let volumes = json!([
        {"name": "a", "emptyDir": {}},
        {"name": "silent", "emptyDir": {}},
        {"name": "bad", "emptyDir": {}},
    ]);
    let web = pod("web", volumes);
    scene.set_up(&web).await;
    let told = scene.usages.stats(&web.uid(), 60 * SECOND).await;
    let names: Vec<_> = told
        .iter()
        .map(|it| (it.volume.as_str(), it.stats.used))
        .collect();
    assert_eq!(names, [("a", 100)]);
    assert_eq!(scene.plugins.looks().len(), 2);
    scene.plugins.set("a", 300);
    let used = async |age| scene.usages.stats(&web.uid(), age).await[0].stats.used;
    tokio::time::sleep(30 * SECOND).await;
    assert_eq!(used(60 * SECOND).await, 100);
    tokio::time::sleep(31 * SECOND).await;
    assert_eq!(used(60 * SECOND).await, 300);
    assert!(
        scene
            .usages
            .stats(&"nobody".into(), SECOND)
            .await
            .is_empty()
    );
}

#[tokio::test(start_paused = true)]
async fn metrics_tell_the_last_numbers_of_claims_and_have_old_ones_measured() {
    let scene = Scene::new();
    scene.plugins.set("v", 200);
    let web = pod("web", json!([{"name": "v", "ephemeral": {}}]));
    let mut volume = plain_volumes(&web, &Default::default()).remove(0);
    volume.source = VolumeSource::EmptyDir(Default::default());
    let request = VolumeRequest {
        pod: web,
        volume,
        now: Timestamp::UNIX_EPOCH,
    };
    scene.measured.set_up(&request).await.unwrap();
    let used = || {
        scene.usages.publish_metrics();
        let text = scene.metrics.render().unwrap();
        let mut lines = text.lines();
        let line = lines.find(|line| line.starts_with("kubelet_volume_stats_used_bytes{"));
        line.map(str::to_owned)
    };
    assert_eq!(used(), None);
    tokio::time::sleep(SECOND).await;
    let line = "kubelet_volume_stats_used_bytes{namespace=\"default\",\
                persistentvolumeclaim=\"web-v\"}";
    assert_eq!(used(), Some(format!("{line} 200")));
    scene.plugins.set("v", 300);
    tokio::time::sleep(61 * SECOND).await;
    assert_eq!(used(), Some(format!("{line} 200")));
    tokio::time::sleep(SECOND).await;
    assert_eq!(used(), Some(format!("{line} 300")));
    assert_eq!(scene.plugins.looks().len(), 2);
    let text = scene.metrics.render().unwrap();
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
async fn a_volume_is_looked_at_once_at_a_time_however_often_somebody_asks() {
    let scene = Scene::new();
    scene.plugins.set("v", 200);
    *scene.plugins.takes.lock().unwrap() = 100 * SECOND;
    let web = pod("web", json!([{"name": "v", "ephemeral": {}}]));
    let mut volume = plain_volumes(&web, &Default::default()).remove(0);
    volume.source = VolumeSource::EmptyDir(Default::default());
    let request = VolumeRequest {
        pod: web.clone(),
        volume,
        now: Timestamp::UNIX_EPOCH,
    };
    scene.measured.set_up(&request).await.unwrap();
    for _ in 0..50 {
        scene.usages.publish_metrics();
        tokio::time::sleep(SECOND).await;
    }
    assert_eq!(scene.plugins.looks().len(), 1, "scrapes pile up");
    let uid = web.uid();
    let ask = || scene.usages.stats(&uid, SECOND);
    let (one, other) = tokio::join!(ask(), ask());
    assert_eq!((one.len(), other.len()), (1, 1));
    assert_eq!(scene.plugins.looks().len(), 0, "who waits is told the same");
}

#[tokio::test(start_paused = true)]
async fn a_volume_counts_from_its_wish_to_its_end_and_its_whole_start_is_told_once() {
    let scene = Scene::new();
    let web = pod("web", json!([{"name": "v", "emptyDir": {}}]));
    let volume = plain_volumes(&web, &Default::default()).remove(0);
    let lines = |family: &str| -> Vec<String> {
        scene.usages.publish_metrics();
        let text = scene.metrics.render().unwrap();
        let lines = text.lines().filter(|line| line.starts_with(family));
        lines.map(str::to_owned).collect()
    };
    let total = |state: &str| {
        format!(
            "volume_manager_total_volumes{{plugin_name=\"kubernetes.io/empty-dir\",\
             state=\"{state}_state_of_world\"}} 1"
        )
    };
    scene.usages.desired(&web, &volume, false);
    assert_eq!(lines("volume_manager_total"), [total("desired")]);
    // it waits for a controller, say
    tokio::time::sleep(3 * SECOND).await;
    let request = VolumeRequest {
        pod: web.clone(),
        volume,
        now: Timestamp::UNIX_EPOCH,
    };
    scene.measured.set_up(&request).await.unwrap();
    scene.measured.set_up(&request).await.unwrap();
    let both = [total("actual"), total("desired")];
    assert_eq!(lines("volume_manager_total"), both);
    let whole = |what: &str| {
        let labels =
            "operation_name=\"overall_volume_mount\",plugin_name=\"kubernetes.io/empty-dir\"";
        format!("volume_operation_total_seconds_{what}{{{labels}}}")
    };
    assert_eq!(lines(&whole("sum")), [format!("{} 3", whole("sum"))]);
    assert_eq!(lines(&whole("count")), [format!("{} 1", whole("count"))]);
    scene.usages.all_gone(&web.uid());
    assert_eq!(lines("volume_manager_total"), [""; 0]);
}
