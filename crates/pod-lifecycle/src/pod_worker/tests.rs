//! Scripts of the state machine, and its invariants for any inputs.

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).expect("in range")
}

fn worker() -> PodWorker {
    PodWorker::new("uid".into(), 30 * SECOND, 60 * SECOND, true)
}

fn synced() -> JobResult {
    JobResult::Synced {
        retry_at: None,
        terminal: false,
    }
}

/// Handles inputs at their times and compares the effects.
fn check(mut worker: PodWorker, script: &[(i64, Input, &str)]) {
    for (seconds, input, expected) in script {
        let effects = worker.handle(*input, at(*seconds));
        let lines: Vec<_> = effects
            .iter()
            .map(|e| match e {
                // the jitter has its own test
                Effect::Wake(_) => "wake".to_owned(),
                e => e.to_string(),
            })
            .collect();
        assert_eq!(lines.join(" "), *expected, "after {input:?} at {seconds}");
    }
}

#[test]
fn pod_is_synced_terminated_and_cleaned_up() {
    check(
        worker(),
        &[
            (0, Input::PodUpdated, "sync#1"),
            (1, Input::JobFinished(JobId(1), synced()), "wake"),
            (2, Input::Resync, "sync#2"),
            (2, Input::Resync, ""),
            (3, Input::JobFinished(JobId(2), synced()), "wake sync#3"),
            (4, Input::JobFinished(JobId(3), synced()), "wake"),
            (5, Input::Terminate(None), "kill#4(30s)"),
            (
                6,
                Input::JobFinished(JobId(4), JobResult::Killed(Ok(()))),
                "release#5",
            ),
            (
                7,
                Input::JobFinished(JobId(5), JobResult::Released(Ok(()))),
                "finished",
            ),
            (8, Input::Resync, ""),
            (8, Input::Terminate(Some(SECOND)), ""),
            (9, Input::TimerFired, ""),
        ],
    );
}

#[test]
fn termination_cancels_sync_and_shorter_grace_restarts_it() {
    check(
        worker(),
        &[
            (0, Input::PodUpdated, "sync#1"),
            (1, Input::Terminate(None), "cancel#1"),
            (
                1,
                Input::JobFinished(JobId(1), JobResult::Cancelled),
                "kill#2(30s)",
            ),
            (2, Input::Terminate(Some(60 * SECOND)), ""),
            (3, Input::Terminate(Some(5 * SECOND)), "cancel#2"),
            (
                3,
                Input::JobFinished(JobId(2), JobResult::Cancelled),
                "kill#3(5s)",
            ),
            (4, Input::Terminate(Some(Duration::ZERO)), "cancel#3"),
            (
                4,
                Input::JobFinished(JobId(3), JobResult::Cancelled),
                "kill#4(1s)",
            ),
        ],
    );
}

#[test]
fn sync_done_before_cancellation_changes_nothing() {
    check(
        worker(),
        &[
            (0, Input::PodUpdated, "sync#1"),
            (1, Input::Terminate(None), "cancel#1"),
            (1, Input::JobFinished(JobId(1), synced()), "kill#2(30s)"),
        ],
    );
}

#[test]
fn terminating_sync_done_before_cancellation_counts() {
    check(
        worker(),
        &[
            (0, Input::Terminate(None), "kill#1(30s)"),
            (1, Input::Terminate(Some(SECOND)), "cancel#1"),
            (
                1,
                Input::JobFinished(JobId(1), JobResult::Killed(Ok(()))),
                "release#2",
            ),
        ],
    );
}

#[test]
fn completed_pod_is_terminated_and_cleaned_up() {
    let terminal = JobResult::Synced {
        retry_at: None,
        terminal: true,
    };
    check(
        worker(),
        &[
            (0, Input::PodUpdated, "sync#1"),
            (1, Input::JobFinished(JobId(1), terminal), "kill#2(30s)"),
            (1, Input::PodUpdated, ""),
            (
                2,
                Input::JobFinished(JobId(2), JobResult::Killed(Err(Retry::Soon))),
                "wake",
            ),
            (9, Input::TimerFired, "kill#3(30s)"),
            (
                9,
                Input::JobFinished(JobId(3), JobResult::Killed(Ok(()))),
                "release#4",
            ),
        ],
    );
}

