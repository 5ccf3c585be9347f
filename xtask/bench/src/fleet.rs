//! The windlass side: an agent, its manifest directory and its watch stream.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use tokio::time::Instant;
use windlass_testbed::agent::{Agent, AgentOptions};
use windlass_testbed::containerd::PrivateContainerd;
use windlass_testbed::images;
use windlass_testbed::pod_watch::{PodTable, PodWatch};

use super::Started;
use super::process::{self, Process};

/// Timeout for all pods to reach a state.
const TIMEOUT: Duration = Duration::from_secs(900);

const RELIST_DURATION: &str = "kubelet_pleg_relist_duration_seconds";
const SYNC_LOOP_EVENTS: &str = "windlass_sync_loop_events_total";

/// An agent and its manifests.
#[derive(Debug)]
pub(super) struct Fleet {
    agent: Agent,
    watch: PodWatch,
    manifests: PathBuf,
    staging: PathBuf,
}

impl Fleet {
    pub(super) async fn start(
        containerd: &PrivateContainerd,
        binary: &Path,
        concurrency: usize,
    ) -> anyhow::Result<Self> {
        Self::configured(containerd, binary, concurrency, "").await
    }

    /// The same with additional lines of the agent's configuration.
    pub(super) async fn configured(
        containerd: &PrivateContainerd,
        binary: &Path,
        concurrency: usize,
        config: &str,
    ) -> anyhow::Result<Self> {
        let options = AgentOptions {
            config: config.to_owned(),
            args: vec![format!("--start-concurrency={concurrency}")],
            ..AgentOptions::default()
        };
        Self::with(containerd, binary, options).await
    }

    /// The same with all options of the agent.
    pub(super) async fn with(
        containerd: &PrivateContainerd,
        binary: &Path,
        options: AgentOptions,
    ) -> anyhow::Result<Self> {
        let manifests = containerd.base().join("manifests");
        let staging = containerd.base().join("staging");
        std::fs::create_dir_all(&manifests)?;
        std::fs::create_dir_all(&staging)?;
        let agent = Agent::start(containerd, binary, &manifests, options)?;
        let mut watch = agent.watch();
        watch
            .wait_for("the agent answers", TIMEOUT, |table| table.connected)
            .await?;
        Ok(Self {
            agent,
            watch,
            manifests,
            staging,
        })
    }

    /// Moves the manifests into the directory and waits until all pods are ready.
    pub(super) async fn start_pods(&mut self, names: &[String]) -> anyhow::Result<Started> {
        let manifests = names.iter().map(|name| (name.clone(), manifest(name)));
        self.start_manifests(manifests.collect()).await
    }

    /// The same with the given manifests, by pod name.
    pub(super) async fn start_manifests(
        &mut self,
        manifests: Vec<(String, String)>,
    ) -> anyhow::Result<Started> {
        for (name, text) in &manifests {
            std::fs::write(self.staging.join(name), text)?;
        }
        let names: Vec<&String> = manifests.iter().map(|(name, _)| name).collect();
        let begin = Instant::now();
        for name in &names {
            std::fs::rename(self.staging.join(name), self.file(name))?;
        }
        let all_ready = |table: &PodTable| names.iter().all(|name| ready_at(table, name).is_some());
        let table = self
            .watch
            .wait_for("all pods are ready", TIMEOUT, all_ready)
            .await?;
        let ready = names.iter().filter_map(|name| ready_at(&table, name));
        let seconds = ready.map(|at| (at - begin).as_secs_f64()).collect();
        Ok(Started {
            seconds,
            bare: Vec::new(),
        })
    }

    /// Starts pods with this time between two of them; the seconds count from each pod's manifest.
    pub(super) async fn start_pods_apart(
        &mut self,
        names: &[String],
        interval: Duration,
    ) -> anyhow::Result<Started> {
        let mut begins = Vec::new();
        for name in names {
            begins.push(Instant::now());
            self.put(name, &manifest(name))?;
            tokio::time::sleep(interval).await;
        }
        let table = self.wait_ready(names).await?;
        let ready = names.iter().zip(begins);
        let seconds = ready.filter_map(|(name, begin)| {
            let ready = ready_at(&table, name)?;
            Some((ready - begin).as_secs_f64())
        });
        Ok(Started {
            seconds: seconds.collect(),
            bare: Vec::new(),
        })
    }

    /// Moves a manifest into the directory.
    pub(super) fn put(&self, name: &str, text: &str) -> anyhow::Result<()> {
        std::fs::write(self.staging.join(name), text)?;
        std::fs::rename(self.staging.join(name), self.file(name))?;
        Ok(())
    }

    /// Waits until pods are ready.
    pub(super) async fn wait_ready(&mut self, names: &[String]) -> anyhow::Result<PodTable> {
        let all_ready = |table: &PodTable| names.iter().all(|name| ready_at(table, name).is_some());
        self.watch
            .wait_for("all pods are ready", TIMEOUT, all_ready)
            .await
    }

