//! Pods and observed pods written as one line of text, for tables of test cases.
//!
//! For unit tests of decisions on pods: a case is a line, and so is the expected result.
//!
//! # Entry points
//!
//! * [`pod`] is a pod from its restart policy and its containers
//! * [`observed`] is what the runtime has of it: sandboxes and containers with their states
//! * [`probe_results`] are results of probes
//! * [`any_pod`] and [`any_found`] are strategies of `proptest` for such texts
//!
//! # Example
//!
//! ```
//! use windlass_pod_text::{observed, pod};
//!
//! let pod = pod("Always s:sidecar a+startup");
//! let observed = observed(&pod, "sb0 s=run a#1=exit1");
//! assert_eq!(observed.containers.len(), 2);
//! ```
//!
//! # Limits
//!
//! A text that does not follow the grammar panics.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "for tests only"
)]

use proptest::prelude::*;
use windlass_types::corev1::{
    Container, ContainerRestartRule, ContainerRestartRuleOnExitCodes, EphemeralContainer, PodSpec,
    Probe,
};
use windlass_types::metav1::ObjectMeta;
use windlass_types::{
    ContainerId, ContainerProbeResult, ContainerState, ObservedContainer, ObservedPod,
    ObservedSandbox, Pod, PodExt, PodProbeResults, PodUid, ProbeKind, SandboxId, Timestamp,
};
use windlass_units::hash::container_hash;

/// A point in time: seconds after a fixed second of 2023.
pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).expect("in range")
}

