//! Runs one probe attempt and evaluates its outcome, independently of other attempts.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use windlass_checks::{CheckError, Checks};
use windlass_cri::{CriCode, RuntimeService};
use windlass_mailboxes::CompletionSender;
use windlass_pod_lifecycle::probe::{
    ExecFailure, MAX_ATTEMPTS, ProbeHandler, ProbeOutcome, ProbeSpec, evaluate_exec, evaluate_grpc,
    evaluate_http, evaluate_tcp,
};
use windlass_store::ProbeResultFile;
use windlass_types::ContainerId;

use crate::timers::ProbeId;

/// Time beyond the probe timeout before an attempt is abandoned: the runtime has to kill the
/// command first.
const KILL_ALLOWANCE: Duration = Duration::from_secs(2);

/// Time that the publication of a result waits for the disk.
const PERSIST_TIMEOUT: Duration = Duration::from_secs(1);

/// One attempt of the probe of one container instance.
#[derive(Clone, Debug)]
pub(crate) struct ProbeAttempt {
    /// ID of the probe.
    pub id: ProbeId,
    /// The container instance.
    pub container: ContainerId,
    /// The probe.
    pub spec: Arc<ProbeSpec>,
    /// Why the attempt cannot run.
    pub problem: Option<Arc<str>>,
}

/// Completion of a task of the manager.
#[derive(Debug)]
pub enum Completion {
    /// An attempt ended.
    Finished(ProbeId, ProbeOutcome, Duration),
    /// An attempt timed out, but its runtime call has not returned; [`Completion::Returned`]
    /// follows.
    Abandoned(ProbeId, ProbeOutcome, Duration),
    /// The runtime call of an abandoned attempt returned.
    Returned(ProbeId),
    /// These results are persisted.
    Persisted(Vec<(ProbeId, bool)>),
}

/// Runs an attempt, with up to three tries if it cannot run, and sends the completion.
pub(crate) async fn run_attempt(
    attempt: ProbeAttempt,
    runtime: Arc<dyn RuntimeService>,
    checks: Arc<dyn Checks>,
    completions: CompletionSender<Completion>,
) {
    let begin = Instant::now();
    let id = attempt.id;
    if let Some(problem) = &attempt.problem {
        let outcome = ProbeOutcome::Error(problem.to_string());
        return completions.send(Completion::Finished(id, outcome, begin.elapsed()));
    }
    let mut tries = 1;
    loop {
        let outcome = match &attempt.spec.handler {
            ProbeHandler::Exec(command) => {
                let limit = attempt.spec.timeout;
                let run = run_command(runtime.as_ref(), &attempt, command);
                tokio::pin!(run);
                match timeout(limit + KILL_ALLOWANCE, &mut run).await {
                    Ok(outcome) => outcome,
                    Err(_) => {
                        let outcome = evaluate_exec(command, limit, &Err(ExecFailure::TimedOut));
                        completions.send(Completion::Abandoned(id, outcome, begin.elapsed()));
                        // only one command may run at a time
                        run.await;
                        return completions.send(Completion::Returned(id));
                    }
                }
            }
            handler => run_request(checks.as_ref(), handler, attempt.spec.timeout).await,
        };
        let again = matches!(outcome, ProbeOutcome::Error(_)) && tries < MAX_ATTEMPTS;
        if !again {
            return completions.send(Completion::Finished(id, outcome, begin.elapsed()));
        }
        tries += 1;
    }
}

/// Waits until results are persisted. A slow disk delays their publication only briefly.
pub(crate) async fn persist(
    results: Vec<(ProbeId, bool)>,
    file: ProbeResultFile,
    completions: CompletionSender<Completion>,
) {
    match timeout(PERSIST_TIMEOUT, file.flush()).await {
        Ok(Ok(())) => {}
        // the file logs the error itself
        Ok(Err(error)) => tracing::debug!(%error, "persisting probe results failed"),
        Err(_) => tracing::warn!(limit = ?PERSIST_TIMEOUT, "persisting probe results timed out"),
    }
    completions.send(Completion::Persisted(results));
}

/// Runs a command; the runtime kills it after its timeout, and the call has its own deadline.
async fn run_command(
    runtime: &dyn RuntimeService,
    attempt: &ProbeAttempt,
    command: &[String],
) -> ProbeOutcome {
    let limit = attempt.spec.timeout;
    let answer = runtime.exec_sync(&attempt.container, command, limit).await;
    let answer = answer.map_err(|error| match error.code {
        CriCode::DeadlineExceeded => ExecFailure::TimedOut,
        _ => ExecFailure::Failed(error.message),
    });
    evaluate_exec(command, limit, &answer)
}

async fn run_request(checks: &dyn Checks, handler: &ProbeHandler, limit: Duration) -> ProbeOutcome {
    let deadline = limit + KILL_ALLOWANCE;
    match handler {
        ProbeHandler::Http(target) => {
            let answer = timeout(deadline, checks.http(target, Some(limit))).await;
            evaluate_http(target, &in_time(answer, limit))
        }
        ProbeHandler::Tcp { host, port } => {
            let answer = timeout(deadline, checks.tcp(host, *port, limit)).await;
            evaluate_tcp(host, *port, &in_time(answer, limit))
        }
        ProbeHandler::Grpc {
            host,
            port,
            service,
        } => {
            let answer = timeout(deadline, checks.grpc(host, *port, service, limit)).await;
            evaluate_grpc(host, *port, &in_time(answer, limit))
        }
        ProbeHandler::Exec(_) => ProbeOutcome::Error("not a network probe".to_owned()),
    }
}

fn in_time<T>(
    answer: Result<Result<T, CheckError>, tokio::time::error::Elapsed>,
    limit: Duration,
) -> Result<T, CheckError> {
    answer.unwrap_or(Err(CheckError::TimedOut(limit)))
}
