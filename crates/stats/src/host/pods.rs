//! Stats of pods and their containers.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Deserialize;
use tokio::task::spawn_blocking;
use windlass_cri::{CriCode, RuntimeFs};
use windlass_types::{
    ContainerId, ContainerState, ObservedContainer, ObservedPod, ObservedSandbox, PodUid,
    SandboxId, Timestamp,
};

use super::{HostStats, PodState};
use crate::assemble::{DiskFacts, add_disk};
use crate::cgroup::{Cgroups, Depth};
use crate::cgroup_paths::CgroupPaths;
use crate::disk::{PodFilePaths, PodFiles};
use crate::logs::LogUsage;
use crate::network::pod_network;
use crate::pods::RunningPod;
use crate::source::{StatsError, StatsSelection};
use crate::usage::{CgroupUsage, ContainerUsage, OomKilledContainer, PodUsage, SandboxUsage};

impl HostStats {
    pub(super) async fn measure_pods(
        &self,
        selection: StatsSelection,
    ) -> Result<Vec<PodUsage>, StatsError> {
        let pods = self.ready_pods();
        let usages = self.collect_pods(Arc::clone(&pods), selection, |usage| usage);
        let mut usages = usages.await?;
        let images = async {
            match includes_sandboxes(selection) {
                true => self.sandbox_images(&pods).await,
                false => None,
            }
        };
        let disk = async {
            if selection.disk {
                self.add_disk(&pods, &mut usages).await;
            }
        };
        let (images, ()) = tokio::join!(images, disk);
        for sandbox in usages.iter_mut().filter_map(|it| it.sandbox.as_mut()) {
            let image = images.as_ref().and_then(|images| images.get(&sandbox.id));
            sandbox.image = image.cloned().unwrap_or_default();
        }
        Ok(usages)
    }

    /// Returns the images of all sandboxes; each is requested once.
    async fn sandbox_images(
        &self,
        pods: &Arc<Vec<RunningPod>>,
    ) -> Option<Arc<HashMap<SandboxId, String>>> {
        let (runtime, pods) = (Arc::clone(&self.config.runtime), Arc::clone(pods));
        let known = self.sandbox_images.latest();
        let make = || async move {
            let mut images = HashMap::with_capacity(pods.len());
            let mut reachable = true;
            for sandbox in pods.iter().filter_map(|pod| pod.observed.newest_sandbox()) {
                let kept = known.as_ref().and_then(|known| known.get(&sandbox.id));
                if let Some(image) = kept {
                    images.insert(sandbox.id.clone(), image.clone());
                } else if reachable {
                    match runtime.sandbox_info(&sandbox.id).await {
                        Ok(info) => drop(images.insert(sandbox.id.clone(), image_of(&info))),
                        Err(error) => {
                            tracing::debug!(%error, "sandbox info failed");
                            // skip one failed sandbox, but stop if the runtime is unreachable
                            let away = matches!(
                                error.code,
                                CriCode::Unavailable | CriCode::DeadlineExceeded
                            );
                            reachable = !away;
                        }
                    }
                }
            }
            Some(images)
        };
        self.sandbox_images.get(make).await
    }

    /// Returns the pods with a ready sandbox, ordered by namespace and name.
    pub(super) fn ready_pods(&self) -> Arc<Vec<RunningPod>> {
        let mut pods = self.config.pods.running_pods();
        pods.retain(|pod| pod.observed.newest_sandbox().is_some_and(|it| it.ready));
        let name = |pod: &RunningPod| (pod.observed.namespace.clone(), pod.observed.name.clone());
        pods.sort_by_cached_key(name);
        Arc::new(pods)
    }

