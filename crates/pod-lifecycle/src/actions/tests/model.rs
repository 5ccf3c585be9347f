//! A model runtime that executes [`PodActions`], and the invariants of every step.

use std::collections::BTreeMap;

use windlass_types::pod::RestartPolicy;
use windlass_types::{ContainerId, ContainerProbeResult, ObservedSandbox};

use super::*;

fn is_live(c: &ObservedContainer) -> bool {
    matches!(c.state, ContainerState::Running | ContainerState::Unknown)
}

/// Invariants of any actions.
pub(super) fn assert_safe(
    pod: &Pod,
    found: &ObservedPod,
    said: &PodProbeResults,
    actions: &PodActions,
) {
    assert!(
        !actions.kill_pod || actions.containers_to_kill.is_empty(),
        "{actions}: kills twice"
    );
    assert!(
        actions.containers_to_reset.is_empty()
            || !(actions.starts_something() || actions.kill_pod)
                && actions.containers_to_kill.is_empty(),
        "{actions}: more than a reset"
    );
    assert_in_order(pod, found, said, actions);
    let starts: Vec<_> = actions
        .ephemeral_to_start
        .iter()
        .chain(&actions.init_to_start)
        .chain(&actions.containers_to_start)
        .collect();
    for start in &starts {
        for instance in found.instances(&start.name).filter(|c| is_live(c)) {
            let killed = actions.kill_pod
                || actions
                    .containers_to_kill
                    .iter()
                    .any(|k| k.id == instance.id);
            assert!(killed, "{actions}: {} would run twice", start.name);
        }
        for instance in found.instances(&start.name) {
            let removed = actions
                .containers_to_kill
                .iter()
                .any(|k| k.remove && k.id == instance.id);
            assert!(
                removed || start.restart_count != Some(instance.restart_count),
                "{actions}: the attempt of {} is taken",
                start.name
            );
        }
    }
    assert!(
        starts.is_empty() || actions.create_sandbox || actions.sandbox_id.is_some(),
        "{actions}: nowhere to start"
    );
    if !actions.containers_to_start.is_empty() && !pod.init_containers().is_empty() {
        let sandbox = actions
            .sandbox_id
            .as_ref()
            .expect("a sandbox with its inits done");
        let here = |name: &str| {
            found
                .containers
                .iter()
                .find(|c| c.name == name && c.sandbox_id == *sandbox)
        };
        let last = pod.init_containers().last().expect("not empty");
        let app_seen = pod.containers().iter().any(|c| here(&c.name).is_some());
        let last_done = here(&last.name).is_some_and(|c| match c.state {
            ContainerState::Running => is_sidecar(last),
            ContainerState::Exited => !is_sidecar(last) && c.exit_code == 0,
            _ => false,
        });
        assert!(app_seen || last_done, "{actions}: app before init is done");
    }
}

/// Containers after a sidecar have their first start after its start.
fn assert_in_order(pod: &Pod, found: &ObservedPod, said: &PodProbeResults, actions: &PodActions) {
    let Some(sandbox) = &actions.sandbox_id else {
        return;
    };
    let here = |name: &str| {
        let mut containers = found.containers.iter();
        containers.find(|c| c.name == name && c.sandbox_id == *sandbox)
    };
    let inits = pod.init_containers();
    let first_app = (!actions.containers_to_start.is_empty()).then_some(inits.len());
    let first_init = actions.init_to_start.iter().map(|start| start.index);
    for place in first_init.chain(first_app) {
        let sidecars = inits.iter().enumerate().take(place);
        for (index, sidecar) in sidecars.filter(|(_, spec)| is_sidecar(spec)) {
            // it had started before the containers after it
            let mut rest = inits.iter().skip(index + 1).chain(pod.containers());
            if rest.any(|spec| here(&spec.name).is_some()) {
                continue;
            }
            let started = here(&sidecar.name).is_some_and(|c| {
                let result = said.result(ProbeKind::Startup, &c.name, &c.id);
                c.state == ContainerState::Running
                    && (sidecar.startup_probe.is_none() || result == Some(true))
            });
            assert!(started, "{actions}: begins behind {}", sidecar.name);
        }
    }
}

/// A node with one pod.
pub(super) struct Fixture<'a> {
    pod: &'a Pod,
    found: ObservedPod,
    backoff: BackoffTable,
    probe_results: PodProbeResults,
    /// Highest restart count in the logs of each container.
    counts: BTreeMap<String, u32>,
    now: i64,
    serial: u32,
}

