//! `bench --volumes`: cost of volumes for pod starts and idle agents, and latency of payload changes.
//!
//! The API server is the fake one, over real TLS, in this process, as in `bench --cluster`.
//! Windlass is measured with and without volumes, in turns where host load matters.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass_fake_api::FakeApiServer;
use windlass_testbed::agent::NODE_NAME;
use windlass_testbed::containerd::PrivateContainerd;
use windlass_testbed::images;
use windlass_types::Pod;
use windlass_types::corev1::ConfigMap;

use super::cluster::latency::now;
use super::cluster::node::ClusterNode;
use super::cluster::runtime_log;
use super::report::{Report, Unit};
use super::{Options, median, names, percentile};
use xtask_run as run;

/// Options of `bench --volumes`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct VolumeOptions {
    /// Measure volumes on a cluster node, with a fake API server in this process.
    #[arg(long, conflicts_with_all = ["cluster", "lifecycle"])]
    pub(super) volumes: bool,
    /// ConfigMap volumes of one pod.
    #[arg(long, default_value_t = 50, requires = "volumes")]
    maps: usize,
    /// Pods with four volumes each.
    #[arg(long, default_value_t = 110, requires = "volumes")]
    full: usize,
    /// Number of measured ConfigMap changes.
    #[arg(long, default_value_t = 20, requires = "volumes")]
    changes: usize,
}

/// Max milliseconds that the volumes of a pod add to its start.
const START_TARGET: f64 = 100.0;
/// Max milliseconds until a change is in the file.
const CHANGE_TARGET: f64 = 2000.0;
/// Max cost of volumes for an idle agent, as a multiple; 10 % for noise.
const IDLE_TARGET: f64 = 1.1;
/// Interval before each pod, for cleanup of the last one.
const START_INTERVAL: Duration = Duration::from_millis(500);
/// Timeout of waiting for a change.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Poll interval of files.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
const NAMESPACE: &str = "default";
/// Name of the ConfigMap that many pods share.
const SHARED: &str = "shared";

/// The command that repeats this run.
pub(super) fn command(options: &Options) -> String {
    let VolumeOptions {
        maps,
        full,
        changes,
        ..
    } = options.volumes;
    format!(
        "cargo xtask bench --volumes --maps {maps} --full {full} --changes {changes} --rounds {} \
         --idle-seconds {} {}",
        options.rounds,
        options.idle_seconds,
        options.binary(),
    )
}

/// Runs all measurements.
pub(super) async fn measure(options: &Options, binary: &Path) -> anyhow::Result<Report> {
    let containerd = PrivateContainerd::start("bench", run::step).await?;
    run::step("joining the cluster");
    let mut node = ClusterNode::start(&containerd, binary).await?;
    create_maps(node.api(), options.volumes.maps)?;
    node.settle().await?;
    let mut report = Report::default();
    starts(options, &containerd, &mut node, &mut report).await?;
    changes(options, &mut node, &mut report).await?;
    at_rest(options, &mut node, &mut report).await?;
    node.stop().await?;
    containerd.stop().await?;
    Ok(report)
}

