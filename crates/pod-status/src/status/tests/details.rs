//! Container status fields besides the state, and removed containers.

use std::collections::BTreeMap;

use windlass_types::ObservedUser;
use windlass_types::corev1::{
    ContainerState as ApiState, EphemeralContainer, ResourceRequirements, VolumeMount,
};
use windlass_types::cri::LinuxResources;
use windlass_types::names::ANN_CONFIG_SOURCE;

use super::*;
use windlass_pod_inputs::resources::{milli_cpu_of_quota, milli_cpu_of_shares};

type Amounts = BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>;

fn amounts(text: &str) -> Option<Amounts> {
    let pairs = text.split_whitespace().filter_map(|w| w.split_once('='));
    let list: Amounts = pairs
        .map(|(name, amount)| {
            let amount = k8s_openapi::apimachinery::pkg::api::resource::Quantity(amount.into());
            (name.to_owned(), amount)
        })
        .collect();
    (!list.is_empty()).then_some(list)
}

fn text(list: &Option<Amounts>) -> String {
    let list = list.iter().flatten();
    let words: Vec<String> = list.map(|(name, q)| format!("{name}={}", q.0)).collect();
    words.join(" ")
}

/// A running container with these requests and limits.
fn asking(requests: &str, limits: &str) -> Case {
    Case::new("Always a", "sb0 a=run").with(|c| {
        c.spec("a").resources = Some(ResourceRequirements {
            requests: amounts(requests),
            limits: amounts(limits),
            ..ResourceRequirements::default()
        });
    })
}

fn reported(shares: i64, quota: i64, memory: i64) -> Option<LinuxResources> {
    Some(LinuxResources {
        cpu_shares: shares,
        cpu_quota: quota,
        cpu_period: 100_000,
        memory_limit: memory,
        ..LinuxResources::default()
    })
}

/// `requests | limits | allocated`.
fn shown(status: &PodStatus) -> String {
    let a = &status.container_statuses.as_ref().expect("list")[0];
    let resources = a.resources.as_ref().expect("resources");
    format!(
        "{} | {} | {}",
        text(&resources.requests),
        text(&resources.limits),
        text(&a.allocated_resources)
    )
}

#[test]
fn resources_are_from_runtime_in_spelling_of_spec() {
    let case = |requests, limits, reported| {
        let case = asking(requests, limits).with(|c| c.observed.containers[0].resources = reported);
        shown(&case.status())
    };
    // the runtime reports the amounts of the spec
    assert_eq!(
        case(
            "cpu=0.25 memory=64M",
            "cpu=0.5 memory=64M",
            reported(256, 50_000, 64_000_000)
        ),
        "cpu=0.25 memory=64M | cpu=0.5 memory=64M | cpu=0.25 memory=64M"
    );
    // the runtime reports other amounts
    assert_eq!(
        case(
            "cpu=250m memory=64Mi",
            "cpu=500m memory=64Mi",
            reported(512, 75_000, 128 << 20)
        ),
        "cpu=500m memory=64Mi | cpu=750m memory=128Mi | cpu=250m memory=64Mi"
    );
    // amounts below the minimum are those of the spec; none are added
    assert_eq!(
        case("cpu=1m", "cpu=2m", reported(2, 1000, 0)),
        "cpu=1m | cpu=2m | cpu=1m"
    );
    assert_eq!(
        case("memory=64Mi", "", reported(2, 0, 0)),
        "memory=64Mi |  | memory=64Mi"
    );
    assert_eq!(case("", "", reported(2, 0, 0)), " |  | ");
    // an older runtime reports nothing
    assert_eq!(case("cpu=1", "cpu=2", None), "cpu=1 | cpu=2 | cpu=1");
}

