//! The bare CRI sequence: RunPodSandbox, CreateContainer, StartContainer.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures::stream::{self, StreamExt, TryStreamExt};
use tokio::time::Instant;
use windlass_cri::{CriClient, CriOptions, RuntimeService, RuntimeStreams, StreamSet};
use windlass_metrics::Metrics;
use windlass_testbed::containerd::PrivateContainerd;
use windlass_testbed::images;
use windlass_types::cri::{
    ContainerConfig, ContainerSecurity, LinuxResources, ListFilter, NamespaceMode,
    NamespaceOptions, SandboxConfig, SecurityProfile,
};
use windlass_types::{ContainerId, ContainerState, PodUid, SandboxId};

use super::Started;

/// Max concurrent removals outside of measurements.
const MAX_CONCURRENT_REMOVALS: usize = 8;
/// Stop timeout; the containers exit at once.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// Masked paths of every container, as set by a kubelet; each costs a mount.
const MASKED_PATHS: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
const READONLY_PATHS: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];
/// Timeout of emptying the runtime.
const CLEAN_TIMEOUT: Duration = Duration::from_secs(60);
/// Poll interval in measurements.
const DEATH_POLL: Duration = Duration::from_millis(1);
/// Timeout of a command.
const EXEC_TIMEOUT: Duration = Duration::from_secs(10);
/// Poll interval outside of measurements.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A pod started without an agent.
#[derive(Clone, Debug)]
pub(super) struct BarePod {
    sandbox: SandboxId,
    container: ContainerId,
    config: (SandboxConfig, ContainerConfig),
}

impl BarePod {
    /// ID of its container in the runtime.
    pub(super) fn container_id(&self) -> &str {
        self.container.as_str()
    }
}

/// A CRI client with the requests of the agent.
#[derive(Debug)]
pub(super) struct Bare {
    cri: CriClient,
    logs: PathBuf,
    concurrency: usize,
}

impl Bare {
    pub(super) fn new(containerd: &PrivateContainerd, concurrency: usize) -> anyhow::Result<Self> {
        let cri = CriClient::connect(
            &containerd.endpoint(),
            CriOptions::new(Metrics::new()?.runtime_calls),
        )?;
        Ok(Self {
            cri,
            logs: containerd.base().join("logs"),
            concurrency,
        })
    }

    /// Starts the pods in order, with the concurrency of this client.
    pub(super) async fn start_pods(&self, names: &[String]) -> anyhow::Result<Started> {
        self.start_pods_at(self.concurrency, names).await
    }

    /// Starts the pods in order, at most `concurrency` concurrently.
    pub(super) async fn start_pods_at(
        &self,
        concurrency: usize,
        names: &[String],
    ) -> anyhow::Result<Started> {
        let begin = Instant::now();
        let started: Vec<(f64, BarePod)> = stream::iter(names)
            .map(|name| async move {
                let pod = self.start_pod(name).await?;
                anyhow::Ok((begin.elapsed().as_secs_f64(), pod))
            })
            .buffer_unordered(concurrency)
            .try_collect()
            .await?;
        let (seconds, bare) = started.into_iter().unzip();
        Ok(Started { seconds, bare })
    }

    pub(super) async fn remove_pods(&self, started: &Started) -> anyhow::Result<()> {
        self.stop_and_remove(MAX_CONCURRENT_REMOVALS, started)
            .await?;
        Ok(())
    }

    /// Stops the containers, stops and removes the sandboxes, `concurrency` pods at a time, and
    /// returns the seconds it took.
    pub(super) async fn stop_and_remove(
        &self,
        concurrency: usize,
        started: &Started,
    ) -> anyhow::Result<f64> {
        let begin = Instant::now();
        stream::iter(&started.bare)
            .map(|pod| async move {
                self.cri
                    .stop_container(&pod.container, STOP_TIMEOUT)
                    .await?;
                self.cri.stop_pod_sandbox(&pod.sandbox).await?;
                // with its containers
                self.cri.remove_pod_sandbox(&pod.sandbox).await?;
                anyhow::Ok(())
            })
            .buffer_unordered(concurrency)
            .try_collect::<()>()
            .await?;
        Ok(begin.elapsed().as_secs_f64())
    }

