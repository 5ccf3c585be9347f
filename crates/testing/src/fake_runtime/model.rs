//! The runtime as a pure state machine of sandboxes and containers.
//!
//! Every step takes the current time and leaves events and timers in
//! `outbox` and `timers` for the driver around it. Responses and errors match containerd.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use windlass_cri::CriCode;
use windlass_types::cri::{
    ContainerConfig, ContainerDetail, ContainerSecurity, ContainerSummary, ListFilter,
    NamespaceMode, RuntimeEvent, RuntimeEventKind, RuntimeHandler, SandboxConfig, SandboxDetail,
    SandboxSummary,
};
use windlass_types::{
    ContainerId, ContainerSizes, ContainerState, ObservedContainer, ObservedUser, PodUid,
    SandboxId, Timestamp, names,
};

use super::behavior::Behavior;
use super::change::{RuntimeChange, RuntimeChangeKind};
use super::identity::{
    no_container, no_sandbox, sandbox_name, sandbox_not_running, sandbox_subject,
};
use super::images::ImageStore;
use super::logs::Logs;
use super::resize::ReportedResources;

mod cut_off;

use cut_off::CUT_OFF;

/// Error of a call.
pub(super) type CallError = (CriCode, String);

/// Exit code of a failed start.
const START_FAILED: i32 = 128;
/// First assigned address; the others follow.
const FIRST_IP: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 2);

#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) images: ImageStore,
    pub(super) sandboxes: BTreeMap<SandboxId, Sandbox>,
    pub(super) containers: BTreeMap<ContainerId, Container>,
    /// Reserved name (pod or container with attempt) to its ID.
    reserved: BTreeMap<String, String>,
    /// Script key to the behavior of each start.
    pub(super) scripts: BTreeMap<String, Vec<Behavior>>,
    /// Successful starts by pod and container name.
    pub(super) starts: BTreeMap<(PodUid, String), u32>,
    /// Bytes of writable layers by pod and container name.
    pub(super) layers: BTreeMap<(PodUid, String), u64>,
    pub(super) reported_resources: ReportedResources,
    pub(super) network_error: Option<String>,
    pub(super) handlers: Vec<RuntimeHandler>,
    pub(super) strict_groups: Option<bool>,
    pub(super) duplicates: Vec<String>,
    pub(super) unready_starts: Vec<String>,
    pub(super) outbox: Vec<RuntimeEvent>,
    pub(super) timers: Vec<Duration>,
    /// Changes for the observer.
    pub(super) changes: Vec<RuntimeChange>,
    pub(super) logs: Logs,
    /// A stop ends with its call, as containerd's.
    pub(super) cuts_off_stops: bool,
    /// A cut-off start loses its task, as containerd's.
    pub(super) loses_tasks: bool,
    /// Exit times of containers ([`Container::end`]), including outdated entries.
    ends: BTreeSet<(Timestamp, ContainerId)>,
    seed: u64,
    made: u64,
    addresses: u32,
}

#[derive(Debug)]
pub(super) struct Sandbox {
    pub(super) config: SandboxConfig,
    pub(super) ready: bool,
    pub(super) created_at: Timestamp,
    pub(super) ip: Option<IpAddr>,
}

#[derive(Debug)]
pub(super) struct Container {
    pub(super) sandbox: SandboxId,
    pub(super) uid: PodUid,
    pub(super) config: ContainerConfig,
    /// `namespace/pod/name#attempt`.
    pub(super) subject: String,
    pub(super) reserved_name: String,
    pub(super) image: String,
    pub(super) image_ref: String,
    pub(super) log_path: String,
    pub(super) state: ContainerState,
    pub(super) behavior: Behavior,
    /// Scheduled exit.
    pub(super) end: Option<End>,
    /// Its start was cut off and is being cleaned up: it cannot be started or removed.
    starting: bool,
    /// Its start was cut off and has lost the task: it cannot be removed.
    task_lost: bool,
    pub(super) created_at: Timestamp,
    pub(super) started_at: Option<Timestamp>,
    pub(super) finished_at: Option<Timestamp>,
    pub(super) exit_code: i32,
    pub(super) reason: String,
    pub(super) message: String,
}

#[derive(Clone, Debug)]
pub(super) struct End {
    pub(super) at: Timestamp,
    pub(super) exit_code: i32,
    pub(super) oom: bool,
}

