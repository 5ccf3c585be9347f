//! Puts one question to one container and judges the answer. Each runs by itself, for as long as
//! its own timeout and a little more, whatever the others do.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use windlass_actors::CompletionSender;
use windlass_checks::{CheckError, Checks};
use windlass_pod_lifecycle::probe::{
    ExecFailure, MAX_TRIES, ProbeHandler, ProbeOutcome, ProbeSpec, judge_exec, judge_grpc,
    judge_http, judge_tcp,
};
use windlass_cri::{CriCode, RuntimeService};
use windlass_store::ProbeResultFile;
use windlass_types::ContainerId;

use crate::wheel::ProbeId;

/// What an answer may take beyond the probe's timeout, which whoever carries the question out
/// keeps itself: a runtime has to kill the command first. Then the question is given up.
const SLACK: Duration = Duration::from_secs(2);

/// How long a verdict waits for the disk at most.
const DISK: Duration = Duration::from_secs(1);

/// A question to one container instance.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// Whose.
    pub id: ProbeId,
    /// The container.
    pub container: ContainerId,
    /// What is asked.
    pub spec: Arc<ProbeSpec>,
    /// Why it cannot be put.
    pub problem: Option<Arc<str>>,
}

/// What came of a question.
#[derive(Debug)]
pub enum Answer {
    /// It was answered.
    Came(ProbeId, ProbeOutcome, Duration),
    /// It was not answered in time, and the runtime is still at it: [`Answer::Returned`] follows.
    GivenUp(ProbeId, ProbeOutcome, Duration),
    /// The runtime is done with a question that was given up.
    Returned(ProbeId),
    /// These verdicts are on the disk.
    Recorded(Vec<(ProbeId, bool)>),
}

/// Puts the question, at most three times if it cannot be put, and leaves the answer.
pub(crate) async fn ask(
    question: Question,
    runtime: Arc<dyn RuntimeService>,
    checks: Arc<dyn Checks>,
    completions: CompletionSender<Answer>,
) {
    let begin = Instant::now();
    let id = question.id;
    if let Some(problem) = &question.problem {
        let outcome = ProbeOutcome::Error(problem.to_string());
        return completions.send(Answer::Came(id, outcome, begin.elapsed()));
    }
    let mut tries = 1;
    loop {
        let outcome = match &question.spec.handler {
            ProbeHandler::Exec(command) => {
                let limit = question.spec.timeout;
                let run = run(runtime.as_ref(), &question, command);
                tokio::pin!(run);
                match timeout(limit + SLACK, &mut run).await {
                    Ok(outcome) => outcome,
                    Err(_) => {
                        let outcome = judge_exec(command, limit, &Err(ExecFailure::TimedOut));
                        completions.send(Answer::GivenUp(id, outcome, begin.elapsed()));
                        // a second command must not join it
                        run.await;
                        return completions.send(Answer::Returned(id));
                    }
                }
            }
            handler => over_the_network(checks.as_ref(), handler, question.spec.timeout).await,
        };
        let again = matches!(outcome, ProbeOutcome::Error(_)) && tries < MAX_TRIES;
        if !again {
            return completions.send(Answer::Came(id, outcome, begin.elapsed()));
        }
        tries += 1;
    }
}

/// Sees verdicts to the disk. One that does not write holds no verdict up for long: the container
/// is what its users wait for.
pub(crate) async fn write(
    verdicts: Vec<(ProbeId, bool)>,
    file: ProbeResultFile,
    completions: CompletionSender<Answer>,
) {
    match timeout(DISK, file.flush()).await {
        Ok(Ok(())) => {}
        // the file itself reports it
        Ok(Err(error)) => tracing::debug!(%error, "verdicts not on the disk"),
        Err(_) => tracing::warn!(limit = ?DISK, "verdicts not on the disk in time"),
    }
    completions.send(Answer::Recorded(verdicts));
}

/// The runtime kills the command after its timeout; the call has a deadline of its own.
async fn run(
    runtime: &dyn RuntimeService,
    question: &Question,
    command: &[String],
) -> ProbeOutcome {
    let limit = question.spec.timeout;
    let answer = runtime.exec_sync(&question.container, command, limit).await;
    let answer = answer.map_err(|error| match error.code {
        CriCode::DeadlineExceeded => ExecFailure::TimedOut,
        _ => ExecFailure::Failed(error.message),
    });
    judge_exec(command, limit, &answer)
}

async fn over_the_network(
    checks: &dyn Checks,
    handler: &ProbeHandler,
    limit: Duration,
) -> ProbeOutcome {
    let patience = limit + SLACK;
    match handler {
        ProbeHandler::Http(target) => {
            let answer = timeout(patience, checks.http(target, Some(limit))).await;
            judge_http(target, &in_time(answer, limit))
        }
        ProbeHandler::Tcp { host, port } => {
            let answer = timeout(patience, checks.tcp(host, *port, limit)).await;
            judge_tcp(host, *port, &in_time(answer, limit))
        }
        ProbeHandler::Grpc {
            host,
            port,
            service,
        } => {
            let answer = timeout(patience, checks.grpc(host, *port, service, limit)).await;
            judge_grpc(host, *port, &in_time(answer, limit))
        }
        ProbeHandler::Exec(_) => ProbeOutcome::Error("a command is not run here".to_owned()),
    }
}

fn in_time<T>(
    answer: Result<Result<T, CheckError>, tokio::time::error::Elapsed>,
    limit: Duration,
) -> Result<T, CheckError> {
    answer.unwrap_or(Err(CheckError::TimedOut(limit)))
}
