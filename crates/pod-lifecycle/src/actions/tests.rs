//! Tables of desired and observed pods with their actions, and a model runtime that executes
//! actions.

pub(crate) mod model;

use proptest::prelude::*;

use windlass_pod_text::{any_found, any_pod, at, observed, pod, probe_results};
use windlass_types::names;

use super::*;

fn decide(pod: &Pod, found: &ObservedPod, backoff: &BackoffTable, now: Timestamp) -> PodActions {
    compute_pod_actions(ActionsInput {
        pod,
        observed: found,
        backoff,
        probe_results: &PodProbeResults::default(),
        policy: BackoffPolicy::DEFAULT,
        now,
    })
}

fn check(spec: &str, found: &str, expected: &str) {
    check_probed(spec, found, "", expected);
}

/// As [`check`], with probe results.
fn check_probed(spec: &str, found: &str, results: &str, expected: &str) {
    let pod = pod(spec);
    let found_pod = observed(&pod, found);
    let actions = compute_pod_actions(ActionsInput {
        pod: &pod,
        observed: &found_pod,
        backoff: &BackoffTable::default(),
        probe_results: &probe_results(&found_pod, results),
        policy: BackoffPolicy::DEFAULT,
        now: at(5000),
    });
    assert_eq!(
        actions.to_string(),
        expected,
        "{spec} | {found} | {results}"
    );
    assert_eq!(actions.is_empty(), expected == "nothing");
}

#[test]
fn missing_or_unusable_sandbox_is_replaced() {
    check("Always a b", "", "sandbox#0 start(a#?) start(b#?)");
    check("Always i:init a", "", "sandbox#0 init(i#?)");
    check("Always a", "sb0 a=run", "nothing");
    check("Always a", "sb0", "start(a#?)");
    check("Always a", "sb0! a=exit0", "kill-pod sandbox#1 start(a#1)");
    check(
        "Always a",
        "sb3! a#7=exit1",
        "kill-pod sandbox#4 start(a#8)",
    );
    check(
        "Always a",
        "sb0-noip a=run",
        "kill-pod sandbox#1 start(a#1)",
    );
    check(
        "Always a",
        "sb0-host a=run",
        "kill-pod sandbox#1 start(a#1)",
    );
    check("Always hostNetwork a", "sb0-host a=run", "nothing");
    check(
        "Always hostNetwork a",
        "sb0 a=run",
        "kill-pod sandbox#1 start(a#1)",
    );
    // two ready sandboxes
    check("Always a", "sb0 sb1 a=run", "kill-pod sandbox#2 start(a#1)");
    // only an older sandbox is ready
    check(
        "Always a",
        "sb0 a=run sb1!",
        "kill-pod sandbox#2 start(a#1)",
    );
    check("Always a", "sb0! sb1 a=run", "nothing");
}

#[test]
fn completed_or_never_restarting_pod_gets_no_sandbox() {
    check("Never a", "sb0! a=exit0", "nothing");
    check("Never a", "sb0! a=run", "kill-pod");
    check("Never a", "sb0-noip a=exit1", "kill-pod");
    check("Never i:init a", "sb0! i=exit0", "nothing");
    // no container ever ran
    check("Never a", "sb0!", "kill-pod sandbox#1 start(a#?)");
    check("Never a", "sb0! a=created", "kill-pod sandbox#1 start(a#1)");
    check("OnFailure a", "sb0! a=exit0", "nothing");
    check(
        "OnFailure a b",
        "sb0! a=exit0 b=exit1",
        "kill-pod sandbox#1 start(b#1)",
    );
    check(
        "OnFailure a b",
        "sb0! a=exit0 b=run",
        "kill-pod sandbox#1 start(b#1)",
    );
    check("OnFailure i:init a", "sb0! i=exit0 a=exit0", "nothing");
    check(
        "OnFailure i:init a",
        "sb0! i=exit0",
        "kill-pod sandbox#1 init(i#1)",
    );
    check(
        "Never a:Always",
        "sb0! a=exit0",
        "kill-pod sandbox#1 start(a#1)",
    );
    check(
        "Always a:Never b",
        "sb0! a=exit0 b=run",
        "kill-pod sandbox#1 start(b#1)",
    );
}