#[test]
fn unreported_resources_change_at_the_end_of_a_resize() {
    let first = asking("cpu=1 memory=1Gi", "memory=2Gi").status_at(1000);
    let later = |found: &str, resizing: bool| {
        let (first, found) = (first.clone(), found.to_owned());
        let case = asking("cpu=2 memory=3Gi", "memory=4Gi").with(|c| c.previous = Some(first));
        let case = case.with(|c| c.observed = observed(&c.pod, &found));
        let resize = resizing.then(ResizeInProgress::default);
        shown(&case.with(|c| c.resize = resize).status())
    };
    assert_eq!(
        later("sb0 a=run", true),
        "cpu=1 memory=1Gi | memory=2Gi | cpu=2 memory=3Gi"
    );
    let new = "cpu=2 memory=3Gi | memory=4Gi | cpu=2 memory=3Gi";
    assert_eq!(later("sb0 a=run", false), new);
    assert_eq!(later("sb0 a=exit1 a#1=run", true), new);
}

#[test]
fn resize_that_ended_unreported_is_known_to_next_run() {
    let check = |requests, limits, observed, expected: Option<i64>| {
        let mut status = asking("cpu=1 memory=1Gi", "cpu=2").status_at(10);
        status.observed_generation = Some(observed);
        let mut pod = asking(requests, limits).pod.clone();
        pod.metadata.generation = Some(2);
        pod.status = Some(status);
        let resize = expected.map(|generation| ResizeInProgress {
            generation: Some(generation),
            error: None,
        });
        let found = ResizeInProgress::from_previous_run(&pod);
        assert_eq!(found, resize, "{requests}, {limits}");
    };
    check("cpu=1 memory=2Gi", "cpu=2", 1, Some(2));
    check("cpu=1 memory=1Gi", "cpu=3", 1, Some(2));
    // another spelling
    check("cpu=1000m memory=1Gi", "cpu=2", 1, None);
    // the status is newer than the spec
    check("cpu=1 memory=1Gi", "cpu=3", 2, None);
}

#[test]
fn pod_level_resize_that_ended_unreported_is_known() {
    let sizes = |amounts: &str| {
        let quantities = amounts.split(' ').filter_map(|it| it.split_once('='));
        let amounts: serde_json::Map<_, _> = quantities
            .map(|(name, amount)| (name.to_owned(), amount.into()))
            .collect();
        serde_json::json!({"requests": amounts, "limits": amounts})
    };
    let is_resized = |spec: &str, reported: &str| {
        let mut pod = asking("", "").pod.clone();
        pod.metadata.generation = Some(2);
        let parsed = serde_json::from_value(sizes(spec));
        pod.spec.get_or_insert_default().resources = parsed.expect("resources");
        let reported = sizes(reported);
        let status = serde_json::json!({
            "observedGeneration": 1, "resources": reported, "allocatedResources": reported["requests"],
        });
        pod.status = Some(serde_json::from_value(status).expect("status"));
        ResizeInProgress::from_previous_run(&pod).is_some()
    };
    assert!(is_resized("cpu=2 memory=1Gi", "cpu=1 memory=1Gi"));
    assert!(is_resized("cpu=1 memory=2Gi", "cpu=1 memory=1Gi"));
    assert!(!is_resized("cpu=1 memory=1Gi", "cpu=1000m memory=1024Mi"));
}

#[test]
fn resize_in_progress_is_a_condition_until_it_ends() {
    let condition = |status: &PodStatus| {
        let mut conditions = status.conditions.iter().flatten();
        let condition = conditions.find(|c| c.type_ == "PodResizeInProgress")?;
        Some(format!(
            "{} {} {} generation={:?} since={:?}",
            condition.status,
            condition.reason.as_deref().unwrap_or("-"),
            condition.message.as_deref().unwrap_or("-"),
            condition.observed_generation,
            condition
                .last_transition_time
                .as_ref()
                .map(|t| t.0.as_second() - at(0).as_second()),
        ))
    };
    let mut case = asking("cpu=1", "").with(|c| {
        c.resize = Some(ResizeInProgress {
            generation: Some(2),
            error: None,
        });
    });
    let mut show = |seconds, error: Option<&str>| {
        if let Some(resize) = &mut case.resize {
            resize.error = error.map(str::to_owned);
        }
        let status = case.status_at(seconds);
        let shown = condition(&status).unwrap_or_default();
        assert_eq!(ResizeInProgress::from_status(&status), case.resize);
        case.previous = Some(status.clone());
        case.pod.status = Some(status);
        shown
    };
    assert_eq!(show(10, None), "True - - generation=Some(2) since=Some(10)");
    assert_eq!(show(20, None), "True - - generation=Some(2) since=Some(10)");
    let failed = "True Error too small generation=Some(2) since=Some(30)";
    assert_eq!(show(30, Some("too small")), failed);
    assert_eq!(show(40, Some("too small")), failed);
    case.resize = None;
    assert_eq!(condition(&case.status_at(50)), None);
    let failed_pod = case.with(|c| {
        c.resize = Some(ResizeInProgress::default());
        c.terminal = true;
    });
    assert_eq!(condition(&failed_pod.status_at(60)), None);
}