    /// Removes stopped sandboxes until the runtime is empty. The agent would do so minutes later,
    /// perhaps during the next measurement.
    pub(super) async fn remove_dead(&self) -> anyhow::Result<()> {
        self.remove_dead_beside(0).await
    }

    /// The same beside so many pods that continue to run.
    pub(super) async fn remove_dead_beside(&self, running: usize) -> anyhow::Result<()> {
        let deadline = Instant::now() + CLEAN_TIMEOUT;
        loop {
            let sandboxes = self.cri.list_pod_sandboxes(&ListFilter::default()).await?;
            let ready = sandboxes.iter().filter(|sandbox| sandbox.ready).count();
            if sandboxes.len() == ready && ready == running {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "{} sandboxes stay, {ready} of them ready, in place of {running}",
                sandboxes.len()
            );
            let dead = sandboxes.iter().filter(|sandbox| !sandbox.ready);
            stream::iter(dead)
                .for_each_concurrent(MAX_CONCURRENT_REMOVALS, |sandbox| async {
                    // Fails while the agent is stopping it; retried.
                    let _ = self.cri.remove_pod_sandbox(&sandbox.id).await;
                })
                .await;
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until nothing on the runtime is ready or running.
    pub(super) async fn wait_until_stopped(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + CLEAN_TIMEOUT;
        loop {
            let sandboxes = self.cri.list_pod_sandboxes(&ListFilter::default()).await?;
            let ready = sandboxes.iter().filter(|sandbox| sandbox.ready).count();
            if ready == 0 {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{ready} sandboxes stay ready");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// All containers of the runtime, including dead ones.
    pub(super) async fn container_ids(&self) -> anyhow::Result<BTreeSet<String>> {
        let containers = self.cri.list_containers(&ListFilter::default()).await?;
        Ok(containers
            .into_iter()
            .map(|container| container.id.to_string())
            .collect())
    }

    async fn start_pod(&self, name: &str) -> anyhow::Result<BarePod> {
        let config = self.config(name)?;
        let (sandbox_config, container_config) = &config;
        let sandbox = self.cri.run_pod_sandbox(sandbox_config, "").await?;
        let container = self
            .cri
            .create_container(&sandbox, container_config, sandbox_config)
            .await?;
        self.cri.start_container(&container).await?;
        Ok(BarePod {
            sandbox,
            container,
            config,
        })
    }

    /// Starts another container in the sandbox of a dead one.
    pub(super) async fn start_replacement(&self, pod: &BarePod) -> anyhow::Result<()> {
        let (sandbox_config, container_config) = &pod.config;
        let config = ContainerConfig {
            attempt: 1,
            log_path: "main/1.log".to_owned(),
            ..container_config.clone()
        };
        let container = self
            .cri
            .create_container(&pod.sandbox, &config, sandbox_config)
            .await?;
        self.cri.start_container(&container).await?;
        Ok(())
    }

    /// Waits until the runtime reports a container as exited.
    pub(super) async fn wait_until_dead(&self, pod: &BarePod) -> anyhow::Result<()> {
        let deadline = Instant::now() + CLEAN_TIMEOUT;
        while self
            .cri
            .container_status(&pod.container)
            .await?
            .observed
            .state
            != ContainerState::Exited
        {
            ensure!(
                Instant::now() < deadline,
                "a killed container keeps running"
            );
            tokio::time::sleep(DEATH_POLL).await;
        }
        Ok(())
    }

    /// ID of the container of a pod.
    pub(super) async fn container_of(&self, uid: &str) -> anyhow::Result<String> {
        let containers = self.cri.list_containers(&ListFilter::default()).await?;
        let mut of_pod = containers.into_iter().filter(|c| c.uid.as_str() == uid);
        let container = of_pod
            .next()
            .with_context(|| format!("no container of {uid}"))?;
        Ok(container.id.to_string())
    }

    /// Sets the CPU limit of a container, in thousandths.
    pub(super) async fn resize(&self, container: &str, milli_cpu: i64) -> anyhow::Result<()> {
        let container = ContainerId::from(container);
        let resources = LinuxResources {
            cpu_period: 100_000,
            cpu_quota: milli_cpu * 100,
            cpu_shares: 10,
            memory_limit: 32 << 20,
            ..LinuxResources::default()
        };
        self.cri
            .update_container_resources(&container, &resources)
            .await?;
        Ok(())
    }

    /// The same for many, `concurrency` at a time; returns the seconds it took.
    pub(super) async fn resize_all(
        &self,
        containers: impl Iterator<Item = &str>,
        milli_cpu: i64,
        concurrency: usize,
    ) -> anyhow::Result<f64> {
        let begin = Instant::now();
        stream::iter(containers)
            .map(|container| self.resize(container, milli_cpu))
            .buffer_unordered(concurrency)
            .try_collect::<()>()
            .await?;
        Ok(begin.elapsed().as_secs_f64())
    }

    /// Runs `true` in a container.
    pub(super) async fn exec(&self, container: &str) -> anyhow::Result<()> {
        let command = ["true".to_owned()];
        let container = ContainerId::from(container);
        let output = self
            .cri
            .exec_sync(&container, &command, EXEC_TIMEOUT)
            .await?;
        ensure!(output.exit_code == 0, "exit code {}", output.exit_code);
        Ok(())
    }

    /// URL of the runtime's stream of a command.
    pub(super) async fn exec_url(
        &self,
        container: &str,
        command: &[String],
        streams: StreamSet,
    ) -> anyhow::Result<String> {
        let container = ContainerId::from(container);
        Ok(RuntimeStreams::exec(&self.cri, &container, command, streams).await?)
    }

    fn config(&self, name: &str) -> anyhow::Result<(SandboxConfig, ContainerConfig)> {
        let uid = format!("bare-{name}");
        let log_directory = self.logs.join(&uid);
        std::fs::create_dir_all(log_directory.join("main"))?;
        let labels = [
            ("io.kubernetes.pod.name".to_owned(), uid.clone()),
            (
                "io.kubernetes.pod.namespace".to_owned(),
                "default".to_owned(),
            ),
            ("io.kubernetes.pod.uid".to_owned(), uid.clone()),
        ];
        let sandbox_config = SandboxConfig {
            name: uid.clone(),
            namespace: "default".to_owned(),
            uid: PodUid::from(uid.as_str()),
            hostname: uid.clone(),
            log_directory: log_directory.display().to_string(),
            labels: labels.clone().into(),
            ..SandboxConfig::default()
        };
        let container_config = ContainerConfig {
            name: "main".to_owned(),
            image: images::PAUSE.to_owned(),
            user_specified_image: images::PAUSE.to_owned(),
            labels: labels.into(),
            log_path: "main/0.log".to_owned(),
            resources: LinuxResources {
                cpu_shares: 2,
                oom_score_adj: 1000,
                ..LinuxResources::default()
            },
            security: ContainerSecurity {
                namespaces: NamespaceOptions {
                    pid: NamespaceMode::Container,
                    ..NamespaceOptions::default()
                },
                seccomp: SecurityProfile::Unconfined,
                masked_paths: MASKED_PATHS.map(str::to_owned).to_vec(),
                readonly_paths: READONLY_PATHS.map(str::to_owned).to_vec(),
                ..ContainerSecurity::default()
            },
            ..ContainerConfig::default()
        };
        Ok((sandbox_config, container_config))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn on_containerd_the_bare_sequence_starts_and_removes_pods() {
        let containerd = PrivateContainerd::start("t-bare", |_| ()).await.unwrap();
        let bare = Bare::new(&containerd, 2).unwrap();
        let names = ["a", "b", "c"].map(str::to_owned);
        let started = bare.start_pods(&names).await.unwrap();
        assert_eq!(started.seconds.len(), 3);
        assert_eq!(bare.container_ids().await.unwrap().len(), 3);
        bare.remove_pods(&started).await.unwrap();
        assert!(bare.container_ids().await.unwrap().is_empty());
        containerd.stop().await.unwrap();
    }
}