#[test]
fn app_containers_follow_their_restart_policy() {
    check("Always a", "sb0 a=exit0", "start(a#1)");
    check("Always a", "sb0 a=exit0 a#1=exit0", "start(a#2)");
    check("OnFailure a b", "sb0 a=exit0 b=run", "nothing");
    check("OnFailure a b", "sb0 a=exit3 b=run", "start(a#1)");
    check("Never a b", "sb0 a=exit3 b=run", "nothing");
    check("Never a b", "sb0 a=exit3", "start(b#?)");
    check("Never a:OnFailure b", "sb0 a=exit3 b=run", "start(a#1)");
    check("Always a:Never b", "sb0 a=exit3 b=run", "nothing");
}

#[test]
fn completed_pod_is_killed_once() {
    check("Never a", "sb0 a=exit1", "kill-pod");
    check("OnFailure a b", "sb0 a=exit0 b=exit0", "kill-pod");
    check("Never a", "sb0! a=exit1", "nothing");
    check("Never s:sidecar a", "sb0 s=run a=exit0", "kill-pod");
    check("Never s:sidecar a", "sb0 s=exit1 a=exit0", "kill-pod");
}

#[test]
fn changed_definition_restarts_under_any_policy() {
    check("Always a b", "sb0 a=run~ b=run", "kill(a) start(a#1)");
    check("Never a b", "sb0 a=run~ b=run", "kill(a) start(a#1)");
    check("Never a b", "sb0 a=exit0~ b=run", "nothing");
    check(
        "Always s:sidecar a",
        "sb0 s=run~ a=run",
        "kill(s) init(s#1)",
    );
    check("Always i:init a", "sb0 i=run~", "nothing");
}

/// Its running container may be of a newer definition than the checkpoint.
#[test]
fn changed_container_of_a_restored_pod_keeps_running() {
    let mut pod = pod("Always s:sidecar a");
    let found = observed(&pod, "sb0 s=run~ a=run~");
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(names::ANN_RESTORED.to_owned(), "true".to_owned());
    let backoff = BackoffTable::default();
    assert_eq!(
        decide(&pod, &found, &backoff, at(5000)).to_string(),
        "nothing"
    );
    pod.metadata.annotations = None;
    let confirmed = decide(&pod, &found, &backoff, at(5000));
    assert_eq!(
        confirmed.to_string(),
        "kill(s) kill(a) init(s#1) start(a#1)"
    );
}

#[test]
fn unknown_container_is_killed_before_its_restart() {
    check("Always a", "sb0 a=unknown", "kill(a) start(a#1)");
    check("Never a", "sb0 a=unknown", "kill(a) start(a#1)");
    check("Always i:init a", "sb0 i=unknown", "kill(i) init(i#1)");
    check("Never i:init a", "sb0 i=unknown", "kill-pod");
    check(
        "Never s:sidecar a",
        "sb0 s=unknown a=run",
        "kill(s) init(s#1)",
    );
}

#[test]
fn never_started_container_is_replaced_with_same_count() {
    check("Always a", "sb0 a=created", "remove(a) start(a#0)");
    check("Never a", "sb0 a=created", "remove(a) start(a#0)");
    check(
        "Always a",
        "sb0 a=exit1 a#1=created",
        "remove(a) start(a#1)",
    );
    check("Always i:init a", "sb0 i=created", "remove(i) init(i#0)");
    check("Always s:sidecar a", "sb0 s=created", "remove(s) init(s#0)");
    check(
        "Always a",
        "sb0! a=created",
        "kill-pod sandbox#1 start(a#1)",
    );
}

