//! Status during a restart of all containers.

use super::*;

/// A pod in which exit code 42 of `a` restarts all containers.
fn case(found: &str) -> Case {
    Case::new("Never i:init a:Never b", found)
        .with(|c| c.rule("a", "RestartAllContainers", "In", &[42]))
}

fn next(before: &Case, found: &str) -> Case {
    let status = before.status();
    case(found).with(|c| c.previous = Some(status))
}

const RESTARTING: &str = "[Sandbox Initialized Scheduled AllContainersRestarting]";

#[test]
fn reset_reports_removal_and_one_restart_per_container() {
    let running = case("sb0 i=exit0 a=run b=run");
    running.shows(&format!(
        "Running {ALL} i:Completed=0#0* a:running#0* b:running#0*"
    ));
    assert_eq!(running.why("AllContainersRestarting"), "False : ");

    let exited = next(&running, "sb0 i=exit0 a=exit42 b=run");
    exited.shows(&format!(
        "Running {RESTARTING} i:Completed=0#0* a:Error=42#0 b:running#0*"
    ));
    assert_eq!(
        exited.why("AllContainersRestarting"),
        "True RestartAllContainersStarted: container exited with restart policy rule"
    );
    // no policy restarts them, but the pod has not failed
    let killed = next(&exited, "sb0 i=exit0 a=exit42 b=exit137");
    killed.shows(&format!(
        "Running {RESTARTING} i:Completed=0#0* a:Error=42#0 b:Error=137#0"
    ));
    let partly = next(&killed, "sb0 x=exit0 a=exit42");
    partly.shows(&format!(
        "Running {RESTARTING} i:RestartingAllContainers<RestartingAllContainers=137>#1 \
         a:Error=42#0 b:RestartingAllContainers<RestartingAllContainers=137>#1"
    ));
    let clean = next(&partly, "sb0");
    let waiting = "RestartingAllContainers<RestartingAllContainers=137>#1";
    clean.shows(&format!(
        "Running {STARTED} i:{waiting} a:{waiting} b:{waiting}"
    ));
    assert_eq!(clean.why("AllContainersRestarting"), "False : ");
    // the next status is equal
    assert_eq!(next(&clean, "sb0").status_at(5000), clean.status());

    let init = next(&clean, "sb0 x=exit0 x=exit0 x=exit0 i#1=run");
    init.shows(&format!(
        "Pending {STARTED} i:running<RestartingAllContainers=137>#1 a:{waiting} b:{waiting}"
    ));
    let last = "running<RestartingAllContainers=137>#1*";
    next(
        &init,
        "sb0 x=exit0 x=exit0 x=exit0 i#1=exit0 a#1=run b#1=run",
    )
    .shows(&format!(
        "Running {ALL} i:Completed=0<RestartingAllContainers=137>#1* a:{last} b:{last}"
    ));
}

#[test]
fn failed_pod_precedes_restart_of_all_containers() {
    let over = case("sb0! i=exit0 a=exit42 b=exit0").terminal();
    assert_eq!(over.why("AllContainersRestarting"), "False PodFailed: ");
    let done = Case::new("Never a:Never", "sb0 a=exit0")
        .with(|c| c.rule("a", "RestartAllContainers", "In", &[42]));
    assert_eq!(done.why("AllContainersRestarting"), "False PodCompleted: ");
    // without a rule there is no condition
    assert_eq!(
        Case::new("Always a", "sb0 a=run").why("AllContainersRestarting"),
        "-"
    );
}
