//! A simulated node on a virtual clock, with the real actors over a [`FakeRuntime`].
//!
//! [`simulate`] runs a scenario on one thread with paused time. Pod files are in memory, and the
//! scenario is the source of static pods. In [`simulate_cluster`] the node joins a
//! [`FakeApiServer`]. Equal seeds and scenarios give an equal [`NodeSim::log`].
//!
//! [`NodeSim::kill_agent`] is `kill -9`: the actors are dropped, and calls in progress do not reach
//! the runtime ([`fence`]).

mod clock;
mod fence;
mod fenced_api;
mod run_disk;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;
use tokio::time::Instant;
use windlass::build::node::{KUBERNETES_VERSION, node_before_registration};
use windlass::cluster::ClusterParts;
use windlass::wiring::{
    self, Agent, AgentParts, ContainerManagerParts, DevicePluginParts, DraParts, EvictionParts,
    ImageGcParts, LocalStorageParts, NodeParts, ObjectParts, PressureParts, RuntimeParts,
    SourceParts, StateParts, VolumeParts, WorkerParts,
};
use windlass_actors::SourceSnapshot;
use windlass_client::ApiClients;
use windlass_csi::{CsiDrivers, CsiObjects};
use windlass_dra::{ClaimOwners, DraDrivers};
use windlass_eviction::EvictionSettings;
use windlass_fake_api::{FakeApiServer, User};
use windlass_image_gc::ImageGcPolicy;
use windlass_mailboxes::SimClock;
use windlass_metrics::Metrics;
use windlass_node::{Machine, NodeStatusSettings};
use windlass_node_rules::admission::{AdmissionPolicy, SysctlAllowList};
use windlass_node_rules::node_object::{MachineFacts, NodeSettings, ResourceSettings};
use windlass_node_rules::resize::ResizePolicy;
use windlass_objects::{ApiCsiObjects, KeptObjects};
use windlass_oom_watcher::{KernelLog, OomSource};
use windlass_pod_inputs::node_facts::NodeFacts;
use windlass_pod_inputs::object_polling::ChangeDetection;
use windlass_pod_inputs::paths::NodePaths;
use windlass_runtime::files::MemoryFiles;
use windlass_runtime::{CgroupSettings, RuntimeOptions};
use windlass_status::PodStatusEntry;
use windlass_store::{
    AdmittedPod, AdmittedPods, BackoffFile, EvictionFile, ImageUseFile, PodResourceFiles,
    ProbeResultFile, ProbeResultTables, Store,
};
use windlass_types::corev1::Node;
use windlass_types::{Clock, Pod, PodExt, PodOp, PodSource, SharedPod, Timestamp};
use windlass_volumes::MemoryVolumes;

use crate::fake_checks::FakeChecks;
use crate::fake_devices::{FakeDevices, ResourcePolicies};
use crate::fake_disk::FakeDisk;
use crate::fake_image_disk::FakeImageDisk;
use crate::fake_pressure::FakePressure;
use crate::fake_runtime::FakeRuntime;
use crate::fake_state_disk::FakeStateDisk;
use clock::NodeClock;
pub(crate) use fence::Fence;
pub use fence::KillMoment;
use fenced_api::FencedApi;
use run_disk::{RunDisk, RunFiles};