/// Starts the same pod with and without ConfigMap volumes, in alternating order.
async fn starts(
    options: &Options,
    containerd: &PrivateContainerd,
    node: &mut ClusterNode,
    report: &mut Report,
) -> anyhow::Result<()> {
    let (maps, rounds) = (options.volumes.maps, options.rounds * 3);
    run::step(&format!(
        "{rounds} pods with {maps} ConfigMap volumes and without"
    ));
    let (mut with, mut without) = (Vec::new(), Vec::new());
    let mut created = Vec::new();
    // the first pair is a warm-up and not counted
    for round in 0..=rounds {
        for full in [round % 2 == 0, round % 2 != 0] {
            tokio::time::sleep(START_INTERVAL).await;
            let name = format!("start-{round}-{full}");
            let pod = match full {
                true => pod(&name, &map_volumes(maps))?,
                false => pod(&name, &[])?,
            };
            let at = now()?;
            let took = node.create_all(&[pod]).await?.wall();
            let uid = node.uid(&name)?;
            node.delete_pods(&[name]).await?;
            if round > 0 {
                if full { &mut with } else { &mut without }.push(took);
                created.push((full, uid, at));
            }
        }
    }
    let what = format!("start of a pod with {maps} ConfigMap volumes against one with none, p50");
    report.ratio(&what, median(&with), median(&without), f64::NAN);
    let added: Vec<f64> = with
        .iter()
        .zip(&without)
        .map(|(a, b)| (a - b) * 1e3)
        .collect();
    report.figure(
        &format!("{maps} ConfigMap volumes add to a pod's start, p50"),
        median(&added),
        Unit::Milliseconds,
        START_TARGET,
    );
    let log = std::fs::read_to_string(containerd.log_file())?;
    let uids = created.iter().map(|(_, uid, _)| uid.as_str());
    let times = runtime_log::read(&log, uids);
    let before = |full: bool| -> anyhow::Result<f64> {
        let mut millis = Vec::new();
        for (_, uid, at) in created.iter().filter(|it| it.0 == full) {
            let asked = times.get(uid.as_str()).and_then(|it| it.sandbox_asked);
            let asked = asked.context("the runtime's log does not tell of a pod")?;
            millis.push(asked.duration_since(*at).as_secs_f64() * 1e3);
        }
        Ok(median(&millis))
    };
    // the rest is the cost of mounts in the runtime
    report.figure(
        "of that before RunPodSandbox, which is the agent's part",
        before(true)? - before(false)?,
        Unit::Milliseconds,
        f64::NAN,
    );
    Ok(())
}

/// Changes one of many ConfigMaps; measures the latency and other written files.
async fn changes(
    options: &Options,
    node: &mut ClusterNode,
    report: &mut Report,
) -> anyhow::Result<()> {
    let VolumeOptions { maps, changes, .. } = options.volumes;
    run::step(&format!("{changes} changes of one of {maps} ConfigMaps"));
    node.create_all(&[pod("changing", &map_volumes(maps))?])
        .await?;
    node.settle().await?;
    let volumes = node.volumes_of("changing")?;
    let (mut millis, mut written, mut touched) = (Vec::new(), Vec::new(), Vec::new());
    for change in 0..changes {
        tokio::time::sleep(START_INTERVAL).await;
        let index = change % maps;
        let before = files_below(&volumes)?;
        let value = format!("changed {change}");
        let file = file_of(&volumes, &format!("v{index}"));
        millis.push(change_map(node.api(), &map_name(index), &value, &[file]).await?);
        // time for other writes
        tokio::time::sleep(START_INTERVAL).await;
        let after = files_below(&volumes)?;
        let new: Vec<&PathBuf> = after
            .iter()
            .filter(|(path, file)| before.get(*path) != Some(*file))
            .map(|(path, _)| path)
            .collect();
        let mut of: Vec<_> = new
            .iter()
            .filter_map(|path| volume_of(&volumes, path))
            .collect();
        of.sort();
        of.dedup();
        written.push(new.len() as f64);
        touched.push(of.len() as f64);
    }
    let what = format!("one of {maps} ConfigMaps changed → in the file of its pod");
    report.figure(
        &format!("{what}, p99"),
        percentile(&millis, 99),
        Unit::Milliseconds,
        CHANGE_TARGET,
    );
    report.figure(
        &format!("{what}, p50"),
        median(&millis),
        Unit::Milliseconds,
        f64::NAN,
    );
    report.figure(
        "volumes in which it makes anything new, at most",
        percentile(&touched, 100),
        Unit::Count,
        1.0,
    );
    report.figure(
        "files, links and directories that are new or changed, at most",
        percentile(&written, 100),
        Unit::Count,
        f64::NAN,
    );
    node.delete_pods(&["changing".to_owned()]).await?;
    Ok(())
}