#[test]
fn pod_level_resources_are_those_of_the_cgroup() {
    let show = |case: &Case| {
        let status = case.status();
        let resources = status.resources.unwrap_or_default();
        format!(
            "{} | {} | {}",
            text(&resources.requests),
            text(&resources.limits),
            text(&status.allocated_resources)
        )
    };
    let mut case = asking("cpu=250m memory=64Mi", "cpu=500m memory=128Mi");
    assert_eq!(show(&case), " |  | ");
    case.cgroup = reported(256, 50_000, 128 << 20);
    let as_allocated = "cpu=250m memory=64Mi | cpu=500m memory=128Mi | cpu=250m memory=64Mi";
    assert_eq!(show(&case), as_allocated);
    case.cgroup = reported(512, 100_000, 256 << 20);
    assert_eq!(
        show(&case),
        "cpu=500m memory=64Mi | cpu=1 memory=256Mi | cpu=250m memory=64Mi"
    );
    // a pod that does not run has what is allocated
    let waiting = case.with(|c| c.observed = ObservedPod::default());
    assert_eq!(show(&waiting), as_allocated);
}

#[test]
fn pod_resources_of_static_pod_are_all_those_allocated() {
    let amounts = "cpu=2 example.com/dev=1 memory=1Gi";
    let mut case = asking(amounts, amounts);
    // exclusive CPUs have no quota
    case.cgroup = reported(2048, -1, 1 << 30);
    let limits = |case: &Case| text(&case.status().resources.unwrap_or_default().limits);
    assert_eq!(limits(&case), "memory=1Gi");
    let annotations = case.pod.metadata.annotations.get_or_insert_default();
    annotations.insert(ANN_CONFIG_SOURCE.to_owned(), "file".to_owned());
    assert_eq!(limits(&case), amounts);
    let status = case.status();
    let of_container = &status.container_statuses.as_ref().expect("list")[0];
    let of_container = of_container.resources.as_ref().expect("resources");
    assert_eq!(text(&of_container.limits), amounts);
}

#[test]
fn shares_and_quotas_convert_back_to_requests_and_limits() {
    for milli in [2, 10, 100, 250, 333, 1000, 1500, 64_000] {
        let shares = windlass_pod_inputs::resources::cpu_shares(milli);
        assert_eq!(milli_cpu_of_shares(shares), milli, "{shares} shares");
        let quota = windlass_pod_inputs::resources::cpu_quota(milli, 100_000);
        assert_eq!(milli_cpu_of_quota(quota, 100_000), milli.max(10));
    }
    let none = [(0, 100_000), (-1, 100_000), (1000, 0)];
    assert!(none.iter().all(|(q, p)| milli_cpu_of_quota(*q, *p) == 0));
    assert_eq!(milli_cpu_of_shares(0), 0);
}