    /// Collects the cgroup stats of pods; `keep` reduces the usage of each pod at once.
    pub(super) async fn collect_pods<T: Send + 'static>(
        &self,
        pods: Arc<Vec<RunningPod>>,
        selection: StatsSelection,
        keep: fn(PodUsage) -> T,
    ) -> Result<Vec<T>, StatsError> {
        let at = self.config.clock.now();
        let proc = self.config.roots.proc.clone();
        let task = self.pods.run(move |state| {
            let mut collection = state.begin(selection, at);
            let kept: Vec<T> = pods
                .iter()
                .map(|pod| keep(collection.pod(pod, &proc, selection)))
                .collect();
            state.end(at);
            kept
        });
        task.await.map_err(StatsError::Pods)
    }

    /// Returns the log usage of the containers of all pods with a sandbox.
    pub(super) async fn measure_logs(&self) -> Vec<LogUsage> {
        let pods = self.ready_pods();
        let files = self.files(&pods).await;
        let of_pod = |pod: &RunningPod| {
            let observed = &pod.observed;
            let logs = files.as_ref().and_then(|files| files.get(&observed.uid));
            let logs = logs.into_iter().flat_map(|files| &files.logs);
            let logs = logs.map(|(container, usage)| LogUsage {
                uid: observed.uid.clone(),
                namespace: observed.namespace.clone(),
                pod: observed.name.clone(),
                container: container.clone(),
                bytes: usage.bytes,
            });
            logs.collect::<Vec<_>>()
        };
        pods.iter().flat_map(of_pod).collect()
    }

    /// Adds the disk usage. All parts are collected concurrently; a late one is absent.
    async fn add_disk(&self, pods: &Arc<Vec<RunningPod>>, usages: &mut [PodUsage]) {
        let uids: Vec<PodUid> = pods.iter().map(|pod| pod.observed.uid.clone()).collect();
        let volumes = async {
            match &self.volumes {
                Some(volumes) => volumes.of_pods(&uids).await,
                None => HashMap::new(),
            }
        };
        let systems = async {
            let info = self.image_info().await;
            self.runtime_fs(info.as_deref()).await
        };
        let (node_fs, systems, layers, files, volumes) = tokio::join!(
            self.node_fs(),
            systems,
            self.layers(),
            self.files(pods),
            volumes
        );
        let containers = systems.as_deref().and_then(|it| it.containers.as_ref());
        let facts = DiskFacts {
            node_fs: node_fs.as_deref(),
            container_fs: containers,
            layers: layers.as_deref(),
            at: self.config.clock.now(),
        };
        for (usage, pod) in usages.iter_mut().zip(pods.iter()) {
            let files = files.as_deref().and_then(|files| files.get(&usage.uid));
            let volumes = volumes.get(&usage.uid).map(|it| it.as_slice());
            let pod = pod.pod.as_deref();
            add_disk(usage, pod, &facts, files, volumes.unwrap_or_default());
        }
    }

    /// Returns the writable layers of all containers.
    async fn layers(&self) -> Option<Arc<HashMap<ContainerId, RuntimeFs>>> {
        let runtime = Arc::clone(&self.config.runtime);
        let make = || async move {
            let layers = runtime.writable_layers().await;
            let layers =
                layers.inspect_err(|error| tracing::debug!(%error, "writable layer stats failed"));
            Some(layers.ok()?.into_iter().collect())
        };
        self.layers.get(make).await
    }

    /// Returns the usage of logs and hosts files of all desired pods.
    async fn files(&self, pods: &Arc<Vec<RunningPod>>) -> Option<Arc<HashMap<PodUid, PodFiles>>> {
        let paths = self.config.paths.clone();
        let pods = Arc::clone(pods);
        let make = || async move {
            let task = spawn_blocking(move || {
                let pods = pods.iter().filter_map(|running| running.pod.as_ref());
                let pods = pods.map(|pod| PodFilePaths::from_pod(&paths, pod));
                pods.map(|paths| (paths.uid.clone(), PodFiles::read(&paths)))
                    .collect()
            });
            task.await.ok()
        };
        self.files.get(make).await
    }
}

/// Returns the image in the sandbox info of the runtime.
fn image_of(info: &str) -> String {
    #[derive(Deserialize)]
    struct Info {
        image: String,
    }
    serde_json::from_str(info).map_or_else(|_| String::new(), |info: Info| info.image)
}

/// One collection of all pods.
struct PodCollection<'a> {
    cgroups: Option<&'a mut Cgroups>,
    cgroup_paths: &'a mut CgroupPaths,
    at: Timestamp,
}

impl PodState {
    fn begin(&mut self, selection: StatsSelection, at: Timestamp) -> PodCollection<'_> {
        if let Some(cgroups) = &mut self.cgroups {
            cgroups.begin_collection(selection.io);
        }
        PodCollection {
            cgroups: self.cgroups.as_mut(),
            cgroup_paths: &mut self.cgroup_paths,
            at,
        }
    }

    fn end(&mut self, at: Timestamp) {
        if let Some(cgroups) = &mut self.cgroups {
            cgroups.end_collection(at);
        }
        self.cgroup_paths.end_collection();
    }
}