/// Measures idle pods without volumes, with four each, and without again to compensate for drift.
/// One shared ConfigMap changes while they have volumes.
async fn at_rest(
    options: &Options,
    node: &mut ClusterNode,
    report: &mut Report,
) -> anyhow::Result<()> {
    let (full, seconds) = (options.volumes.full, options.idle_seconds);
    let mut rests = Vec::new();
    for (turn, volumes) in [vec![], four_volumes(), vec![]].iter().enumerate() {
        let count = volumes.len();
        run::step(&format!(
            "{full} idle pods with {count} volumes each for {seconds} s"
        ));
        let names = names(&format!("idle-{turn}"), full);
        let pods = names.iter().map(|name| pod(name, volumes));
        let pods: Vec<Pod> = pods.collect::<anyhow::Result<_>>()?;
        node.create_all(&pods).await?;
        node.settle().await?;
        let process = node.process()?;
        let before = (process.cpu_seconds()?, process.sleeps()?);
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let after = (process.cpu_seconds()?, process.sleeps()?);
        let per_minute = 60.0 / seconds as f64;
        rests.push((
            100.0 * (after.0 - before.0) / seconds as f64,
            after.1.since(&before.1) as f64 * per_minute,
        ));
        if count > 0 {
            herd(node, &names, report).await?;
        }
        node.delete_pods(&names).await?;
        node.settle().await?;
    }
    let [first, with, last] = rests[..] else {
        anyhow::bail!("expected three idle measurements");
    };
    let without = (
        f64::midpoint(first.0, last.0),
        f64::midpoint(first.1, last.1),
    );
    let what = format!("{full} idle pods with 4 volumes each against the same without");
    report.against(
        &format!("CPU, {what}"),
        with.0,
        without.0,
        Unit::PercentOfCore,
        f64::NAN,
    );
    report.against(
        &format!("wake-ups a minute, {what}"),
        with.1,
        without.1,
        Unit::Count,
        IDLE_TARGET,
    );
    report.against(
        &format!(
            "wake-ups a minute, {full} idle pods without volumes, the second time and the first"
        ),
        last.1,
        first.1,
        Unit::Count,
        f64::NAN,
    );
    Ok(())
}

/// Changes a ConfigMap that all pods share.
async fn herd(node: &ClusterNode, names: &[String], report: &mut Report) -> anyhow::Result<()> {
    let volumes = names.iter().map(|name| node.volumes_of(name));
    let volumes: Vec<PathBuf> = volumes.collect::<anyhow::Result<_>>()?;
    let files: Vec<PathBuf> = volumes.iter().map(|dir| file_of(dir, "map")).collect();
    node.forget_requests();
    let millis = change_map(node.api(), SHARED, "for all", &files).await?;
    let what = format!(
        "a ConfigMap that {} pods share changed → in the last file",
        names.len()
    );
    report.figure(&what, millis, Unit::Milliseconds, CHANGE_TARGET);
    report.figure(
        "requests to the API server for that",
        node.requests() as f64,
        Unit::Count,
        f64::NAN,
    );
    Ok(())
}

/// Changes a ConfigMap and returns the milliseconds until all these files have it.
async fn change_map(
    api: &FakeApiServer,
    name: &str,
    value: &str,
    files: &[PathBuf],
) -> anyhow::Result<f64> {
    let begin = Instant::now();
    api.modify::<ConfigMap>(Some(NAMESPACE), name, |map| {
        map.data = Some(BTreeMap::from([("key".to_owned(), value.to_owned())]));
    });
    for file in files {
        // retried while the file is being replaced
        while std::fs::read_to_string(file).ok().as_deref() != Some(value) {
            ensure!(
                begin.elapsed() < CHANGE_TIMEOUT,
                "{} is old",
                file.display()
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
    Ok(begin.elapsed().as_secs_f64() * 1e3)
}

/// Inode and times of all files below a directory; of volume directories only their content.
fn files_below(dir: &Path) -> anyhow::Result<BTreeMap<PathBuf, (u64, i64, i64)>> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            let meta = path.symlink_metadata()?;
            if meta.is_dir() {
                dirs.push(path.clone());
            }
            found.insert(path, (meta.ino(), meta.mtime(), meta.mtime_nsec()));
        }
    }
    Ok(found)
}