#[test]
fn user_and_stop_signal_are_reported_by_runtime() {
    let case = Case::new("Always a", "sb0 a=run").with(|c| {
        let a = &mut c.observed.containers[0];
        a.stop_signal = "SIGUSR1".into();
        a.user = Some(ObservedUser {
            uid: 1000,
            gid: 3000,
            supplemental_groups: vec![3000, 4000],
        });
    });
    let status = case.status();
    let a = &status.container_statuses.as_ref().expect("list")[0];
    let user = a.user.as_ref().and_then(|u| u.linux.as_ref());
    let user = user.expect("a user");
    assert_eq!((user.uid, user.gid), (1000, 3000));
    assert_eq!(
        user.supplemental_groups.as_deref(),
        Some([3000, 4000].as_slice())
    );
    assert_eq!(a.stop_signal, None, "its gate is off");
    let status = case.with(|c| c.stop_signals = true).status();
    let a = &status.container_statuses.as_ref().expect("list")[0];
    assert_eq!(a.stop_signal.as_deref(), Some("SIGUSR1"));
    let silent = Case::new("Always a", "sb0 a=run").with(|c| c.stop_signals = true);
    let silent = silent.status();
    let a = &silent.container_statuses.as_ref().expect("list")[0];
    assert_eq!((&a.user, &a.stop_signal), (&None, &None));
}

#[test]
fn recursive_read_only_is_reported_by_runtime() {
    let check = |found: &str, made: &[&str], expected: &str| {
        let case = Case::new("Always a", found).with(|c| {
            c.spec("a").volume_mounts = Some(vec![VolumeMount {
                name: "data".into(),
                mount_path: "data".into(),
                read_only: Some(true),
                recursive_read_only: Some("IfPossible".into()),
                ..VolumeMount::default()
            }]);
            for instance in &mut c.observed.containers {
                instance.recursive_read_only = made.iter().map(|p| (*p).to_owned()).collect();
            }
        });
        let status = case.status();
        let a = &status.container_statuses.as_ref().expect("list")[0];
        let mount = a.volume_mounts.iter().flatten().next().expect("mount");
        assert_eq!(mount.recursive_read_only.as_deref(), Some(expected));
    };
    check("", &[], "Disabled");
    check("sb0 a=run", &[], "Disabled");
    check("sb0 a=run", &["/other"], "Disabled");
    check("sb0 a=run", &["/data"], "Enabled");
    check("sb0 a=exit0", &["/data"], "Enabled");
}

#[test]
fn mounts_are_listed_whether_or_not_the_container_runs() {
    for found in ["", "sb0 a=run", "sb0 a=exit0"] {
        let case = Case::new("Never a", found).with(|c| {
            let mount = |name: &str, read_only| VolumeMount {
                name: name.into(),
                mount_path: format!("/{name}"),
                read_only,
                ..VolumeMount::default()
            };
            let mounts = vec![mount("data", None), mount("config", Some(true))];
            c.spec("a").volume_mounts = Some(mounts);
        });
        let status = case.status();
        let a = &status.container_statuses.as_ref().expect("list")[0];
        let lines: Vec<String> = a
            .volume_mounts
            .iter()
            .flatten()
            .map(|m| {
                let recursive = m.recursive_read_only.as_deref().unwrap_or("-");
                format!("{} {} {:?} {recursive}", m.name, m.mount_path, m.read_only)
            })
            .collect();
        assert_eq!(
            lines,
            ["data /data None -", "config /config Some(true) Disabled"]
        );
    }
}

fn ephemeral(found: &str) -> Case {
    Case::new("Always a", found).with(|c| {
        let debugger = EphemeralContainer {
            name: "e".into(),
            image: Some("img".into()),
            ..EphemeralContainer::default()
        };
        c.pod.spec.get_or_insert_default().ephemeral_containers = Some(vec![debugger]);
    })
}