#[test]
fn at_most_one_instance_runs() {
    check("Always a", "sb0 a=run a#1=run", "kill(a)");
    check("Always a", "sb0 a=run a#1=exit1", "kill(a) start(a#2)");
    check("Always a", "sb0! a=run sb1 a#1=run", "kill(a)");
    check("Always a", "sb0! a=run sb1", "kill(a) start(a#1)");
    check("Never a", "sb0! a=run sb1", "kill-pod");
    check("Always a", "sb0 a=run gone=run", "kill(gone)");
    check("Always a", "sb0 a=run gone=exit0", "nothing");
}

#[test]
fn init_containers_run_in_sequence() {
    check("Always i:init j:init a", "sb0", "init(i#?)");
    check("Always i:init j:init a", "sb0 i=run", "nothing");
    check("Always i:init j:init a", "sb0 i=exit0", "init(j#?)");
    check("Always i:init j:init a", "sb0 i=exit0 j=run", "nothing");
    check(
        "Always i:init j:init a b",
        "sb0 i=exit0 j=exit0",
        "start(a#?) start(b#?)",
    );
    // completed ones may be removed from the runtime
    check("Always i:init j:init a", "sb0 j=exit0", "start(a#?)");
    check("Always i:init a", "sb0 a=run", "nothing");
    check("Always i:init a", "sb0 a=exit1", "start(a#1)");
    check("Always i:init a", "sb0 i=unknown a=run", "kill(i)");
}

#[test]
fn failed_init_container_restarts_or_fails_pod() {
    check("Always i:init a", "sb0 i=exit1", "init(i#1)");
    check(
        "OnFailure i:init j:init a",
        "sb0 i=exit0 j#2=exit1",
        "init(j#3)",
    );
    check("Never i:init a", "sb0 i=exit1", "kill-pod");
    check("Never i:init a", "sb0! i=exit1", "nothing");
}

#[test]
fn new_sandbox_reruns_all_init_containers() {
    check(
        "Always i:init j:init a",
        "sb0! i=exit0 j=exit0 a=exit137",
        "kill-pod sandbox#1 init(i#1)",
    );
    let before = "sb0! i=exit0 j=exit0 a=exit137 sb1";
    let all = "Always i:init j:init a";
    check(all, before, "init(i#1)");
    check(all, &format!("{before} i#1=run"), "nothing");
    check(all, &format!("{before} i#1=exit0"), "init(j#1)");
    check(all, &format!("{before} i#1=exit0 j#1=exit0"), "start(a#1)");
}

#[test]
fn sidecars_start_in_order_and_run_with_the_pod() {
    check("Always s:sidecar i:init a", "sb0", "init(s#?)");
    check("Always s:sidecar i:init a", "sb0 s=run", "init(i#?)");
    check("Always s:sidecar i:init a", "sb0 s=run i=run", "nothing");
    check(
        "Always s:sidecar i:init a",
        "sb0 s=exit1 i=run",
        "init(s#1)",
    );
    check(
        "Always s:sidecar i:init a",
        "sb0 s=run i=exit0",
        "start(a#?)",
    );
    check(
        "Always i:init s:sidecar a",
        "sb0 i=exit0 s=run",
        "start(a#?)",
    );
    check(
        "Always s:sidecar t:sidecar a",
        "sb0 s=run t=run a=run",
        "nothing",
    );
    check("Never s:sidecar a", "sb0 s=exit0 a=run", "init(s#1)");
    check(
        "Always s:sidecar t:sidecar a",
        "sb0 a=run",
        "init(s#?) init(t#?)",
    );
    check(
        "Always s:sidecar a",
        "sb0 s=exit1 a=exit1",
        "init(s#1) start(a#1)",
    );
}