/// `Policy name[:init|:sidecar|:ephemeral|:Always|:OnFailure|:Never][+flag…]…`. Flags: `startup`
/// and `liveness` are probes (with a grace period of 7 s), `all88` and `again42` are rules that
/// restart all containers or this one after that exit code.
pub fn pod(text: &str) -> Pod {
    let mut words = text.split_whitespace();
    let policy = words.next().expect("policy").to_owned();
    let mut spec = PodSpec {
        restart_policy: Some(policy),
        ..PodSpec::default()
    };
    for word in words {
        let mut parts = word.split('+');
        let word = parts.next().unwrap_or_default();
        let (name, kind) = word.split_once(':').unwrap_or((word, ""));
        if name == "hostNetwork" {
            spec.host_network = Some(true);
            continue;
        }
        let mut container = Container {
            name: name.to_owned(),
            image: Some("img".to_owned()),
            ..Container::default()
        };
        for flag in parts {
            match flag {
                "startup" => container.startup_probe = Some(probe()),
                "liveness" => container.liveness_probe = Some(probe()),
                "all88" => container.restart_policy_rules = Some(rule("RestartAllContainers", 88)),
                "again42" => container.restart_policy_rules = Some(rule("Restart", 42)),
                other => panic!("no such flag: {other}"),
            }
        }
        match kind {
            "ephemeral" => {
                let debugger = EphemeralContainer {
                    name: container.name,
                    image: container.image,
                    ..EphemeralContainer::default()
                };
                spec.ephemeral_containers
                    .get_or_insert_default()
                    .push(debugger);
            }
            "init" => spec.init_containers.get_or_insert_default().push(container),
            "sidecar" => {
                container.restart_policy = Some("Always".to_owned());
                spec.init_containers.get_or_insert_default().push(container);
            }
            "" => spec.containers.push(container),
            own => {
                container.restart_policy = Some(own.to_owned());
                spec.containers.push(container);
            }
        }
    }
    Pod {
        metadata: ObjectMeta {
            name: Some("p".to_owned()),
            namespace: Some("ns".to_owned()),
            uid: Some("u".to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    }
}

fn probe() -> Probe {
    Probe {
        termination_grace_period_seconds: Some(7),
        ..Probe::default()
    }
}

fn rule(action: &str, code: i32) -> Vec<ContainerRestartRule> {
    vec![ContainerRestartRule {
        action: action.to_owned(),
        exit_codes: Some(ContainerRestartRuleOnExitCodes {
            operator: "In".to_owned(),
            values: Some(vec![code]),
        }),
    }]
}

/// `liveness:a=yes startup:s=no`, each about the newest instance.
pub fn probe_results(found: &ObservedPod, text: &str) -> PodProbeResults {
    let mut probe_results = PodProbeResults::default();
    for word in text.split_whitespace() {
        let (kind, rest) = word.split_once(':').expect("kind:name");
        let (name, ok) = rest.split_once('=').expect("name=yes");
        let kind = match kind {
            "liveness" => ProbeKind::Liveness,
            "startup" => ProbeKind::Startup,
            other => panic!("no such probe: {other}"),
        };
        let result = ContainerProbeResult {
            id: found.latest(name).expect("an instance").id.clone(),
            success: ok == "yes",
        };
        probe_results
            .for_kind_mut(kind)
            .insert(name.to_owned(), result);
    }
    probe_results
}

/// Oldest first. Sandboxes: `sb<attempt>[!|-noip|-host]`, `!` is not ready. Containers:
/// `name[#count]=run|created|unknown|exit<code>[~][@<sandbox attempt>]`; `~` is another hash;
/// without `@` it lives in the sandbox before it.
pub fn observed(pod: &Pod, text: &str) -> ObservedPod {
    let mut found = ObservedPod {
        uid: PodUid::from("u"),
        ..ObservedPod::default()
    };
    let mut sandbox = 0_u32;
    for (i, word) in text.split_whitespace().enumerate() {
        let created_at = at(10 * i as i64);
        if let Some(rest) = word.strip_prefix("sb") {
            sandbox = rest[..1].parse().expect("attempt");
            let host = rest.ends_with("-host");
            found.sandboxes.insert(
                0,
                ObservedSandbox {
                    id: SandboxId::from(format!("sb{sandbox}")),
                    attempt: sandbox,
                    ready: !rest.ends_with('!'),
                    created_at,
                    host_network: host,
                    ips: if host || rest.ends_with("-noip") {
                        Vec::new()
                    } else {
                        vec!["10.0.0.1".parse().expect("ip")]
                    },
                },
            );
            continue;
        }
        let (name, state) = word.split_once('=').expect("name=state");
        let (name, count) = name.split_once('#').unwrap_or((name, "0"));
        let (state, home) = match state.split_once('@') {
            Some((state, home)) => (state, home.parse().expect("attempt")),
            None => (state, sandbox),
        };
        let (state, changed) = match state.strip_suffix('~') {
            Some(state) => (state, true),
            None => (state, false),
        };
        let spec = pod
            .containers()
            .iter()
            .chain(pod.init_containers())
            .find(|c| c.name == name);
        let hash = spec.map(container_hash).unwrap_or_default();
        let exit_code = state.strip_prefix("exit").map(|c| c.parse().expect("code"));
        found.containers.insert(
            0,
            ObservedContainer {
                id: ContainerId::from(format!("c{i}")),
                name: name.to_owned(),
                sandbox_id: SandboxId::from(format!("sb{home}")),
                state: match state {
                    "run" => ContainerState::Running,
                    "created" => ContainerState::Created,
                    "unknown" => ContainerState::Unknown,
                    _ => ContainerState::Exited,
                },
                created_at,
                started_at: (state != "created").then_some(created_at),
                finished_at: exit_code.map(|_| at(10 * i as i64 + 5)),
                exit_code: exit_code.unwrap_or_default(),
                reason: String::new(),
                message: String::new(),
                image: "img".to_owned(),
                image_id: "sha256:1".to_owned(),
                hash: Some(if changed { hash ^ 1 } else { hash }),
                restart_count: count.parse().expect("count"),
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
    found
}

/// A pod of up to two init containers, a sidecar, two app containers and a debugger, some with
/// probes and rules.
pub fn any_pod() -> impl Strategy<Value = String> {
    let policy = prop_oneof![Just("Always"), Just("OnFailure"), Just("Never")];
    let inits = prop_oneof![
        Just(""),
        Just("i:init"),
        Just("s:sidecar"),
        Just("i:init s:sidecar j:init"),
        Just("s:sidecar i:init"),
        Just("s:sidecar+startup i:init"),
        Just("i:init s:sidecar+startup+liveness"),
        Just("i:init+all88"),
    ];
    let apps = prop_oneof![
        Just("a"),
        Just("a b"),
        Just("a+liveness b:Never+all88"),
        Just("a:OnFailure+all88 b+startup"),
    ];
    let debugger = prop_oneof![3 => Just(""), 1 => Just("e:ephemeral")];
    (policy, inits, apps, debugger).prop_map(|(p, i, a, e)| format!("{p} {i} {a} {e}"))
}

/// Any history, consistent or not.
pub fn any_found() -> impl Strategy<Value = String> {
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
            Just("exit88"),
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