/// False if only CPU and memory are selected.
fn includes_sandboxes(selection: StatsSelection) -> bool {
    selection != StatsSelection::CPU_AND_MEMORY
}

impl PodCollection<'_> {
    fn pod(
        &mut self,
        running: &RunningPod,
        proc: &std::path::Path,
        selection: StatsSelection,
    ) -> PodUsage {
        let observed = &running.observed;
        let sandbox = observed.newest_sandbox();
        let depth = Depth {
            details: includes_sandboxes(selection),
            io: selection.io,
            processes: selection.processes,
            descriptors: selection.processes,
        };
        let pod_depth = Depth {
            descriptors: false,
            ..depth
        };
        let path = match &self.cgroups {
            Some(cgroups) => self.cgroup_paths.pod(cgroups, &observed.uid),
            None => None,
        };
        let cgroup = path.as_ref().and_then(|path| self.read(path, pod_depth));
        let parent = path.as_deref();
        let running_ones = observed
            .containers
            .iter()
            .filter(|container| container.state == ContainerState::Running);
        // exact capacity, because the values are large
        let mut containers = Vec::with_capacity(running_ones.clone().count());
        containers.extend(running_ones.map(|container| ContainerUsage {
            name: container.name.clone(),
            id: container.id.clone(),
            image: container.image.clone(),
            started_at: started_at(container),
            cgroup: self.container(parent, container.id.as_str(), depth),
            rootfs: None,
            logs: None,
        }));
        containers.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(sandbox) = sandbox {
            self.cgroup_paths.retain(sandbox.id.as_str());
        }
        let sandbox_usage = sandbox
            .filter(|_| includes_sandboxes(selection))
            .map(|sandbox| SandboxUsage {
                id: sandbox.id.clone(),
                image: String::new(),
                cgroup: self.container(parent, sandbox.id.as_str(), depth),
            });
        let own_network = |sandbox: &&ObservedSandbox| !sandbox.host_network;
        let network = sandbox
            .filter(own_network)
            .filter(|_| selection.network)
            .and_then(|sandbox| {
                let ids = [sandbox.id.as_str()].into_iter();
                let ids = ids.chain(containers.iter().map(|it| it.id.as_str()));
                let paths: Vec<String> =
                    ids.filter_map(|id| self.cgroup_path(parent, id)).collect();
                let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
                pod_network(self.cgroups.as_deref()?, proc, &paths, self.at)
            });
        let oom_killed = match includes_sandboxes(selection) {
            true => oom_killed(observed, self.at),
            false => Vec::new(),
        };
        let created_at = sandbox.map(|sandbox| sandbox.created_at);
        PodUsage {
            uid: observed.uid.clone(),
            namespace: observed.namespace.clone(),
            name: observed.name.clone(),
            present: running.present,
            started_at: running.started_at.or(created_at).unwrap_or_default(),
            cgroup,
            sandbox: sandbox_usage,
            network,
            containers,
            oom_killed,
            volumes: Vec::new(),
            ephemeral: None,
        }
    }

    fn cgroup_path(&mut self, pod: Option<&str>, id: &str) -> Option<String> {
        self.cgroup_paths
            .container(self.cgroups.as_deref()?, pod, id)
    }

    fn container(&mut self, pod: Option<&str>, id: &str, depth: Depth) -> Option<CgroupUsage> {
        let path = self.cgroup_path(pod, id)?;
        self.read(&path, depth)
    }

    fn read(&mut self, path: &str, depth: Depth) -> Option<CgroupUsage> {
        let usage = self.cgroups.as_deref_mut()?.read(path, depth, self.at);
        if usage.is_none() {
            self.cgroup_paths.remove_path(path);
        }
        usage
    }
}

fn oom_killed(pod: &ObservedPod, at: Timestamp) -> Vec<OomKilledContainer> {
    let exited = pod.containers.iter();
    let exited = exited.filter(|container| container.state == ContainerState::Exited);
    let killed = exited.filter_map(|container| {
        Some(OomKilledContainer {
            name: container.name.clone(),
            id: container.id.clone(),
            image: container.image.clone(),
            kills: container.oom_kills.clone()?,
            at,
        })
    });
    killed.collect()
}

fn started_at(container: &ObservedContainer) -> Timestamp {
    container.started_at.unwrap_or(container.created_at)
}