/// Start of simulated time: 2026-01-01T00:00:00Z.
pub const EPOCH: Timestamp = Timestamp::constant(1_767_225_600, 0);
/// Interval of predicate checks, in virtual time.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// One simulated node.
pub struct NodeSim {
    /// The fake runtime: script behaviors, inject faults, read its calls.
    pub runtime: FakeRuntime,
    /// Servers for probes and hooks.
    pub checks: FakeChecks,
    /// Files of pods.
    pub files: MemoryFiles,
    /// Volumes of pods.
    pub volumes: MemoryVolumes,
    /// Thresholds and ages of image garbage collection for the next agent start; default off.
    pub image_gc: ImageGcPolicy,
    /// Directory of the state files of image garbage collection and eviction; default none.
    pub state_dir: Option<PathBuf>,
    /// Disk of the checkpoint, the back-offs and the probe results; default none.
    pub state_disk: Option<FakeStateDisk>,
    /// Memory, disks and processes of the node.
    pub pressure: FakePressure,
    /// Thresholds and periods of eviction for the next agent start; default no thresholds.
    pub eviction: EvictionSettings,
    /// Device plugins, and the state files of the resource managers.
    pub devices: FakeDevices,
    /// Machine and policies of the resource managers for the next agent start.
    pub resources: ResourcePolicies,
    /// Logs of pods.
    pub disk: FakeDisk,
    /// CSI drivers registered at the agent; they are never called.
    pub csi_drivers: CsiDrivers,
    /// DRA drivers of the node.
    pub dra_drivers: DraDrivers,
    /// Directory of the checkpoint of resource claims; default none.
    pub claims_dir: Option<PathBuf>,
    /// Pod cgroups for the next agent start; default none.
    pub cgroups: Option<CgroupSettings>,
    /// Facts about the node for the next agent start.
    pub facts: NodeFacts,
    /// Facts of the host for the next agent start.
    pub machine: MachineFacts,
    /// The API server of [`simulate_cluster`].
    pub api: FakeApiServer,
    /// Metrics of all agent runs.
    pub metrics: Metrics,
    /// Random numbers of the scenario.
    pub dice: SmallRng,
    /// Checkpoint of admitted pods for the next agent start, without [`Self::admitted_pods`].
    pub checkpoint: Vec<SharedPod>,
    /// Directory of the checkpoint of admitted pods; default none.
    pub admitted_pods: Option<PathBuf>,
    /// Directory of the kept objects, as with `--start-pods-offline`; default none.
    pub kept_objects: Option<PathBuf>,
    /// Persisted probe results for the next agent start; a kill sets it.
    pub probe_results: ProbeResultTables,
    /// Warning about `resolv.conf` at the next agent start.
    pub resolv_conf_warning: Option<String>,
    /// Change detection of ConfigMaps and Secrets for the next agent start.
    pub change_detection: ChangeDetection,
    in_cluster: bool,
    clock: Arc<NodeClock>,
    began: Instant,
    desired: Vec<SharedPod>,
    manifests_silent: bool,
    agent: Option<Box<AgentInstance>>,
    kernel_log: Option<mpsc::Sender<Vec<u8>>>,
    kernel_records: u64,
    notes: Rc<RefCell<Vec<(Timestamp, String)>>>,
}

/// Maximum number of messages of the kernel that the agent has not read.
const KERNEL_RECORDS: usize = 16;
/// Name of the simulated node.
const NODE: &str = "sim";

/// Settings of the simulated node, with capacity for every scenario.
fn node_settings() -> NodeSettings {
    NodeSettings {
        name: NODE.into(),
        hostname: NODE.into(),
        ips: vec![[10, 0, 0, 1].into()],
        kubelet_version: KUBERNETES_VERSION.into(),
        kubelet_port: 10250,
        max_images: Some(50),
        resources: ResourceSettings {
            max_pods: 2000,
            local_storage: true,
            ..ResourceSettings::default()
        },
        ..NodeSettings::default()
    }
}

#[expect(clippy::expect_used, reason = "a test requires the directory")]
fn admitted_pods(store: Store) -> StateParts {
    let (resource_files, allocated) = PodResourceFiles::open(&store).expect("state files");
    let (admitted, restored) = AdmittedPods::open(store).expect("a state file");
    StateParts {
        admitted: Some(admitted),
        restored,
        resource_files: Some(resource_files),
        allocated,
        ..StateParts::default()
    }
}

#[expect(clippy::expect_used, reason = "a test requires the directory")]
fn kept_objects(dir: &Path) -> KeptObjects {
    let store = Store::open(dir).expect("a directory");
    KeptObjects::open(store, NODE, None).expect("a key")
}

#[expect(clippy::expect_used, reason = "a test requires the directory")]
fn claim_store(dir: &std::path::PathBuf) -> Store {
    Store::open(dir).expect("a directory")
}

#[expect(clippy::expect_used, reason = "a test requires the directory")]
fn state_parts(dir: &Path) -> StateParts {
    let store = Store::open(dir).expect("a directory");
    StateParts {
        image_uses: Some(ImageUseFile::open(store.clone()).expect("a state file")),
        evictions: Some(EvictionFile::open(store).expect("a state file")),
        ..StateParts::default()
    }
}

