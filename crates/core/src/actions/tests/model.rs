//! A runtime of a few lines that carries out [`PodActions`], and what must hold at every step.

use proptest::prelude::*;
use windlass_types::pod::RestartPolicy;

use super::*;

/// A pod of up to two init containers, a sidecar and two app containers.
pub(crate) fn any_pod() -> impl Strategy<Value = String> {
    let policy = prop_oneof![Just("Always"), Just("OnFailure"), Just("Never")];
    let inits = prop_oneof![
        Just(""),
        Just("i:init"),
        Just("s:sidecar"),
        Just("i:init s:sidecar j:init"),
        Just("s:sidecar i:init"),
    ];
    let apps = prop_oneof![Just("a"), Just("a b")];
    (policy, inits, apps).prop_map(|(p, i, a)| format!("{p} {i} {a}"))
}

/// Any history, consistent or not.
pub(crate) fn any_found() -> impl Strategy<Value = String> {
    let sandbox = prop_oneof![3 => Just(""), 1 => Just("!"), 1 => Just("-noip")];
    let container = (
        prop_oneof![
            Just("i"),
            Just("j"),
            Just("s"),
            Just("a"),
            Just("b"),
            Just("x")
        ],
        0..4_u32,
        prop_oneof![
            Just("run"),
            Just("created"),
            Just("unknown"),
            Just("exit0"),
            Just("exit1"),
            Just("run~"),
        ],
    )
        .prop_map(|(n, c, s)| format!("{n}#{c}={s}"));
    proptest::collection::vec((sandbox, proptest::collection::vec(container, 0..5)), 0..3).prop_map(
        |sandboxes| {
            let mut words = Vec::new();
            for (i, (kind, containers)) in sandboxes.into_iter().enumerate() {
                words.push(format!("sb{i}{kind}"));
                words.extend(containers);
            }
            words.join(" ")
        },
    )
}

fn is_live(c: &ObservedContainer) -> bool {
    matches!(c.state, ContainerState::Running | ContainerState::Unknown)
}

/// What must hold of every answer.
pub(super) fn assert_safe(pod: &Pod, found: &ObservedPod, actions: &PodActions) {
    assert!(
        !actions.kill_pod || actions.containers_to_kill.is_empty(),
        "{actions}: kills twice"
    );
    let starts: Vec<_> = actions
        .init_to_start
        .iter()
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
            let gone = actions
                .containers_to_kill
                .iter()
                .any(|k| k.remove && k.id == instance.id);
            assert!(
                gone || start.restart_count != Some(instance.restart_count),
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

/// A node with one pod.
pub(super) struct World<'a> {
    pod: &'a Pod,
    found: ObservedPod,
    backoff: BackoffTable,
    now: i64,
    serial: u32,
}

impl<'a> World<'a> {
    pub(super) fn new(pod: &'a Pod, found: ObservedPod) -> Self {
        Self {
            pod,
            found,
            backoff: BackoffTable::default(),
            now: 10_000,
            serial: 0,
        }
    }

    fn step(&mut self) -> PodActions {
        let actions = decide(self.pod, &self.found, &self.backoff, at(self.now));
        assert_safe(self.pod, &self.found, &actions);
        self.act(&actions);
        self.now += 1;
        actions
    }

    fn act(&mut self, actions: &PodActions) {
        let now = at(self.now);
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
            .init_to_start
            .iter()
            .chain(&actions.containers_to_start)
        {
            let list = if start.init {
                self.pod.init_containers()
            } else {
                self.pod.containers()
            };
            let spec = &list[start.index];
            assert_eq!(spec.name, start.name);
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
                    restart_count: start.restart_count.unwrap_or_default(),
                    log_path: String::new(),
                    user: None,
                    stop_signal: String::new(),
                    resources: None,
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

    /// The agent acts while containers exit, sandboxes die and the agent itself is killed
    /// between creating and starting a container.
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
                _ => self.now += 400,
            }
        }
    }

    /// From here on every process succeeds: regular containers exit 0, except that an Always
    /// pod's app containers stay up. The answers must die down.
    pub(super) fn settle(&mut self) {
        let always = self.pod.restart_policy() == RestartPolicy::Always;
        for _ in 0..40 {
            self.step();
            self.now += 400;
            let now = at(self.now);
            for c in &mut self.found.containers {
                let init = self.pod.init_containers().iter().find(|i| i.name == c.name);
                let completes = init.map_or(!always, |i| !is_sidecar(i));
                if completes && c.state == ContainerState::Running {
                    (c.state, c.exit_code, c.finished_at) = (ContainerState::Exited, 0, Some(now));
                }
            }
        }
        let last = self.step();
        assert_eq!(last.to_string(), "nothing");
        let running = self.found.running().count();
        if !always {
            assert_eq!(running, 0, "a finished pod leaves nothing running");
        } else {
            let sidecars = self
                .pod
                .init_containers()
                .iter()
                .filter(|c| is_sidecar(c))
                .count();
            assert_eq!(running, self.pod.containers().len() + sidecars);
        }
    }
}