/// `<kind>/<volume>` of a path below the volumes of a pod.
fn volume_of(volumes: &Path, path: &Path) -> Option<PathBuf> {
    let mut parts = path.strip_prefix(volumes).ok()?.components();
    Some([parts.next()?, parts.next()?].iter().collect())
}

fn file_of(volumes: &Path, volume: &str) -> PathBuf {
    volumes
        .join("kubernetes.io~configmap")
        .join(volume)
        .join("key")
}

fn map_name(index: usize) -> String {
    format!("map-{index}")
}

fn create_maps(api: &FakeApiServer, count: usize) -> anyhow::Result<()> {
    let names = (0..count).map(map_name).chain([SHARED.to_owned()]);
    for name in names {
        let map = json!({
            "metadata": { "name": name, "namespace": NAMESPACE },
            "data": { "key": "as made" },
        });
        api.create::<ConfigMap>(&serde_json::from_value(map)?);
    }
    Ok(())
}

/// `v0`, `v1`, …, each with its own ConfigMap.
fn map_volumes(count: usize) -> Vec<Value> {
    let volume =
        |index| json!({ "name": format!("v{index}"), "configMap": { "name": map_name(index) } });
    (0..count).map(volume).collect()
}

fn four_volumes() -> Vec<Value> {
    vec![
        json!({ "name": "map", "configMap": { "name": SHARED } }),
        json!({ "name": "secret", "secret": { "secretName": "credentials" } }),
        json!({ "name": "scratch", "emptyDir": {} }),
        json!({ "name": "token", "projected": { "sources": [
            { "serviceAccountToken": { "path": "token", "expirationSeconds": 3607 } },
            { "configMap": { "name": "kube-root-ca.crt" } },
        ]}}),
    ]
}

/// A pod with these volumes mounted in a container that exits at once on SIGTERM.
fn pod(name: &str, volumes: &[Value]) -> anyhow::Result<Pod> {
    let mounts: Vec<Value> = volumes
        .iter()
        .map(|volume| {
            let name = volume["name"].as_str().context("a volume without a name")?;
            Ok(json!({ "name": name, "mountPath": format!("/volumes/{name}") }))
        })
        .collect::<anyhow::Result<_>>()?;
    Ok(serde_json::from_value(json!({
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": {
            "nodeName": NODE_NAME,
            "serviceAccountName": "default",
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 30,
            "containers": [{
                "name": "main",
                "image": images::PAUSE,
                "imagePullPolicy": "IfNotPresent",
                "volumeMounts": mounts,
            }],
            "volumes": volumes,
        },
    }))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_files_are_grouped_by_volume() {
        let temp = tempfile::tempdir().unwrap();
        let volumes = temp.path();
        for volume in ["a/v0", "a/v1"] {
            std::fs::create_dir_all(volumes.join(volume)).unwrap();
        }
        let before = files_below(volumes).unwrap();
        std::fs::write(volumes.join("a/v1/key"), "new").unwrap();
        let after = files_below(volumes).unwrap();
        let new = after
            .iter()
            .filter(|(path, file)| before.get(*path) != Some(*file));
        let mut of: Vec<_> = new
            .filter_map(|(path, _)| volume_of(volumes, path))
            .collect();
        of.dedup();
        assert_eq!(of, [Path::new("a/v1")]);
    }
}