#[test]
fn containers_wait_for_startup_probe_of_sidecar() {
    let probed = "Always s:sidecar+startup i:init a";
    check(probed, "sb0 s=run", "nothing");
    check_probed(probed, "sb0 s=run", "startup:s=yes", "init(i#?)");
    check_probed(probed, "sb0 s=run", "startup:s=no", "kill(s) init(s#1)");
    let last = "Always i:init s:sidecar+startup a";
    check(last, "sb0 i=exit0 s=run", "nothing");
    check_probed(last, "sb0 i=exit0 s=run", "startup:s=yes", "start(a#?)");
    // its restart does not hold back later containers
    check(last, "sb0 i=exit0 s=run a=run", "nothing");
    check(last, "sb0 i=exit0 s=run a=exit1", "start(a#1)");
    check(last, "sb0 i=exit0 s=exit1 a=run", "init(s#1)");
    // in a new sandbox it holds back all later containers
    check(
        last,
        "sb0! i=exit0 s=exit1 a=exit1 sb1 i#1=exit0 s#1=run",
        "nothing",
    );
    check("Always s:sidecar a", "sb0 s=created", "remove(s) init(s#0)");
}

#[test]
fn sidecar_with_failed_probe_restarts_under_any_policy() {
    let probed = "Never s:sidecar+liveness a";
    check_probed(probed, "sb0 s=run a=run", "liveness:s=yes", "nothing");
    check_probed(
        probed,
        "sb0 s=run a=run",
        "liveness:s=no",
        "kill(s) init(s#1)",
    );
    // no container starts after a sidecar that is killed
    check_probed(probed, "sb0 s=run", "liveness:s=no", "kill(s) init(s#1)");
    check_probed(probed, "sb0 s=run a=exit0", "liveness:s=no", "kill-pod");
}

#[test]
fn failed_probe_kills_container_and_policy_restarts_it() {
    let check = |spec: &str, results, expected| {
        check_probed(spec, "sb0 a=run b=run", results, expected);
    };
    let (alive, dead) = ("liveness:a=yes", "liveness:a=no");
    check("Always a+liveness b", alive, "nothing");
    check("Always a+liveness b", dead, "kill(a) start(a#1)");
    check(
        "OnFailure a+startup b",
        "startup:a=no",
        "kill(a) start(a#1)",
    );
    check("Never a+liveness b", dead, "kill(a)");
    check("Never a:Always+liveness b", dead, "kill(a) start(a#1)");
    check("Always a:Never+liveness b", dead, "kill(a)");
    // a result of a probe that was removed from the spec
    check("Always a b", dead, "nothing");
    check_probed("Never a+liveness", "sb0 a=run", dead, "kill(a)");
    check_probed(
        "Always a+liveness",
        "sb0 a=run~",
        dead,
        "kill(a) start(a#1)",
    );
}

#[test]
fn result_of_previous_instance_does_not_count() {
    let pod = pod("Always a+liveness");
    let results = probe_results(&observed(&pod, "sb0 a=run"), "liveness:a=no");
    let found = observed(&pod, "sb0 a=exit137 a#1=run");
    let actions = compute_pod_actions(ActionsInput {
        pod: &pod,
        observed: &found,
        backoff: &BackoffTable::default(),
        probe_results: &results,
        policy: BackoffPolicy::DEFAULT,
        now: at(5000),
    });
    assert_eq!(actions.to_string(), "nothing");
}

#[test]
fn killed_container_has_probe_grace_period() {
    let kill = |spec: &str, found: &str, results: &str| {
        let pod = pod(spec);
        let found = observed(&pod, found);
        let actions = compute_pod_actions(ActionsInput {
            pod: &pod,
            observed: &found,
            backoff: &BackoffTable::default(),
            probe_results: &probe_results(&found, results),
            policy: BackoffPolicy::DEFAULT,
            now: at(5000),
        });
        let kill = &actions.containers_to_kill[0];
        let grace = kill.grace.map(|g| g.as_secs());
        (kill.message.clone(), grace)
    };
    for (spec, results, message) in [
        (
            "Always a+liveness",
            "liveness:a=no",
            "Container a failed liveness probe, will be restarted",
        ),
        (
            "Always a+startup",
            "startup:a=no",
            "Container a failed startup probe, will be restarted",
        ),
        (
            "Never a+liveness",
            "liveness:a=no",
            "Container a failed liveness probe",
        ),
        (
            "Always a:sidecar+startup b",
            "startup:a=no",
            "Init container a failed startup probe",
        ),
    ] {
        let expected = (message.to_owned(), Some(7));
        assert_eq!(kill(spec, "sb0 a=run", results), expected);
    }
    assert_eq!(kill("Always a+liveness", "sb0 a=run~", "").1, None);
}