fn machine() -> MachineFacts {
    MachineFacts {
        boot_id: "boot".into(),
        operating_system: "linux".into(),
        architecture: "amd64".into(),
        cpus: 1000,
        memory: 1 << 42,
        storage: 1 << 42,
        ..MachineFacts::default()
    }
}

/// One agent run.
struct AgentInstance {
    agent: Agent,
    fence: Fence,
    kill: Option<oneshot::Sender<()>>,
    gone: oneshot::Receiver<()>,
}

impl fmt::Debug for NodeSim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeSim")
            .field("at", &self.began.elapsed())
            .finish_non_exhaustive()
    }
}

/// Runs a scenario on a virtual clock with a started agent.
///
/// # Panics
/// If the scenario panics or no tokio runtime can be created.
pub fn simulate<R>(seed: u64, scenario: impl AsyncFnOnce(&mut NodeSim) -> R) -> R {
    run(seed, false, async |sim| {
        Box::pin(sim.start_agent()).await;
        scenario(sim).await
    })
}

/// Runs a scenario on a virtual clock with the node `sim` of a cluster. The scenario starts the
/// agent.
///
/// # Panics
/// If the scenario panics or no tokio runtime can be created.
pub fn simulate_cluster<R>(seed: u64, scenario: impl AsyncFnOnce(&mut NodeSim) -> R) -> R {
    run(seed, true, scenario)
}

fn run<R>(seed: u64, in_cluster: bool, scenario: impl AsyncFnOnce(&mut NodeSim) -> R) -> R {
    #[expect(clippy::expect_used, reason = "a test requires a runtime")]
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a tokio runtime");
    let local = LocalSet::new();
    local.block_on(&tokio, async {
        let mut sim = NodeSim::new(seed, in_cluster);
        scenario(&mut sim).await
    })
}

impl NodeSim {
    #[expect(clippy::expect_used, reason = "constants that are in range")]
    fn new(seed: u64, in_cluster: bool) -> Self {
        let time = SimClock::starting_at(EPOCH);
        let clock = Arc::new(NodeClock::following(time));
        let files = MemoryFiles::new(NodePaths::default());
        let runtime = FakeRuntime::new(clock.clone(), seed);
        runtime.create_logs_in(files.clone());
        let volumes = files.volumes();
        let pods = runtime.clone();
        volumes.watch_pods(move |uid| pods.is_pod_running(uid));
        let pressure = FakePressure::new(runtime.clone(), clock.clone());
        Self {
            runtime,
            volumes,
            image_gc: ImageGcPolicy {
                high_threshold_percent: 100,
                ..ImageGcPolicy::default()
            },
            state_dir: None,
            state_disk: None,
            pressure,
            eviction: EvictionSettings::default(),
            devices: FakeDevices::default(),
            resources: ResourcePolicies::default(),
            disk: FakeDisk::default(),
            csi_drivers: CsiDrivers::default(),
            dra_drivers: DraDrivers::default(),
            claims_dir: None,
            checks: FakeChecks::default(),
            files,
            cgroups: None,
            facts: NodeFacts {
                node_name: NODE.into(),
                pod_certificates: true,
                ..NodeFacts::default()
            },
            machine: machine(),
            metrics: Metrics::new().expect("families have distinct names"),
            dice: SmallRng::seed_from_u64(seed),
            api: FakeApiServer::with_clock(Arc::new(time)),
            checkpoint: Vec::new(),
            admitted_pods: None,
            kept_objects: None,
            probe_results: ProbeResultTables::new(),
            resolv_conf_warning: None,
            change_detection: ChangeDetection::Watch,
            in_cluster,
            clock,
            began: Instant::now(),
            desired: Vec::new(),
            manifests_silent: false,
            agent: None,
            kernel_log: None,
            kernel_records: 0,
            notes: Rc::default(),
        }
    }

