//! `windlassctl`: inspects the node agent over its local socket.
//!
//! Pure functions compute the output from the response and the current time. Exit code 1 is an
//! error, printed as one line with its remedy.

mod args;
mod assigned;
mod client;
mod error;
mod pod;

mod age;
mod status;
mod table;

mod check;
mod describe;
mod eviction;
mod explain;
mod get;
mod logs;
mod node;
mod timeline;
mod top;

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser};
use tokio::time::timeout;
use windlass_types::Timestamp;

use crate::args::{Arguments, Command};
use crate::client::Client;
use crate::error::Error;

/// Time without a response after which a message is printed.
const SLOW_RESPONSE_THRESHOLD: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // help and version are not errors
            let failed = error.use_stderr();
            let _printed = error.print();
            return if failed {
                ExitCode::FAILURE
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    match dispatch(arguments) {
        Ok(code) => code,
        // the reader closed the pipe (`windlassctl … | head`)
        Err(Error::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let _printed = writeln!(io::stderr(), "windlassctl: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs commands that need no agent; the others in [`run`].
fn dispatch(arguments: Arguments) -> Result<ExitCode, Error> {
    match &arguments.command {
        Command::Version => {
            writeln!(io::stdout(), "windlassctl v{}", env!("CARGO_PKG_VERSION"))?;
        }
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(
                *shell,
                &mut Arguments::command(),
                "windlassctl",
                &mut script,
            );
            io::stdout().write_all(&script)?;
        }
        Command::Check(check) => return check::run(check),
        _ => {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(run(arguments))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn run(arguments: Arguments) -> Result<(), Error> {
    let socket = arguments.socket();
    let threshold = arguments
        .command
        .is_unary()
        .then_some(SLOW_RESPONSE_THRESHOLD);
    let work =
        async { Box::pin(execute(arguments.command, Client::connect(&socket).await?)).await };
    match warn_if_slow(work, threshold, &socket).await {
        Err(error) if error.is_unsupported_by_agent() => {
            let node = Client::connect(&socket).await?.node().await.ok();
            Err(Error::old_agent(node.as_ref().map(|node| &*node.version)))
        }
        other => other,
    }
}

/// Prints a message on a terminal if the response takes longer than `threshold`.
async fn warn_if_slow<T>(
    work: impl Future<Output = T>,
    threshold: Option<Duration>,
    socket: &Path,
) -> T {
    let mut work = pin!(work);
    if let Some(threshold) = threshold
        && let Ok(done) = timeout(threshold, &mut work).await
    {
        return done;
    }
    if threshold.is_some() && io::stderr().is_terminal() {
        eprintln!(
            "waiting for a response from windlass at {} …",
            socket.display()
        );
    }
    work.await
}

async fn execute(command: Command, client: Client) -> Result<(), Error> {
    match command {
        Command::Get(get) => get::run(client, &get).await,
        Command::Describe(describe) => describe::run(client, &describe).await,
        Command::Explain(explain) => explain::run(client, &explain).await,
        Command::Timeline(timeline) => timeline::run(client, &timeline).await,
        Command::Top(top) => top::run(client, &top).await,
        Command::Metrics { probes } => metrics(client, probes).await,
        Command::Logs(logs) => logs::run(client, &logs).await,
        Command::Status(status) => node::run(client, &status).await,
        Command::Version | Command::Check(_) | Command::Completion { .. } => Ok(()),
    }
}

async fn metrics(mut client: Client, probes: bool) -> Result<(), Error> {
    let text = client.metrics(probes).await?;
    io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// Formats a value as JSON.
fn pretty(value: &impl serde::Serialize) -> Result<String, Error> {
    let text = serde_json::to_string_pretty(value);
    let text = text.map_err(|error| Error::InvalidResponse(error.to_string()))?;
    Ok(text + "\n")
}

/// Returns the current time.
#[expect(
    clippy::disallowed_methods,
    reason = "the only clock of the CLI process"
)]
fn now() -> Timestamp {
    Timestamp::now()
}