impl Container {
    pub(super) fn is_live(&self) -> bool {
        self.state.may_run()
    }
}

impl Model {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            ..Self::default()
        }
    }

    /// Returns an ID of 64 hex digits in no particular order.
    fn new_id(&mut self) -> String {
        self.made += 1;
        let mut state = self.seed ^ self.made.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (0..4)
            .map(|_| format!("{:016x}", splitmix64(&mut state)))
            .collect()
    }

    // ---- names reserved while an object exists or is being created ----

    pub(super) fn reserve(&mut self, kind: &str, name: &str) -> Result<String, CallError> {
        if let Some(owner) = self.reserved.get(name) {
            let message = format!(
                "failed to reserve {kind} name \"{name}\": name \"{name}\" is reserved for \
                 \"{owner}\""
            );
            return Err((CriCode::Other, message));
        }
        let id = self.new_id();
        self.reserved.insert(name.to_owned(), id.clone());
        Ok(id)
    }

    pub(super) fn unreserve(&mut self, name: &str) {
        self.reserved.remove(name);
    }

    /// Whether the object that reserved a name exists.
    pub(super) fn is_made(&self, name: &str) -> bool {
        self.reserved.get(name).is_some_and(|id| {
            self.sandboxes.contains_key(&SandboxId::from(id.as_str()))
                || self
                    .containers
                    .contains_key(&ContainerId::from(id.as_str()))
        })
    }

    // ---- time ----

    /// Applies all exits due by `now`, in order.
    pub(super) fn settle(&mut self, now: Timestamp) {
        while self.ends.first().is_some_and(|(at, _)| *at <= now) {
            let Some((at, id)) = self.ends.pop_first() else {
                return;
            };
            let container = self.containers.get_mut(&id);
            if let Some(end) = container.and_then(|c| c.end.take_if(|end| end.at == at)) {
                self.finish(&id, end);
            }
        }
    }

    fn finish(&mut self, id: &ContainerId, end: End) {
        let Some(container) = self.containers.get_mut(id) else {
            return;
        };
        if container.starting {
            if end.exit_code != START_FAILED {
                // a kill by others has no effect
                return;
            }
            container.end = None;
            container.starting = false;
            container.state = ContainerState::Exited;
            container.finished_at = Some(end.at);
            container.exit_code = START_FAILED;
            container.reason = "StartError".to_owned();
            container.message = CUT_OFF.to_owned();
            let uid = container.uid.clone();
            return self.emit(RuntimeEventKind::Stopped, id.as_str(), &uid);
        }
        container.end = None;
        if !container.is_live() {
            return;
        }
        container.state = ContainerState::Exited;
        container.finished_at = Some(end.at);
        container.exit_code = end.exit_code;
        container.message.clone_from(&container.behavior.message);
        container.reason = match (end.oom, end.exit_code) {
            (true, _) => "OOMKilled",
            (false, 0) => "Completed",
            (false, _) => "Error",
        }
        .to_owned();
        let uid = container.uid.clone();
        let kind = RuntimeChangeKind::Ended(end.exit_code);
        self.changes
            .push(RuntimeChange::of_container(kind, id.as_str(), container));
        if end.oom {
            self.emit(RuntimeEventKind::Oom, id.as_str(), &uid);
        }
        self.emit(RuntimeEventKind::Stopped, id.as_str(), &uid);
    }

    fn emit(&mut self, kind: RuntimeEventKind, id: &str, uid: &PodUid) {
        let uid = Some(uid.clone()).filter(|uid| !uid.as_str().is_empty());
        self.outbox.push(RuntimeEvent {
            kind,
            id: id.to_owned(),
            uid,
        });
    }

    // ---- sandboxes ----

    pub(super) fn make_sandbox(
        &mut self,
        id: &SandboxId,
        config: SandboxConfig,
        now: Timestamp,
    ) -> Result<(), CallError> {
        if let Some(error) = &self.network_error
            && !is_host_network(&config)
        {
            let message = format!("failed to setup network for sandbox \"{id}\": {error}");
            return Err((CriCode::Other, message));
        }
        let ip = (!is_host_network(&config)).then(|| {
            let ip = Ipv4Addr::from(u32::from(FIRST_IP).wrapping_add(self.addresses));
            self.addresses += 1;
            IpAddr::V4(ip)
        });
        let uid = config.uid.clone();
        let sandbox = Sandbox {
            config,
            ready: true,
            created_at: now,
            ip,
        };
        self.sandbox_changed(RuntimeChangeKind::SandboxStarted, id, &sandbox.config);
        self.sandboxes.insert(id.clone(), sandbox);
        self.emit(RuntimeEventKind::Created, id.as_str(), &uid);
        self.emit(RuntimeEventKind::Started, id.as_str(), &uid);
        Ok(())
    }

    /// Kills the containers of a sandbox and removes its network.
    pub(super) fn stop_sandbox(&mut self, id: &SandboxId, now: Timestamp) -> Result<(), CallError> {
        let sandbox = self.sandboxes.get_mut(id).ok_or_else(|| no_sandbox(id))?;
        let was_ready = std::mem::replace(&mut sandbox.ready, false);
        sandbox.ip = None;
        let uid = sandbox.config.uid.clone();
        if was_ready {
            let config = sandbox.config.clone();
            self.sandbox_changed(RuntimeChangeKind::SandboxEnded, id, &config);
        }
        for container in self.containers_in(id) {
            self.finish(
                &container,
                End {
                    at: now,
                    exit_code: 137,
                    oom: false,
                },
            );
        }
        if was_ready {
            self.emit(RuntimeEventKind::Stopped, id.as_str(), &uid);
        }
        Ok(())
    }

    fn sandbox_changed(&mut self, kind: RuntimeChangeKind, id: &SandboxId, config: &SandboxConfig) {
        self.changes.push(RuntimeChange {
            kind,
            id: id.to_string(),
            uid: config.uid.clone(),
            subject: sandbox_subject(config),
            devices: Vec::new(),
        });
    }

    /// A caller requests the stop of a container.
    pub(super) fn stop_requested(&mut self, id: &ContainerId, grace: Duration) {
        if let Some(container) = self.containers.get(id).filter(|c| c.is_live()) {
            let kind = RuntimeChangeKind::StopRequested(grace);
            let change = RuntimeChange::of_container(kind, id.as_str(), container);
            self.changes.push(change);
        }
    }

    pub(super) fn remove_sandbox(
        &mut self,
        id: &SandboxId,
        now: Timestamp,
    ) -> Result<(), CallError> {
        self.stop_sandbox(id, now)?;
        for container in self.containers_in(id) {
            self.remove_container(&container, now)?;
        }
        if let Some(sandbox) = self.sandboxes.remove(id) {
            self.unreserve(&sandbox_name(&sandbox.config));
            self.emit(RuntimeEventKind::Deleted, id.as_str(), &sandbox.config.uid);
        }
        Ok(())
    }

    fn containers_in(&self, id: &SandboxId) -> Vec<ContainerId> {
        self.containers
            .iter()
            .filter(|(_, container)| container.sandbox == *id)
            .map(|(id, _)| id.clone())
            .collect()
    }

    // ---- containers ----

    pub(super) fn make_container(
        &mut self,
        id: &ContainerId,
        sandbox_id: &SandboxId,
        config: ContainerConfig,
        reserved_name: &str,
        now: Timestamp,
    ) -> Result<(), CallError> {
        let sandbox = self
            .sandboxes
            .get(sandbox_id)
            .ok_or_else(|| no_sandbox(sandbox_id))?;
        if !sandbox.ready {
            return Err(sandbox_not_running(sandbox_id));
        }
        let image = self.images.resolve(&config.image).ok_or_else(|| {
            let message = format!("failed to resolve image \"{}\": not found", config.image);
            (CriCode::NotFound, message)
        })?;
        let mounted = config
            .mounts
            .iter()
            .filter_map(|mount| mount.image.as_ref());
        for image in mounted {
            if self.images.resolve(&image.image).is_none() {
                let message = format!("failed to mount image \"{}\": not found", image.image);
                return Err((CriCode::NotFound, message));
            }
        }
        let pod = sandbox_subject(&sandbox.config);
        let behavior = self.behavior(&sandbox.config, &config);
        if let Some(error) = &behavior.create_error {
            return Err((CriCode::Other, error.clone()));
        }
        let uid = sandbox.config.uid.clone();
        let container = Container {
            sandbox: sandbox_id.clone(),
            uid: uid.clone(),
            subject: format!("{pod}/{}#{}", config.name, config.attempt),
            reserved_name: reserved_name.to_owned(),
            image: image
                .repo_tags
                .first()
                .cloned()
                .unwrap_or_else(|| image.id.clone()),
            image_ref: image
                .repo_digests
                .first()
                .cloned()
                .unwrap_or_else(|| image.id.clone()),
            log_path: match config.log_path.as_str() {
                "" => String::new(),
                path => format!("{}/{path}", sandbox.config.log_directory),
            },
            config,
            state: ContainerState::Created,
            behavior,
            end: None,
            starting: false,
            task_lost: false,
            created_at: now,
            started_at: None,
            finished_at: None,
            exit_code: 0,
            reason: String::new(),
            message: String::new(),
        };
        self.containers.insert(id.clone(), container);
        self.emit(RuntimeEventKind::Created, id.as_str(), &uid);
        Ok(())
    }

    /// Returns the script for the next start of a container: by full name, name, then image.
    fn behavior(&self, sandbox: &SandboxConfig, config: &ContainerConfig) -> Behavior {
        let full_name = format!("{}/{}", sandbox_subject(sandbox), config.name);
        let keys = [
            &full_name,
            &config.name,
            &config.user_specified_image,
            &config.image,
        ];
        let Some(script) = keys.into_iter().find_map(|key| self.scripts.get(key)) else {
            return Behavior::default();
        };
        let key = (sandbox.uid.clone(), config.name.clone());
        let start = self.starts.get(&key).copied().unwrap_or(0) as usize;
        script
            .get(start)
            .or(script.last())
            .cloned()
            .unwrap_or_default()
    }

    pub(super) fn start_container(
        &mut self,
        id: &ContainerId,
        now: Timestamp,
    ) -> Result<(), CallError> {
        let container = self.containers.get(id).ok_or_else(|| no_container(id))?;
        if container.starting {
            return Err((
                CriCode::Other,
                "container is already in starting state".to_owned(),
            ));
        }
        if container.state != ContainerState::Created {
            let message = format!("container \"{id}\" is in {:?} state", container.state);
            return Err((CriCode::Other, message));
        }
        let sandbox = self.sandboxes.get(&container.sandbox);
        if !sandbox.is_some_and(|sandbox| sandbox.ready) {
            let line = format!("{} in sandbox {}", container.subject, container.sandbox);
            let error = sandbox_not_running(&container.sandbox);
            self.unready_starts.push(line);
            return Err(error);
        }
        // the script may have changed since the creation
        let behavior = match sandbox {
            Some(sandbox) => self.behavior(&sandbox.config, &container.config),
            None => Behavior::default(),
        };
        let (uid, name) = (container.uid.clone(), container.config.name.clone());
        let twin = self.containers.iter().find(|(other, c)| {
            *other != id && c.is_live() && c.uid == uid && c.config.name == name
        });
        if let Some((other, twin)) = twin {
            let line = format!(
                "{} ({id}) started while {} ({other}) was live",
                container.subject, twin.subject
            );
            self.duplicates.push(line);
        }

        let Some(container) = self.containers.get_mut(id) else {
            return Err(no_container(id));
        };
        self.logs.open(&container.log_path);
        if let Some(error) = behavior.start_error.clone() {
            container.state = ContainerState::Exited;
            container.finished_at = Some(now);
            container.exit_code = START_FAILED;
            container.reason = "StartError".to_owned();
            container.message.clone_from(&error);
            self.emit(RuntimeEventKind::Stopped, id.as_str(), &uid);
            return Err((CriCode::Other, error));
        }
        container.state = ContainerState::Running;
        container.started_at = Some(now);
        container.end = behavior.runs_for.map(|runs_for| End {
            at: after(now, runs_for),
            exit_code: if behavior.oom_killed {
                137
            } else {
                behavior.exit_code
            },
            oom: behavior.oom_killed,
        });
        self.timers.extend(behavior.runs_for);
        let end = container.end.as_ref();
        self.ends.extend(end.map(|end| (end.at, id.clone())));
        container.behavior = behavior;
        let kind = RuntimeChangeKind::Started;
        let change = RuntimeChange::of_container(kind, id.as_str(), container);
        self.changes.push(change);
        *self.starts.entry((uid.clone(), name)).or_default() += 1;
        self.emit(RuntimeEventKind::Started, id.as_str(), &uid);
        Ok(())
    }

    /// Sends SIGTERM. Returns whether to wait for the exit.
    pub(super) fn signal_container(
        &mut self,
        id: &ContainerId,
        now: Timestamp,
    ) -> Result<bool, CallError> {
        let container = self
            .containers
            .get_mut(id)
            .ok_or_else(|| no_container(id))?;
        if !container.is_live() {
            return Ok(false);
        }
        if !container.behavior.ignores_sigterm {
            let at = after(now, container.behavior.stops_after);
            if container.end.as_ref().is_none_or(|end| at < end.at) {
                let exit_code = container.behavior.sigterm_exit_code;
                container.end = Some(End {
                    at,
                    exit_code,
                    oom: false,
                });
                self.ends.insert((at, id.clone()));
                self.timers.push(container.behavior.stops_after);
            }
        }
        Ok(true)
    }

    /// Terminates a running container.
    pub(super) fn end_container(
        &mut self,
        id: &ContainerId,
        exit_code: i32,
        oom: bool,
        now: Timestamp,
    ) -> Result<(), CallError> {
        if !self.containers.contains_key(id) {
            return Err(no_container(id));
        }
        self.finish(
            id,
            End {
                at: now,
                exit_code,
                oom,
            },
        );
        Ok(())
    }

    /// Removes a container, with SIGKILL if it runs.
    pub(super) fn remove_container(
        &mut self,
        id: &ContainerId,
        now: Timestamp,
    ) -> Result<(), CallError> {
        self.check_removable(id)?;
        self.end_container(id, 137, false, now)?;
        if let Some(container) = self.containers.remove(id) {
            self.unreserve(&container.reserved_name);
            let kind = RuntimeChangeKind::Removed;
            let change = RuntimeChange::of_container(kind, id.as_str(), &container);
            self.changes.push(change);
            self.emit(RuntimeEventKind::Deleted, id.as_str(), &container.uid);
        }
        Ok(())
    }

    // ---- responses ----

    pub(super) fn list_sandboxes(&self, filter: &ListFilter) -> Vec<SandboxSummary> {
        self.sandboxes
            .iter()
            .filter(|(id, _)| {
                filter
                    .id
                    .as_deref()
                    .is_none_or(|wanted| wanted == id.as_str())
            })
            .filter(|(_, sandbox)| has_labels(&sandbox.config.labels, filter))
            .map(|(id, sandbox)| sandbox_summary(id, sandbox))
            .collect()
    }

    pub(super) fn sandbox_detail(&self, id: &SandboxId) -> Result<SandboxDetail, CallError> {
        let sandbox = self.sandboxes.get(id).ok_or_else(|| no_sandbox(id))?;
        Ok(SandboxDetail {
            summary: sandbox_summary(id, sandbox),
            ips: sandbox.ip.into_iter().collect(),
            host_network: is_host_network(&sandbox.config),
        })
    }

    pub(super) fn list_containers(&self, filter: &ListFilter) -> Vec<ContainerSummary> {
        self.containers
            .iter()
            .filter(|(id, _)| {
                filter
                    .id
                    .as_deref()
                    .is_none_or(|wanted| wanted == id.as_str())
            })
            .filter(|(_, c)| {
                filter
                    .sandbox
                    .as_ref()
                    .is_none_or(|wanted| *wanted == c.sandbox)
            })
            .filter(|(_, c)| has_labels(&c.config.labels, filter))
            .map(|(id, container)| ContainerSummary {
                id: id.clone(),
                sandbox_id: container.sandbox.clone(),
                uid: container
                    .config
                    .labels
                    .get(names::LABEL_POD_UID)
                    .map(|uid| PodUid::from(uid.as_str()))
                    .unwrap_or_default(),
                name: container.config.name.clone(),
                attempt: container.config.attempt,
                state: container.state,
                created_at: container.created_at,
                image_id: container.image_ref.clone(),
            })
            .collect()
    }

    /// Whether a command can run in a container.
    pub(super) fn check_exec(&self, id: &ContainerId) -> Result<(), CallError> {
        let container = self.containers.get(id).ok_or_else(|| no_container(id))?;
        if container.is_live() {
            return Ok(());
        }
        let state = match container.state {
            ContainerState::Created => "CONTAINER_CREATED",
            _ => "CONTAINER_EXITED",
        };
        let message = format!("failed to exec in container: container is in {state} state");
        Err((CriCode::Other, message))
    }

    pub(super) fn container_detail(&self, id: &ContainerId) -> Result<ContainerDetail, CallError> {
        let c = self.containers.get(id).ok_or_else(|| no_container(id))?;
        let annotation = |key| c.config.annotations.get(key).map(String::as_str);
        Ok(ContainerDetail {
            observed: ObservedContainer {
                id: id.clone(),
                name: c.config.name.clone(),
                // not part of the CRI message
                sandbox_id: SandboxId::from(""),
                state: c.state,
                created_at: c.created_at,
                started_at: c.started_at,
                finished_at: c.finished_at,
                exit_code: c.exit_code,
                reason: c.reason.clone(),
                message: c.message.clone(),
                image: c.image.clone(),
                image_id: c.image_ref.clone(),
                hash: annotation(names::ANN_CONTAINER_HASH)
                    .and_then(|text| u32::from_str_radix(text, 16).ok()),
                restart_count: annotation(names::ANN_RESTART_COUNT)
                    .and_then(|text| text.parse().ok())
                    .unwrap_or(c.config.attempt),
                log_path: c.log_path.clone(),
                user: Some(user_of(&c.config.security)),
                stop_signal: match c.config.stop_signal.as_str() {
                    "" => "SIGTERM".to_owned(),
                    signal => signal.to_owned(),
                },
                resources: self.reported_resources.report(&c.config.resources),
                created_sizes: annotation(names::ANN_SIZES).and_then(ContainerSizes::parse),
                recursive_read_only: c
                    .config
                    .mounts
                    .iter()
                    .filter(|mount| mount.recursive_read_only)
                    .map(|mount| mount.container_path.clone())
                    .collect(),
                image_mounts: c
                    .config
                    .mounts
                    .iter()
                    .filter_map(|mount| Some(mount.image.as_ref()?.image.clone()))
                    .collect(),
                oom_kills: None,
            },
            labels: c.config.labels.clone(),
            annotations: c.config.annotations.clone(),
            mounts: c.config.mounts.clone(),
        })
    }

    /// Returns `namespace/pod`, or the ID of a missing sandbox.
    pub(super) fn sandbox_subject(&self, id: &SandboxId) -> String {
        self.sandboxes.get(id).map_or_else(
            || id.to_string(),
            |sandbox| sandbox_subject(&sandbox.config),
        )
    }

    /// Returns `namespace/pod/name#attempt`, or the ID of a missing container.
    pub(super) fn container_subject(&self, id: &ContainerId) -> String {
        self.containers
            .get(id)
            .map_or_else(|| id.to_string(), |c| c.subject.clone())
    }
}