#[test]
fn ephemeral_container_is_never_ready() {
    ephemeral("sb0 a=run").shows(&format!("Running {ALL} a:running#0* e:ContainerCreating#0"));
    ephemeral("sb0 a=run")
        .failure("e", Reason::ErrImagePull, "no such host")
        .shows(&format!("Running {ALL} a:running#0* e:ErrImagePull#0"));
    let running = ephemeral("sb0 a=run e=run");
    running.shows(&format!("Running {ALL} a:running#0* e:running#0"));
    let status = running.status();
    let e = &status
        .ephemeral_container_statuses
        .as_ref()
        .expect("a list")[0];
    assert_eq!((e.ready, e.started), (false, None));
    // its exit does not fail the pod and ends the error of its start
    ephemeral("sb0 a=run e=exit7")
        .failure("e", Reason::RunContainerError, "earlier")
        .shows(&format!("Running {ALL} a:running#0* e:Error=7#0"));
    ephemeral("sb0 a=exit0 e=run")
        .with(|c| c.pod.spec.get_or_insert_default().restart_policy = Some("Never".into()))
        .shows(&format!("Succeeded {STARTED} a:Completed=0#0 e:running#0"));
    // removed from the runtime: it has run
    ephemeral("sb0 a=run")
        .with(|c| c.previous = Some(ephemeral("sb0 a=run e=exit7").status_at(1000)))
        .shows(&format!("Running {ALL} a:running#0* e:Error=7#0"));
    let lost = ephemeral("sb0 a=run").with(|c| {
        c.previous = Some(ephemeral("sb0 a=run e=run").status_at(1000));
    });
    lost.shows(&format!(
        "Running {ALL} a:running#0* e:ContainerStatusUnknown=137#0"
    ));
    let status = lost.status();
    let e = &status
        .ephemeral_container_statuses
        .as_ref()
        .expect("a list")[0];
    assert!(e.container_id.is_some(), "what it was stays known");
}

#[test]
fn removed_container_has_upstream_message() {
    let message = |status: &PodStatus, pick: fn(&ContainerStatus) -> &Option<ApiState>| {
        let lists = [&status.init_container_statuses, &status.container_statuses];
        let first = lists.into_iter().flatten().flatten().next();
        let state = pick(first.expect("one")).clone().expect("state");
        state.terminated.expect("ended").message.expect("message")
    };
    let gone = Case::new("Always a", "sb0").after("sb0 a=run").status();
    assert_eq!(
        message(&gone, |c| &c.last_state),
        "The container could not be located when the pod was deleted.  The container used to be \
         Running"
    );
    let unknown = Case::new("Always a", "sb0 a=unknown").after("sb0 a=run");
    assert_eq!(
        message(&unknown.status(), |c| &c.state),
        "The container could not be located when the pod was terminated"
    );
    let init = Case::new("Always i:init a", "sb0 a=run").status();
    assert_eq!(
        message(&init, |c| &c.state),
        "Unable to get init container status from container runtime and pod has been \
         initialized, treat it as exited normally"
    );
}

#[test]
fn instance_after_removed_one_increases_restart_count() {
    // all containers and logs of the pod were removed
    Case::new("Always a", "sb0 sb1 a=run")
        .with(|c| c.observed.sandboxes.truncate(1))
        .after("sb0 a#3=exit1")
        .shows(&format!("Running {ALL} a:running<Error=1>#4*"));
    // the same instance counts once
    Case::new("Always a", "sb0 a#3=run")
        .after("sb0 a#3=run")
        .shows(&format!("Running {ALL} a:running#3*"));
}

#[test]
fn blocker_reports_what_it_waits_for() {
    let check = |reason, container: Option<&str>, retried: bool, expected: &str| {
        let blocker = Blocker {
            reason,
            container: container.map(str::to_owned),
            message: String::new(),
            probe: None,
            since: Timestamp::UNIX_EPOCH,
            next_retry: retried.then_some(Timestamp::UNIX_EPOCH),
        };
        assert_eq!(waiting_for(&blocker), expected);
    };
    let agent = "agent (automatic retry)";
    check(Reason::CrashLoopBackOff, Some("a"), true, agent);
    check(Reason::ContainersNotReady, Some("a"), true, agent);
    let hung = "container runtime; the agent keeps retrying";
    check(Reason::RuntimeCallHung, None, true, hung);
    let probe = "container, until its probe succeeds";
    check(Reason::ContainersNotReady, Some("a"), false, probe);
    let gates = "controller of the readiness gates";
    check(Reason::ContainersNotReady, None, false, gates);
    let user = "user: fix the pod spec or manifest (no automatic retry)";
    check(Reason::InvalidImageName, Some("a"), false, user);
    check(Reason::Error, None, false, user);
}