    /// Starts the agent unless it is running.
    pub async fn start_agent(&mut self) {
        if self.agent.is_some() {
            return;
        }
        self.note("agent started");
        let mut volumes = self.volumes.new_agent_run();
        let fence = Fence::new(self.runtime.clone(), volumes.clone());
        let crossed = fence.clone();
        volumes.on_half_step(move || {
            crossed.enter();
        });
        let settings = node_settings();
        let machine = self.machine.clone();
        let initial_node = node_before_registration(&settings, &machine, self.clock.now());
        let clients = ApiClients::in_process(FencedApi {
            server: self.api.service(User::node(NODE)),
            fence: fence.clone(),
        });
        let kept = self.kept_objects.as_deref().map(kept_objects);
        let csi: Arc<dyn CsiObjects> = Arc::new(ApiCsiObjects::new(&clients, self.clock.clone()));
        let cluster = self.in_cluster.then(|| ClusterParts {
            csi: match &kept {
                Some(kept) => kept.csi_objects(csi, self.clock.clone()),
                None => csi,
            },
            clients,
            status: NodeStatusSettings {
                node: Arc::new(settings),
                register: true,
                reset_extended_resources: true,
                update_frequency: Duration::from_secs(10),
                report_frequency: Duration::from_secs(300),
            },
            machine: Machine::Fixed(machine),
            lease_seconds: 40,
            certificates: None,
        });
        let state = self.state_parts(&fence);
        let (kernel_log, records) = mpsc::channel(KERNEL_RECORDS);
        self.kernel_log = Some(kernel_log);
        let oom_source = OomSource {
            log: KernelLog::Records(records),
            cgroups: None,
        };
        // boxed to keep the futures of scenarios small
        let parts = Box::new(AgentParts {
            clock: self.clock.clone(),
            metrics: self.metrics.clone(),
            spans: None,
            sources: SourceParts {
                node_name: NODE.into(),
                api: cluster.is_some(),
                fed: BTreeSet::from([PodSource::File]),
                ..SourceParts::default()
            },
            cluster,
            node: self.node_parts(initial_node),
            objects: ObjectParts {
                change_detection: self.change_detection,
                credential_dirs: None,
                kept,
            },
            volumes: VolumeParts {
                plugins: Arc::new(volumes),
                csi_drivers: self.csi_drivers.clone(),
                registry: None,
            },
            container_manager: ContainerManagerParts {
                managers: self.resources.managers(&self.devices),
                files: Some(Arc::new(RunFiles {
                    devices: self.devices.clone(),
                    fence: fence.clone(),
                })),
                plugins: DevicePluginParts::Simulated(self.devices.new_agent_run()),
            },
            dra: DraParts {
                drivers: self.dra_drivers.clone(),
                store: self.claims_dir.as_ref().map(claim_store),
                extended: true,
                owners: ClaimOwners::default(),
                health: true,
                health_messages: true,
            },
            runtime: RuntimeParts {
                runtime: Arc::new(fence.clone()),
                images: Arc::new(fence.clone()),
                checks: Arc::new(self.checks.clone()),
                files: Arc::new(self.files.clone()),
                cgroups: self.cgroups.clone(),
                credentials: None,
                options: RuntimeOptions::default(),
                log_rotation: None,
            },
            pressure: self.pressure_parts(&fence, oom_source),
            workers: WorkerParts {
                sync_frequency: Duration::from_secs(60),
                start_concurrency: 4,
                orphan_grace: wiring::ORPHAN_GRACE,
            },
            state,
        });
        let actors = LocalSet::new();
        let agent = actors.run_until(async { wiring::spawn(*parts) }).await;
        let (kill, killed) = oneshot::channel::<()>();
        let (ended, gone) = oneshot::channel();
        tokio::task::spawn_local(async move {
            tokio::select! {
                biased;
                _ = killed => {}
                () = actors => {}
            }
            // the actors are dropped
            let _ = ended.send(());
        });
        self.agent = Some(Box::new(AgentInstance {
            agent,
            fence,
            kill: Some(kill),
            gone,
        }));
        self.deliver().await;
    }