/// Returns the user of a container (images default to root). The supplemental groups include the
/// primary group, as in real runtimes.
fn user_of(security: &ContainerSecurity) -> ObservedUser {
    let gid = security.run_as_group.unwrap_or(0);
    let mut supplemental_groups = vec![gid];
    supplemental_groups.extend(&security.supplemental_groups);
    ObservedUser {
        uid: security.run_as_user.unwrap_or(0),
        gid,
        supplemental_groups,
    }
}

fn sandbox_summary(id: &SandboxId, sandbox: &Sandbox) -> SandboxSummary {
    SandboxSummary {
        id: id.clone(),
        uid: sandbox.config.uid.clone(),
        name: sandbox.config.name.clone(),
        namespace: sandbox.config.namespace.clone(),
        attempt: sandbox.config.attempt,
        ready: sandbox.ready,
        created_at: sandbox.created_at,
    }
}

fn is_host_network(config: &SandboxConfig) -> bool {
    config.security.namespaces.network == NamespaceMode::Node
}

fn has_labels(labels: &BTreeMap<String, String>, filter: &ListFilter) -> bool {
    filter
        .labels
        .iter()
        .all(|(key, value)| labels.get(key) == Some(value))
}

pub(super) fn after(now: Timestamp, wait: Duration) -> Timestamp {
    now.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