#[test]
fn ephemeral_container_starts_once() {
    let debug = "Always i:init a e:ephemeral";
    check("Always a e:ephemeral", "", "sandbox#0 start(a#?)");
    check("Always a e:ephemeral", "sb0 a=run", "ephemeral(e#?)");
    check("Always a e:ephemeral", "sb0 a=run e=run", "nothing");
    check("Always a e:ephemeral", "sb0 a=run e=exit1", "nothing");
    check("Always a e:ephemeral", "sb0 a=run e=unknown", "nothing");
    check(
        "Always a e:ephemeral f:ephemeral",
        "sb0 a=run e=run",
        "ephemeral(f#?)",
    );
    // the agent was killed between creation and start
    check(
        "Always a e:ephemeral",
        "sb0 a=run e=created",
        "remove(e) ephemeral(e#0)",
    );
    check(debug, "sb0 i=run", "ephemeral(e#?)");
    check(debug, "sb0 i=exit1", "ephemeral(e#?) init(i#1)");
    // its sandbox was removed
    check(debug, "sb0! i=exit0 a=exit1 e=exit1 sb1 i#1=run", "nothing");
}

#[test]
fn ephemeral_container_does_not_keep_pod_running() {
    check("Never a e:ephemeral", "sb0 a=exit0 e=run", "kill-pod");
    check("Never a e:ephemeral", "sb0 a=exit0", "kill-pod");
    check(
        "Never i:init a e:ephemeral",
        "sb0 i=exit1 e=run",
        "kill-pod",
    );
    check("Never a e:ephemeral", "sb0! a=exit0 e=exit0", "nothing");
}

#[test]
fn removed_ephemeral_container_does_not_run_again() {
    let mut pod = pod("Always a e:ephemeral");
    pod.status = serde_json::from_value(serde_json::json!({
        "ephemeralContainerStatuses": [{"name": "e", "containerID": "containerd://gone",
            "image": "", "imageID": "", "ready": false, "restartCount": 0}]}))
    .expect("a status");
    let found = observed(&pod, "sb0 a=run");
    let line = decide(&pod, &found, &BackoffTable::default(), at(5000)).to_string();
    assert_eq!(line, "nothing");
}

#[test]
fn exit_code_rules_precede_policy() {
    check(
        "Never a:Never+again42 b",
        "sb0 a=exit42 b=run",
        "start(a#1)",
    );
    check("Never a:Never+again42 b", "sb0 a=exit1 b=run", "nothing");
    check("Never i:init+again42 a", "sb0 i=exit42", "init(i#1)");
    check("Never i:init+again42 a", "sb0 i=exit1", "kill-pod");
}

#[test]
fn restart_rule_restarts_all_containers() {
    let spec = "Never i:init s:sidecar a:Never+all88 b";
    let found = "sb0 i=exit0 s=run a=exit88 b=exit1";
    check(spec, found, "reset(i) reset(s) reset(b) reset(a)");
    check(spec, "sb0 i=exit0 s=run a=exit1 b=run", "nothing");
    // the reset continues while one of its sources remains
    check(spec, "sb0 a=exit88", "reset(a)");
    check(spec, "sb0", "init(i#?)");
    // an older instance is removed with the newest but not a source
    check(
        spec,
        "sb0 a=exit88 a#1=exit88 b=run",
        "reset(a) reset(b) reset(a)",
    );
    check(spec, "sb0 i=exit0 s=run a=exit88 a#1=run b=run", "nothing");
    let sidecar = "Always s:sidecar+all88 a";
    check(sidecar, "sb0 s=exit88 a=run", "reset(a) reset(s)");
    check("Never i:init+all88 a", "sb0 i=exit88", "reset(i)");
    // a stopped sandbox is replaced afterwards
    check(sidecar, "sb0! s=exit88 a=exit137", "reset(a) reset(s)");
    check(sidecar, "sb0!", "kill-pod sandbox#1 init(s#?)");
    check(
        "Always a+all88 e:ephemeral",
        "sb0 a=exit88 e=run",
        "reset(a)",
    );
}