#[test]
fn rejected_pod_has_only_phase_reason_and_message() {
    let rejection = windlass_node_rules::admission::Rejection::new("OutOfcpu", "no room");
    let case = Case::new("Always a", "").with(|c| {
        c.phase_override = Some(rejection.into());
        let condition = |type_: &str| PodCondition {
            type_: type_.into(),
            status: "True".into(),
            ..PodCondition::default()
        };
        c.pod.status.get_or_insert_default().conditions = Some(vec![
            condition("PodScheduled"),
            condition("example.com/own"),
        ]);
    });
    let status = case.status();
    let expected = PodStatus {
        phase: Some("Failed".into()),
        reason: Some("OutOfcpu".into()),
        message: Some("Pod was rejected: no room".into()),
        qos_class: Some("BestEffort".into()),
        start_time: status.start_time.clone(),
        ..PodStatus::default()
    };
    let without_conditions = PodStatus {
        conditions: None,
        ..status.clone()
    };
    assert_eq!(without_conditions, expected);
    let types = |status: &PodStatus| {
        let conditions = status.conditions.iter().flatten();
        conditions.map(|c| c.type_.clone()).collect::<Vec<_>>()
    };
    assert_eq!(types(&status), ["example.com/own"]);

    // an agent restart adds nothing
    let found = Case::new("Always a", "").with(|c| c.pod.status = Some(status.clone()));
    assert_eq!(found.status(), status);
}

#[test]
fn ips_are_ordered_by_family_and_kept_without_sandbox() {
    let dual = Case::new("Always a", "sb0 a=run").with(|c| {
        let ips = ["fd00::2", "10.0.0.1", "10.0.0.9"];
        c.observed.ips = ips.iter().map(|ip| ip.parse().expect("ip")).collect();
    });
    let ips = |status: &PodStatus| -> Vec<String> {
        let list = status.pod_ips.iter().flatten();
        list.map(|p| p.ip.clone()).collect()
    };
    let status = dual.status();
    assert_eq!(ips(&status), ["10.0.0.1", "fd00::2"]);
    assert_eq!(status.host_ip.as_deref(), Some("192.168.0.1"));
    let gone = Case::new("Never a", "sb0! a=exit0").with(|c| c.previous = Some(status));
    assert_eq!(ips(&gone.status()), ["10.0.0.1", "fd00::2"]);
    let host = Case::new("Always hostNetwork a", "sb0-host a=run");
    assert_eq!(ips(&host.status()), ["192.168.0.1"]);
}

#[test]
fn created_instance_is_not_a_restart_yet() {
    let check = |asked: &str, before: &str, found: &str, expected: &str| {
        let case = match before {
            "" => Case::new(asked, found),
            _ => Case::new(asked, found).after(before),
        };
        let status = case.status();
        let lists = [
            &status.init_container_statuses,
            &status.container_statuses,
            &status.ephemeral_container_statuses,
        ];
        let all = lists.into_iter().flatten().flatten();
        let counts: Vec<_> = all
            .map(|it| format!("{}#{}", it.name, it.restart_count))
            .collect();
        assert_eq!(counts.join(" "), expected, "{before:?} -> {found:?}");
    };
    check("Always a", "", "sb0 a=created", "a#0");
    check("Always a", "", "sb0 a#3=created", "a#2");
    check("Always a", "", "sb0 a#2=exit1 a#3=created", "a#2");
    check("Always a", "", "sb0 a#2=exit1 a#3=run", "a#3");
    check("Always a", "", "sb0 a#2=exit1 a#3=exit128", "a#3");
    let all = "Always i:init s:sidecar a e:ephemeral";
    let created = "sb0 i#1=created s#2=created a#3=created e=created";
    check(all, "", created, "i#0 s#1 a#2 e#0");
    // it never goes back
    check("Always a", "sb0 a#3=run", "sb0 a#3=created", "a#3");
    check("Always a", "sb0 a#3=exit1", "sb0 a#2=exit1", "a#3");
    check("Always a", "sb0 a#3=exit1", "sb0", "a#3");
    let ended = "sb0 i#1=exit0 s#2=run a#3=run e=exit1";
    check(all, ended, created, "i#1 s#2 a#3 e#0");
    check(all, ended, "sb0 i=exit0 s=exit1 a=exit1", "i#1 s#2 a#3 e#0");
}
