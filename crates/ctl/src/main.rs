//! `windlassctl`: shows what the node agent runs, over its local socket.
//!
//! What is printed is computed by pure functions of the agent's answer and a `now`; this file
//! only connects them. Exit code 0 is success, 1 an error, which is one line with its remedy.

mod args;
mod client;
mod error;
mod pod;

mod age;
mod status;
mod table;

mod check;
mod describe;
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

/// Without an answer for so long, it is said what is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // help and version are answers, not errors
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
        // whoever read our output has what it wanted (`windlassctl … | head`)
        Err(Error::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let _printed = writeln!(io::stderr(), "windlassctl: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What needs no agent is done here.
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
    let patience = arguments.command.is_one_answer().then_some(PATIENCE);
    let asked = async { Box::pin(ask(arguments.command, Client::connect(&socket).await?)).await };
    match told_if_slow(asked, patience, &socket).await {
        Err(error) if error.is_unknown_to_the_agent() => {
            let node = Client::connect(&socket).await?.node().await.ok();
            Err(Error::old_agent(node.as_ref().map(|node| &*node.version)))
        }
        other => other,
    }
}

/// Says on stderr that something is still waited for; who reads it may be a person.
async fn told_if_slow<T>(
    work: impl Future<Output = T>,
    patience: Option<Duration>,
    socket: &Path,
) -> T {
    let mut work = pin!(work);
    if let Some(patience) = patience
        && let Ok(done) = timeout(patience, &mut work).await
    {
        return done;
    }
    if patience.is_some() && io::stderr().is_terminal() {
        eprintln!("waiting for windlass to answer at {} …", socket.display());
    }
    work.await
}

async fn ask(command: Command, client: Client) -> Result<(), Error> {
    match command {
        Command::Get(get) => get::run(client, &get).await,
        Command::Describe(describe) => describe::run(client, &describe).await,
        Command::Explain(explain) => explain::run(client, &explain).await,
        Command::Timeline(timeline) => timeline::run(client, &timeline).await,
        Command::Top(top) => top::run(client, &top).await,
        Command::Metrics { probes } => metrics(client, probes).await,
        Command::Logs(logs) => logs::run(client, &logs).await,
        Command::Status => node::run(client).await,
        Command::Version | Command::Check(_) | Command::Completion { .. } => Ok(()),
    }
}

async fn metrics(mut client: Client, probes: bool) -> Result<(), Error> {
    let text = client.metrics(probes).await?;
    io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// A value for a program.
fn pretty(value: &impl serde::Serialize) -> Result<String, Error> {
    let text = serde_json::to_string_pretty(value);
    let text = text.map_err(|error| Error::Answer(error.to_string()))?;
    Ok(text + "\n")
}

/// The present, for ages.
#[expect(
    clippy::disallowed_methods,
    reason = "the CLI is a process of its own; this is its one clock"
)]
fn now() -> Timestamp {
    Timestamp::now()
}