    /// State files and what they have.
    #[expect(clippy::expect_used, reason = "a simulated disk can be read")]
    fn state_parts(&mut self, fence: &Fence) -> StateParts {
        if let Some(disk) = &self.state_disk {
            let disk = RunDisk {
                disk: disk.clone(),
                fence: fence.clone(),
            };
            let store = Store::on_disk("/state", Arc::new(disk));
            let (file, results) = ProbeResultFile::open(store.clone()).expect("a file");
            return StateParts {
                probe_result_file: Some(file),
                probe_results: results,
                backoff: Some(BackoffFile::open(store.clone()).expect("a file")),
                ..admitted_pods(store)
            };
        }
        let files = self.state_dir.as_deref().map(state_parts);
        let files = files.unwrap_or_default();
        let admitted = match &self.admitted_pods {
            Some(dir) => admitted_pods(Store::open(dir).expect("a directory")),
            None => {
                let pods = self.checkpoint.iter().cloned();
                StateParts {
                    restored: pods.map(AdmittedPod::from).collect(),
                    ..StateParts::default()
                }
            }
        };
        StateParts {
            probe_results: std::mem::take(&mut self.probe_results),
            image_uses: files.image_uses,
            evictions: files.evictions,
            ..admitted
        }
    }

    fn node_parts(&self, initial: Node) -> NodeParts {
        NodeParts {
            facts: Arc::new(self.facts.clone()),
            initial: Arc::new(initial),
            admission_policy: Arc::new(AdmissionPolicy {
                sysctls: SysctlAllowList::default(),
                app_armor: false,
                pod_level_resources: true,
                declared_features: None,
                resize: ResizePolicy::default(),
            }),
            host_ips: Vec::new(),
            pod_cidr: String::new(),
            resolv_conf_warning: self.resolv_conf_warning.clone(),
            swap_warning: None,
            shutdown: None,
        }
    }

    fn pressure_parts(&self, fence: &Fence, oom_source: OomSource) -> PressureParts {
        PressureParts {
            local_storage: LocalStorageParts {
                enforce_limits: true,
                runtime: Arc::new(fence.clone()),
                images: Arc::new(fence.clone()),
                disk: Arc::new(self.disk.clone()),
            },
            image_gc: ImageGcParts {
                policy: self.image_gc,
                file_system: Arc::new(FakeImageDisk::of_agent_run(&self.runtime, fence)),
            },
            eviction: EvictionParts {
                settings: self.eviction.clone(),
                figures: Arc::new(self.pressure.clone()),
                triggers: Arc::new(self.pressure.clone()),
                reclaimer: Some(Arc::new(self.pressure.clone())),
                disk: Some(Arc::new(self.pressure.clone())),
            },
            oom_source: Some(oom_source),
        }
    }

    /// Kills the agent as `kill -9`.
    pub async fn kill_agent(&mut self) {
        if let Some(mut instance) = self.agent.take() {
            self.note("agent killed");
            self.kernel_log = None;
            instance.fence.raise();
            self.probe_results = instance.agent.probe_results().all();
            instance.agent.shutdown.token().cancel();
            drop(instance.kill.take());
            let _ = instance.gone.await;
        }
    }

    /// Kills the running agent at its n-th call that leaves it; 1 is the next one.
    /// [`Self::agent_killed`] returns then.
    pub fn kill_agent_at(&self, crossings: u64, moment: KillMoment) {
        if let Some(instance) = &self.agent {
            instance.fence.arm(crossings, moment);
        }
    }

    /// Cancels [`Self::kill_agent_at`] unless it has taken effect.
    pub fn cancel_kill(&self) {
        if let Some(instance) = &self.agent {
            instance.fence.disarm();
        }
    }

    /// Waits until [`Self::kill_agent_at`] has taken effect; call [`Self::kill_agent`] then.
    pub async fn agent_killed(&self) {
        match &self.agent {
            Some(instance) => instance.fence.killed().await,
            None => std::future::pending().await,
        }
    }

    /// The kernel logs a message. Without an agent it is lost.
    pub async fn log_of_kernel(&mut self, message: &str) {
        self.note(format!("kernel: {message}"));
        self.kernel_records += 1;
        let at = self.began.elapsed().as_micros();
        let record = format!("6,{},{at},-;{message}\n", self.kernel_records);
        if let Some(log) = &self.kernel_log {
            // fails if the agent was killed
            let _ = log.send(record.into_bytes()).await;
        }
    }

    /// Replaces the desired pods, like a scan of the manifest directory.
    pub async fn desire(&mut self, pods: impl IntoIterator<Item = Pod>) {
        self.desired = pods.into_iter().map(Arc::new).collect();
        let names: Vec<_> = self
            .desired
            .iter()
            .map(|pod| pod.uid().to_string())
            .collect();
        self.note(format!("desired: {}", names.join(" ")));
        self.deliver().await;
    }