impl<'a> Fixture<'a> {
    pub(super) fn new(pod: &'a Pod, found: ObservedPod) -> Self {
        let mut counts = BTreeMap::new();
        for c in &found.containers {
            let count: &mut u32 = counts.entry(c.name.clone()).or_default();
            *count = c.restart_count.max(*count);
        }
        Self {
            pod,
            found,
            backoff: BackoffTable::default(),
            probe_results: PodProbeResults::default(),
            counts,
            now: 10_000,
            serial: 0,
        }
    }

    fn step(&mut self) -> PodActions {
        let actions = self.decide();
        assert_safe(self.pod, &self.found, &self.probe_results, &actions);
        self.act(&actions);
        self.now += 1;
        actions
    }

    fn decide(&self) -> PodActions {
        compute_pod_actions(ActionsInput {
            pod: self.pod,
            observed: &self.found,
            backoff: &self.backoff,
            probe_results: &self.probe_results,
            policy: BackoffPolicy::DEFAULT,
            now: at(self.now),
        })
    }

    /// Executes actions until they are stable.
    pub(super) fn rest(&mut self) {
        let all = self.pod.init_containers().len() + self.pod.containers().len();
        for _ in 0..2 * all + 4 {
            let actions = self.decide();
            if actions.is_empty() {
                assert_eq!(self.decide(), actions);
                return;
            }
            assert_safe(self.pod, &self.found, &self.probe_results, &actions);
            self.act(&actions);
        }
        panic!("never at rest: {}", self.decide());
    }

    fn act(&mut self, actions: &PodActions) {
        let now = at(self.now);
        for reset in actions.containers_to_reset.iter().filter(|r| r.source) {
            let mut specs = self
                .pod
                .init_containers()
                .iter()
                .chain(self.pod.containers());
            let spec = specs.find(|c| c.name == reset.name).expect("a spec");
            let key = restart_key(self.pod, spec);
            self.backoff.next(&key, BackoffPolicy::DEFAULT, now);
        }
        let removed: Vec<_> = actions.containers_to_reset.iter().map(|r| &r.id).collect();
        self.found.containers.retain(|c| !removed.contains(&&c.id));
        for c in &mut self.found.containers {
            let hit = actions
                .containers_to_kill
                .iter()
                .any(|k| k.id == c.id && !k.remove);
            if is_live(c) && (actions.kill_pod || hit) {
                (c.state, c.exit_code, c.finished_at) = (ContainerState::Exited, 137, Some(now));
            }
        }
        self.found.containers.retain(|c| {
            !actions
                .containers_to_kill
                .iter()
                .any(|k| k.id == c.id && k.remove)
        });
        if actions.kill_pod {
            self.found
                .sandboxes
                .iter_mut()
                .for_each(|s| s.ready = false);
        }
        let mut sandbox = actions.sandbox_id.clone();
        if actions.create_sandbox {
            let id = SandboxId::from(format!("sb{}", actions.attempt));
            self.found.sandboxes.insert(
                0,
                ObservedSandbox {
                    id: id.clone(),
                    attempt: actions.attempt,
                    ready: true,
                    created_at: now,
                    host_network: false,
                    ips: vec!["10.0.0.2".parse().expect("ip")],
                },
            );
            sandbox = Some(id);
        }
        for start in actions
            .ephemeral_to_start
            .iter()
            .chain(&actions.init_to_start)
            .chain(&actions.containers_to_start)
        {
            let spec = &find_container(self.pod, start.kind, start.index).expect("a spec");
            assert_eq!(spec.name, start.name);
            let known = self.counts.get(&start.name).copied();
            let count = start
                .restart_count
                .unwrap_or_else(|| known.map_or(0, |highest| highest + 1));
            assert!(
                known.is_none_or(|k| count >= k),
                "{actions}: restart count decreased"
            );
            self.counts.insert(start.name.clone(), count);
            if start.restart {
                let key = restart_key(self.pod, spec);
                self.backoff.next(&key, BackoffPolicy::DEFAULT, now);
            }
            self.serial += 1;
            self.found.containers.insert(
                0,
                ObservedContainer {
                    id: ContainerId::from(format!("w{}", self.serial)),
                    name: start.name.clone(),
                    sandbox_id: sandbox.clone().expect("a sandbox"),
                    state: ContainerState::Running,
                    created_at: now,
                    started_at: Some(now),
                    finished_at: None,
                    exit_code: 0,
                    reason: String::new(),
                    message: String::new(),
                    image: "img".to_owned(),
                    image_id: "sha256:1".to_owned(),
                    hash: Some(container_hash(spec)),
                    restart_count: count,
                    log_path: String::new(),
                    user: None,
                    stop_signal: String::new(),
                    recursive_read_only: Vec::new(),
                    image_mounts: Vec::new(),
                    oom_kills: None,
                    resources: None,
                    created_sizes: None,
                },
            );
        }
        for spec in self
            .pod
            .containers()
            .iter()
            .chain(self.pod.init_containers())
        {
            let live = self
                .found
                .instances(&spec.name)
                .filter(|c| is_live(c))
                .count();
            assert!(live <= 1, "{live} live instances of {}", spec.name);
        }
    }

