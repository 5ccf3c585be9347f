//! Volume stats match what containers wrote.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use windlass_pod_inputs::paths::NodePaths;
use windlass_testing::csi_driver::{CsiDriver, DriverOptions, Method};
use windlass_types::corev1::Pod;
use windlass_types::{PodExt, PodUid};
use windlass_volume_plan::volume_source::plain_volumes;
use windlass_volume_plan::volume_usage::{StatsSource, VolumeStats};
use windlass_volumes::{HostVolumes, IoQueues, VolumePlugins};

use crate::control_plane::Kind;
use crate::csi::{bound, install, with_claim};
use crate::objects::{HOLD, container_with, uid};
use crate::test_env::{SOON, TestEnv, eventually};

const DRIVER: &str = "measured.csi.test";
const CLAIM: &str = "measured";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_fake_cluster_volume_stats_match_written_data() {
    Box::pin(volume_stats_match_written_data(Kind::Fake)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_real_cluster_volume_stats_match_written_data() {
    Box::pin(volume_stats_match_written_data(Kind::Real)).await;
}

async fn volume_stats_match_written_data(kind: Kind) {
    let Some(env) = TestEnv::start(kind, "k-usage").await else {
        return;
    };
    let options = DriverOptions::new(env.agent.root_dir(), DRIVER);
    let driver = install(&env, options, json!({ "attachRequired": false })).await;
    bound(&env, CLAIM, DRIVER, json!({})).await;
    let mounts = json!({ "volumeMounts": [
        { "name": "v", "mountPath": "/v" },
        { "name": "disk", "mountPath": "/disk" },
        { "name": "memory", "mountPath": "/memory" },
    ]});
    let spec = json!({
        "containers": [container_with(HOLD, mounts)],
        "volumes": [
            { "name": "v", "persistentVolumeClaim": { "claimName": CLAIM } },
            { "name": "disk", "emptyDir": {} },
            { "name": "memory", "emptyDir": { "medium": "Memory", "sizeLimit": "8Mi" } },
        ],
    });
    let asked = with_claim("usage", CLAIM, spec);
    let created = env.create(&asked).await;
    env.pod_ready("usage").await;
    let pod: Pod = serde_json::from_value(created.clone()).unwrap();
    // holes are not counted, hard links are counted once
    let write = "dd if=/dev/zero of=/v/file bs=1k count=1000; \
                 dd if=/dev/zero of=/memory/file bs=1k count=2000; \
                 mkdir -p /disk/a/b; dd if=/dev/zero of=/disk/a/file bs=1k count=3000; \
                 ln /disk/a/file /disk/again; truncate -s 1G /disk/hole; \
                 for i in $(seq 300); do echo $i > /disk/a/b/$i; done; sync";
    env.runtime.exec(uid(&created), write).await;

    empty_dirs_are_what_their_container_counts(&env, &created, &pod).await;
    a_claim_is_what_its_driver_says(&env, &driver).await;
    env.delete_pod("usage", Some(1)).await;
    env.pod_gone(&created).await;
    eventually("the PVC gets no further event", SOON, async || {
        let all = claims(&env).await;
        all.is_empty().then_some(()).ok_or(format!("{all:?}"))
    })
    .await;
    env.stop().await;
}

/// The agent does not serve stats of volumes without a PVC yet, so its code is called directly.
async fn empty_dirs_are_what_their_container_counts(env: &TestEnv, created: &Value, pod: &Pod) {
    let paths = NodePaths {
        root_dir: env.agent.root_dir(),
        ..NodePaths::default()
    };
    let queues = Arc::new(IoQueues::new(Duration::from_secs(60)));
    let node = HostVolumes::new(paths, queues);
    let uid_of_pod: PodUid = pod.uid();
    let volumes = plain_volumes(pod, &Default::default());
    let measured = async |name: &str| {
        let volume = volumes.iter().find(|volume| volume.name == name).unwrap();
        let measured = node.usage(&uid_of_pod, volume).await.unwrap();
        measured.expect("a volume with a size")
    };
    // blocks, free ones for all, size of a block, inodes, free ones
    let file_system = async |path: &str| {
        let script = format!("stat -f -c '%b %a %S %c %d' {path}");
        numbers(&env.runtime.exec(uid(created), &script).await)
    };

    let (stats, source) = measured("disk").await;
    assert_eq!(source, StatsSource::Walk);
    let script = "du -sk /disk | cut -f1; find /disk | sort -u | wc -l";
    let counted = numbers(&env.runtime.exec(uid(created), script).await);
    assert!(counted[0] > 3000 && counted[0] < 1 << 20, "{counted:?}");
    // one of the names is a hard link
    assert_eq!(
        (stats.used, stats.inodes_used),
        (counted[0] * 1024, counted[1] - 1)
    );
    let whole = file_system("/disk").await;
    assert_eq!(stats.capacity, whole[0] * whole[2]);

    let (stats, source) = measured("memory").await;
    assert_eq!(source, StatsSource::StatFs);
    let whole = file_system("/memory").await;
    let expected = VolumeStats {
        capacity: 8 << 20,
        available: whole[1] * whole[2],
        used: 2000 << 10,
        inodes: whole[3],
        inodes_free: whole[4],
        // its directory and the file
        inodes_used: 2,
    };
    assert_eq!(stats, expected);
}

fn numbers(text: &str) -> Vec<u64> {
    let words = text.split_whitespace();
    words.map(|word| word.parse().unwrap()).collect()
}

/// On `/metrics`: a scrape starts the measurement, and the next scrape returns it.
async fn a_claim_is_what_its_driver_says(env: &TestEnv, driver: &CsiDriver) {
    assert_eq!(driver.calls_of(Method::NodeGetVolumeStats), []);
    let expected = [
        ("available_bytes", (16 << 20) - (1000 << 10)),
        ("capacity_bytes", 16 << 20),
        ("inodes", 1000),
        ("inodes_free", 999),
        ("inodes_used", 1),
        ("used_bytes", 1000 << 10),
    ];
    let expected = expected.map(|(name, value)| {
        format!(
            "kubelet_volume_stats_{name}{{namespace=\"default\",persistentvolumeclaim=\"{CLAIM}\"}} \
             {value}"
        )
    });
    eventually("the numbers of the claim", SOON, async || {
        let all = claims(env).await;
        (all == expected).then_some(()).ok_or(format!("{all:?}"))
    })
    .await;
    let calls = driver.calls_of(Method::NodeGetVolumeStats);
    assert_eq!(calls.len(), 1, "once a minute: {calls:?}");
    assert_eq!(calls[0].volume, CLAIM);
}

/// PVC volume metrics of `/metrics`.
async fn claims(env: &TestEnv) -> Vec<String> {
    let text = env.agent.metrics(false).await.unwrap();
    let lines = text.lines();
    let told = lines.filter(|line| line.starts_with("kubelet_volume_stats_"));
    told.map(str::to_owned).collect()
}