    /// While silent, the file source delivers nothing, so that it is not ready.
    pub fn silence_manifests(&mut self, silent: bool) {
        self.manifests_silent = silent;
    }

    async fn deliver(&self) {
        if self.manifests_silent {
            return;
        }
        if let Some(instance) = &self.agent {
            let snapshot = SourceSnapshot {
                source: PodSource::File,
                op: PodOp::Set,
                pods: self.desired.clone(),
                rejected: Vec::new(),
            };
            // fails if the agent is being killed
            let _ = instance.agent.sources.send(snapshot).await;
        }
    }

    /// Lets virtual time pass.
    pub async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Waits for a predicate.
    ///
    /// # Panics
    /// If it does not become true within `limit`.
    pub async fn until(&self, what: &str, limit: Duration, mut is_true: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + limit;
        while !is_true(self) {
            assert!(
                Instant::now() < deadline,
                "not within {limit:?}: {what}\n{}\nboard:\n{}",
                self.log()
                    .iter()
                    .rev()
                    .take(40)
                    .rev()
                    .cloned()
                    .collect::<Vec<_>>()
                    .join("\n"),
                self.board_lines().join("\n"),
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns the handles of the running agent.
    pub fn agent(&self) -> Option<&Agent> {
        self.agent.as_ref().map(|instance| &instance.agent)
    }

    /// The status_store's entry of a pod in namespace `default`.
    pub fn view(&self, name: &str) -> Option<PodStatusEntry> {
        self.agent()?
            .status_store
            .find("default", name)
            .into_iter()
            .next_back()
    }

    /// Returns the phase of a pod, or an empty text.
    pub fn phase(&self, name: &str) -> String {
        self.view(name)
            .and_then(|view| view.status.phase.clone())
            .unwrap_or_default()
    }

    /// Returns the reason of the blocker of a pod, or an empty text.
    pub fn blocker(&self, name: &str) -> &'static str {
        self.view(name)
            .and_then(|view| view.blocker)
            .map_or("", |blocker| blocker.reason.as_str())
    }

    /// Steps the wall clock of the node; the API server and virtual time are not affected.
    pub fn step_clock(&self, seconds: i64) {
        self.note(format!("clock stepped by {seconds} s"));
        self.clock.step(seconds);
    }

    /// Returns the wall clock time of the node.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Adds a line to the log.
    pub fn note(&self, text: impl Into<String>) {
        self.notes
            .borrow_mut()
            .push((self.clock.now(), text.into()));
    }

    /// Returns the notes of the scenario and the runtime calls, in order.
    pub fn log(&self) -> Vec<String> {
        let mut lines: Vec<_> = self.notes.borrow().clone();
        let reads = [
            "status",
            "version",
            "list_",
            "container_status",
            "podsandbox_status",
        ];
        lines.extend(
            self.runtime
                .calls()
                .iter()
                .filter(|call| !reads.iter().any(|r| call.operation.as_str().starts_with(r)))
                .map(|call| (call.at, call.to_string())),
        );
        lines.sort_by_key(|(at, _)| *at);
        let epoch = EPOCH.as_nanosecond();
        lines
            .into_iter()
            .map(|(at, text)| {
                let milliseconds = (at.as_nanosecond() - epoch) / 1_000_000;
                format!(
                    "{:>9}.{:03} {text}",
                    milliseconds / 1000,
                    milliseconds % 1000
                )
            })
            .collect()
    }

    fn board_lines(&self) -> Vec<String> {
        let Some(agent) = self.agent() else {
            return vec!["no agent".into()];
        };
        let line = |view: PodStatusEntry| {
            let events: Vec<_> = view
                .events
                .iter()
                .map(|e| format!("\n    {}x {} {}", e.count, e.reason, e.message))
                .collect();
            format!(
                "{} {} {} {}{}",
                view.pod.uid(),
                view.worker_state,
                windlass_pod_status::status::status_line(&view.status),
                view.blocker
                    .map(|blocker| blocker.to_string())
                    .unwrap_or_default(),
                events.concat()
            )
        };
        agent
            .status_store
            .snapshot()
            .into_iter()
            .map(line)
            .collect()
    }
}