    /// Executes actions while containers exit, sandboxes stop and the agent is killed between
    /// creation and start.
    pub(super) fn live(&mut self, luck: &[u8]) {
        for (i, luck) in luck.iter().enumerate() {
            self.step();
            let now = at(self.now);
            let count = self.found.containers.len().max(1);
            let newest = self.found.sandboxes.first_mut();
            match (luck, self.found.containers.get_mut(i % count)) {
                (0, Some(c)) if is_live(c) => {
                    (c.state, c.exit_code, c.finished_at) = (ContainerState::Exited, 0, Some(now));
                }
                (1, Some(c)) if is_live(c) => {
                    (c.state, c.exit_code, c.finished_at) = (ContainerState::Exited, 1, Some(now));
                }
                (2, Some(c)) if c.state == ContainerState::Running => {
                    c.state = ContainerState::Unknown;
                }
                (3, Some(c)) if c.state == ContainerState::Running => {
                    c.state = ContainerState::Created;
                    c.started_at = None;
                }
                (4, _) => {
                    if let Some(s) = newest {
                        s.ready = false;
                    }
                }
                (5, Some(c)) if is_live(c) => {
                    (c.state, c.exit_code, c.finished_at) = (ContainerState::Exited, 88, Some(now));
                }
                (6 | 7, Some(c)) if c.state == ContainerState::Running => {
                    let result = ContainerProbeResult {
                        id: c.id.clone(),
                        success: *luck == 6,
                    };
                    let kind = match i % 2 {
                        0 => ProbeKind::Liveness,
                        _ => ProbeKind::Startup,
                    };
                    self.probe_results
                        .for_kind_mut(kind)
                        .insert(c.name.clone(), result);
                }
                _ => self.now += 400,
            }
        }
    }

    /// Lets every process succeed, except app containers of an Always pod, which keep running. The
    /// actions must converge.
    pub(super) fn settle(&mut self) {
        let always = self.pod.restart_policy() == RestartPolicy::Always;
        for _ in 0..40 {
            self.step();
            self.now += 400;
            let now = at(self.now);
            for c in &mut self.found.containers {
                let init = self.pod.init_containers().iter().find(|i| i.name == c.name);
                let completes = init.map_or(!always, |i| !is_sidecar(i));
                if c.state == ContainerState::Running {
                    let result = ContainerProbeResult {
                        id: c.id.clone(),
                        success: true,
                    };
                    for kind in ProbeKind::ALL {
                        let of_kind = self.probe_results.for_kind_mut(kind);
                        of_kind.insert(c.name.clone(), result.clone());
                    }
                }
                if completes && c.state == ContainerState::Running {
                    (c.state, c.exit_code, c.finished_at) = (ContainerState::Exited, 0, Some(now));
                }
            }
        }
        let last = self.step();
        assert_eq!(last.to_string(), "nothing");
        if !always {
            let running = self.found.running().count();
            assert_eq!(running, 0, "a finished pod leaves nothing running");
            return;
        }
        let sidecars = self.pod.init_containers().iter();
        let lasting = sidecars.filter(|c| is_sidecar(c));
        for spec in lasting.chain(self.pod.containers()) {
            let runs = self.found.running().any(|c| c.name == spec.name);
            let may_end = policy_of(self.pod, spec) != RestartPolicy::Always;
            assert!(runs || may_end, "{} does not run", spec.name);
        }
    }
}