#[test]
fn reset_waits_for_back_off_of_its_source() {
    let pod = pod("Never a:Never+all88 b");
    let mut table = BackoffTable::default();
    let key = restart_key(&pod, &pod.containers()[0]);
    table.next(&key, BackoffPolicy::DEFAULT, at(10));
    for (found, waiting) in [
        // a exited at 15, b at 25
        ("sb0 a=exit88 b=run", "wait(a 10s)"),
        ("sb0 a=exit88 b=exit0", "wait(a 10s)"),
    ] {
        let found = observed(&pod, found);
        assert_eq!(decide(&pod, &found, &table, at(24)).to_string(), waiting);
        let due = decide(&pod, &found, &table, at(25)).to_string();
        assert_eq!(due, "reset(b) reset(a)");
    }
}

#[test]
fn restart_waits_for_back_off() {
    let pod = pod("Always a b");
    let found = observed(&pod, "sb0 b=run a#1=exit1");
    let mut table = BackoffTable::default();
    let key = restart_key(&pod, &pod.containers()[0]);
    table.next(&key, BackoffPolicy::DEFAULT, at(0));
    table.next(&key, BackoffPolicy::DEFAULT, at(10));
    // the instance exited at 25, the delay is 20 s
    let waiting = decide(&pod, &found, &table, at(44));
    assert_eq!(waiting.to_string(), "wait(a 20s)");
    assert_eq!(waiting.backing_off[0].until, at(45));
    let due = decide(&pod, &found, &table, at(45));
    assert_eq!(due.to_string(), "start(a#2)");
    assert!(due.containers_to_start[0].restart, "counts as a failure");
}

#[test]
fn waiting_container_keeps_pod_and_sidecars_running() {
    let pod = pod("OnFailure s:sidecar a");
    let found = observed(&pod, "sb0 s=run a=exit1");
    let mut table = BackoffTable::default();
    let key = restart_key(&pod, &pod.containers()[0]);
    table.next(&key, BackoffPolicy::DEFAULT, at(20));
    let line = decide(&pod, &found, &table, at(26)).to_string();
    assert_eq!(line, "wait(a 10s)");
}

#[test]
fn kill_messages_match_upstream() {
    let pod = pod("Always a");
    let message = |found| {
        let found = observed(&pod, found);
        let actions = decide(&pod, &found, &BackoffTable::default(), at(5000));
        actions.containers_to_kill[0].message.clone()
    };
    assert_eq!(
        message("sb0 a=run~"),
        "Container a definition changed, will be restarted"
    );
    assert_eq!(
        message("sb0 a=unknown"),
        "Container is in \"unknown\" state, try killing it before restart"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_state_has_one_instance_and_no_app_before_init(
        spec in any_pod(),
        found in any_found(),
    ) {
        let pod = pod(&spec);
        let found = observed(&pod, &found);
        let actions = decide(&pod, &found, &BackoffTable::default(), at(5000));
        model::assert_safe(&pod, &found, &PodProbeResults::default(), &actions);
    }

    #[test]
    fn executed_actions_converge_to_nothing(
        spec in any_pod(),
        found in any_found(),
        luck in proptest::collection::vec(0_u8..9, 0..12),
    ) {
        let pod = pod(&spec);
        let mut fixture = model::Fixture::new(&pod, observed(&pod, &found));
        fixture.live(&luck);
        fixture.rest();
    }

    #[test]
    fn repeated_collection_converges(
        spec in any_pod(),
        found in any_found(),
        luck in proptest::collection::vec(0_u8..9, 1..40),
    ) {
        let pod = pod(&spec);
        let mut fixture = model::Fixture::new(&pod, observed(&pod, &found));
        fixture.live(&luck);
        fixture.settle();
    }
}