    /// Removes the manifests and waits until the pods are removed.
    pub(super) async fn remove_pods(&mut self, names: &[String]) -> anyhow::Result<()> {
        for name in names {
            std::fs::remove_file(self.file(name))?;
        }
        let gone = |table: &PodTable| {
            table.connected && names.iter().all(|name| table.pod(name).is_none())
        };
        self.watch
            .wait_for("the pods are gone", TIMEOUT, gone)
            .await?;
        Ok(())
    }

    /// Kills and restarts the agent; returns the seconds until it reports all pods as ready.
    pub(super) async fn kill_and_respawn(&mut self, names: &[String]) -> anyhow::Result<f64> {
        self.agent.kill()?;
        let before = self.watch.now().snapshots;
        let begin = Instant::now();
        self.agent.spawn()?;
        let back = |table: &PodTable| {
            table.snapshots > before
                && names
                    .iter()
                    .all(|name| table.pod(name).is_some_and(|pod| pod.ready))
        };
        self.watch
            .wait_for("all pods are ready again", TIMEOUT, back)
            .await?;
        Ok(begin.elapsed().as_secs_f64())
    }

    /// ID of the only container of a pod.
    pub(super) fn container_of(&self, name: &str) -> Option<String> {
        let table = self.watch.now();
        let id = &table.pod(name)?.containers.first()?.id;
        Some(id.rsplit('/').next()?.to_owned())
    }

    /// Waits until a pod is ready with another container.
    pub(super) async fn replaced(&mut self, name: &str, before: &str) -> anyhow::Result<()> {
        let replaced = |table: &PodTable| {
            let container = table.pod(name).and_then(|pod| pod.containers.first());
            container.is_some_and(|c| c.ready && !c.id.ends_with(before))
        };
        self.watch
            .wait_for("the container is replaced", TIMEOUT, replaced)
            .await?;
        Ok(())
    }

    /// The agent.
    pub(super) fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Waits until the agent is idle.
    pub(super) async fn settle(&mut self) -> anyhow::Result<()> {
        let pods = self.watch.now().pods.len();
        process::settle(&mut self.agent, pods).await
    }

    /// Name, ID and restart count of every container the agent reports.
    pub(super) fn containers(&self) -> BTreeSet<(String, String, u64)> {
        let table = self.watch.now();
        let pods = table.pods.values();
        pods.flat_map(|pod| {
            let containers = pod.containers.iter();
            containers.map(|c| (format!("{}/{}", pod.name, c.name), c.id.clone(), c.restarts))
        })
        .collect()
    }

    /// Number of relists.
    pub(super) async fn relists(&self) -> anyhow::Result<Relists> {
        let text = self.agent.metrics(false).await?;
        let sample = |suffix: &str| {
            let name = format!("{RELIST_DURATION}_{suffix} ");
            let line = text.lines().find_map(|line| line.strip_prefix(&name));
            let value = line.and_then(|value| value.trim().parse::<f64>().ok());
            value.with_context(|| format!("no metric {name}"))
        };
        Ok(Relists {
            count: sample("count")?,
            seconds: sample("sum")?,
        })
    }

    /// Number of sync loop events: pod updates, runtime changes, ticks.
    pub(super) async fn sync_loop_events(&self) -> anyhow::Result<f64> {
        let text = self.agent.metrics(false).await?;
        let series = text.lines().filter_map(|line| {
            let labels = line.strip_prefix(SYNC_LOOP_EVENTS)?;
            labels.rsplit_once(' ')?.1.parse::<f64>().ok()
        });
        Ok(series.sum())
    }

    pub(super) fn process(&self) -> anyhow::Result<Process> {
        Process::new(&self.agent)
    }

    /// Freezes the agent, which would stop the pods of the bare side as orphaned.
    pub(super) fn freeze(&self) -> anyhow::Result<()> {
        self.agent.freeze()
    }

    pub(super) fn thaw(&self) -> anyhow::Result<()> {
        self.agent.thaw()
    }

    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        self.agent.terminate().await
    }

    fn file(&self, name: &str) -> PathBuf {
        self.manifests.join(format!("{name}.yaml"))
    }
}

/// Number and total duration of relists.
#[derive(Clone, Copy, Debug)]
pub(super) struct Relists {
    count: f64,
    seconds: f64,
}

impl Relists {
    /// Difference to `before`.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            count: self.count - before.count,
            seconds: self.seconds - before.seconds,
        }
    }

    /// Mean duration in milliseconds; NaN without a relist.
    pub(super) fn mean_ms(self) -> f64 {
        1000.0 * self.seconds / self.count
    }
}

fn ready_at(table: &PodTable, name: &str) -> Option<Instant> {
    let pod = table.pod(name)?;
    let uid = table
        .pods
        .iter()
        .find(|(_, other)| other.name == pod.name)?
        .0;
    table.first_ready.get(uid).copied()
}

/// A pod with one idle container that exits at once on SIGTERM.
fn manifest(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:\n  \
         terminationGracePeriodSeconds: 5\n  containers:\n  - name: main\n    image: {}\n",
        images::PAUSE
    )
}