#[test]
fn no_job_starts_until_runtime_is_ready() {
    check(
        PodWorker::new("uid".into(), 30 * SECOND, 60 * SECOND, false),
        &[
            (0, Input::PodUpdated, ""),
            (1, Input::Resync, ""),
            (2, Input::RuntimeReady(true), "sync#1"),
            (3, Input::RuntimeReady(false), ""),
            (3, Input::JobFinished(JobId(1), synced()), "wake"),
            (4, Input::Terminate(None), ""),
            (5, Input::RuntimeReady(true), "kill#2(30s)"),
        ],
    );
}

#[test]
fn result_of_other_job_is_ignored() {
    check(
        worker(),
        &[
            (0, Input::PodUpdated, "sync#1"),
            (
                0,
                Input::JobFinished(JobId(7), JobResult::Killed(Ok(()))),
                "",
            ),
            (1, Input::JobFinished(JobId(1), synced()), "wake"),
            (1, Input::JobFinished(JobId(1), synced()), ""),
        ],
    );
}

#[test]
fn timer_is_earlier_of_retry_and_jittered_resync() {
    let mut worker = worker();
    worker.handle(Input::PodUpdated, at(0));
    let retry = JobResult::Synced {
        retry_at: Some(at(10)),
        terminal: false,
    };
    assert_eq!(
        worker.handle(Input::JobFinished(JobId(1), retry), at(0)),
        [Effect::Wake(at(10))]
    );
    assert_eq!(worker.handle(Input::TimerFired, at(9)), []);
    assert_eq!(
        worker.handle(Input::TimerFired, at(10)),
        [Effect::Start(JobId(2), Job::SyncPod)]
    );
    worker.handle(Input::JobFinished(JobId(2), synced()), at(100));
    let wake = worker.next_wake_up(at(100)).expect("armed").as_secs();
    assert!((30..=90).contains(&wake), "{wake}");
}

#[test]
fn clock_set_back_does_not_extend_timer() {
    let failed = || JobResult::Killed(Err(Retry::Later));
    let terminating = |now| {
        let mut worker = worker();
        worker.handle(Input::Terminate(None), at(now));
        worker.handle(Input::JobFinished(JobId(1), failed()), at(now));
        worker
    };
    let mut worker = terminating(10_000);
    let armed = worker.next_wake_up(at(10_000)).expect("armed");
    assert!((5 * SECOND..=15 * SECOND).contains(&armed), "{armed:?}");
    // another input arms the timer again
    worker.handle(Input::Resync, at(6_400));
    assert_eq!(worker.next_wake_up(at(6_400)), Some(armed));
    let effects = worker.handle(Input::TimerFired, at(6_420));
    assert_eq!(effects.len(), 1, "retried: {effects:?}");
    // a timer that fires early is armed for the remaining time
    let mut worker = terminating(10_000);
    assert_eq!(worker.handle(Input::TimerFired, at(10_001)), []);
    assert_eq!(worker.next_wake_up(at(10_001)), Some(armed - SECOND));
}

fn inputs() -> impl Strategy<Value = Vec<(u8, u64, u64)>> {
    prop::collection::vec((0u8..9, 0u64..6, 0u64..40), 0..60)
}

/// Terminates the worker with successful jobs; returns the jobs.
fn terminate(mut worker: PodWorker, running: Option<JobId>, now: i64) -> Vec<Job> {
    let mut jobs = Vec::new();
    let mut inputs = vec![Input::RuntimeReady(true), Input::Terminate(None)];
    // a cancelled job has a result too
    inputs.extend(running.map(|id| Input::JobFinished(id, JobResult::Cancelled)));
    for _ in 0..10 {
        for input in std::mem::take(&mut inputs) {
            for effect in worker.handle(input, at(now)) {
                match effect {
                    Effect::Start(id, job) => {
                        jobs.push(job);
                        inputs.push(Input::JobFinished(
                            id,
                            match job {
                                Job::SyncPod => JobResult::Cancelled,
                                Job::SyncTerminatingPod { .. } => JobResult::Killed(Ok(())),
                                Job::SyncTerminatedPod => JobResult::Released(Ok(())),
                            },
                        ));
                    }
                    Effect::Finished => return jobs,
                    Effect::Cancel(_) | Effect::Wake(_) => {}
                }
            }
        }
        // an earlier failure is retried by the timer
        if let Some(wait) = worker.next_wake_up(at(now)) {
            let due = now + wait.as_secs() as i64 + 1;
            for effect in worker.handle(Input::TimerFired, at(due)) {
                if let Effect::Start(id, job) = effect {
                    jobs.push(job);
                    let result = match job {
                        Job::SyncTerminatedPod => JobResult::Released(Ok(())),
                        _ => JobResult::Killed(Ok(())),
                    };
                    inputs.push(Input::JobFinished(id, result));
                }
            }
        }
    }
    panic!("not finished: {worker:?}");
}

fn result(pick: u64, retry: Retry) -> Result<(), Retry> {
    match pick {
        0..3 => Ok(()),
        _ => Err(retry),
    }
}

proptest! {
    #[test]
    fn one_job_at_a_time_and_states_advance(script in inputs()) {
        let mut worker = worker();
        let mut running: Option<JobId> = None;
        let mut rank = 0;
        let mut finished = false;
        let mut now = 0i64;
        for (kind, pick, seconds) in script {
            now += seconds as i64;
            let id = match running { Some(id) if pick > 0 => id, _ => JobId(pick) };
            let input = match kind {
                0 => Input::PodUpdated,
                1 => Input::Resync,
                2 => Input::Terminate(Some(Duration::from_secs(seconds))),
                3 => Input::TimerFired,
                4 => Input::RuntimeReady(pick > 0),
                5 => {
                    let terminal = pick == 5;
                    Input::JobFinished(id, JobResult::Synced { retry_at: None, terminal })
                }
                6 => Input::JobFinished(id, JobResult::Killed(result(pick, Retry::Soon))),
                7 => Input::JobFinished(id, JobResult::Released(result(pick, Retry::Later))),
                _ => Input::JobFinished(id, JobResult::Cancelled),
            };
            if let Input::JobFinished(done, _) = input && running == Some(done) {
                running = None;
            }
            for effect in worker.handle(input, at(now)) {
                prop_assert!(!finished, "{effect} after the end");
                match effect {
                    Effect::Start(id, _) => {
                        prop_assert_eq!(running, None);
                        running = Some(id);
                    }
                    Effect::Cancel(id) => prop_assert_eq!(running, Some(id)),
                    Effect::Finished => finished = true,
                    Effect::Wake(when) => prop_assert!(when >= at(now)),
                }
            }
            let new_rank = match worker.state() {
                State::SyncPod => 0,
                State::TerminatingPod { .. } => 1,
                State::TerminatedPod { .. } => 2,
            };
            prop_assert!(new_rank >= rank);
            rank = new_rank;
            if finished {
                prop_assert_eq!(worker.next_wake_up(at(now)), None);
            }
        }
        if !finished {
            let jobs = terminate(worker, running, now);
            prop_assert_eq!(jobs.last(), Some(&Job::SyncTerminatedPod));
            let is_stop = |job: &&Job| matches!(job, Job::SyncTerminatingPod { .. });
            let stops = jobs.iter().filter(is_stop).count();
            let releases = jobs.iter().filter(|job| **job == Job::SyncTerminatedPod).count();
            prop_assert!(stops <= 1 && releases == 1, "{:?}", jobs);
        }
    }
}
