//! The agent's process: parse → build → spawn → drain.

mod cli;
mod logging;
mod process;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use windlass::health::AgentHealth;
use windlass::wiring::Agent;
use windlass::{build, wiring};
use windlass_actors::SystemClock;
use windlass_config::{Config, KubeletFlags, checks};
use windlass_core::paths::NodePaths;
use windlass_metrics::Metrics;
use windlass_server::ControlService;
use windlass_types::Clock;

/// How long the end of the process waits for short writes of state.
const DRAIN: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let flags = match cli::parse(std::env::args_os()) {
        Ok(cli::Invocation::Run(flags)) => flags,
        Ok(cli::Invocation::Print(text)) => {
            print!("{text}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    match run(&flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "windlass cannot run");
            // logging may not have been started, or be turned off
            eprintln!("windlass: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(flags: &KubeletFlags) -> anyhow::Result<()> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let config = windlass_config::load(flags)?;
    let logging = &config.kubelet.logging;
    logging::init(
        logging::format(logging),
        logging.verbosity,
        Arc::clone(&clock),
    )?;
    for warning in &config.warnings {
        tracing::warn!(%warning, "configuration");
    }
    for remark in checks::run(&config.kubelet)? {
        tracing::warn!(remark, "node");
    }
    process::prepare(&config.kubelet);
    let runtime = process::tokio_runtime()?;
    windlass_actors::run_actors(&runtime, agent(&config, clock))
}

/// Runs until a signal asks for the end. Containers go on running.
async fn agent(config: &Config, clock: Arc<dyn Clock>) -> anyhow::Result<()> {
    let metrics = Metrics::new()?;
    metrics
        .process_start_time
        .set(clock.now().as_second() as f64);
    process::make_root_dir(&config.flags.root_dir)?;
    let _lock = process::lock(config.flags.lock_file.as_deref())?;
    let parts = build::agent_parts(config, Arc::clone(&clock), metrics.clone())?;
    let paths = parts.node.paths.clone();
    metrics
        .node_name
        .with_label_values(&[&parts.node.node_name])
        .set(1.0);
    let agent = wiring::spawn(parts);
    serve(config, &agent, &paths, clock, metrics).await?;
    process::wait_for_signal().await?;
    tracing::info!("stopping; containers go on running");
    agent.shutdown.finish(DRAIN).await;
    Ok(())
}

/// Opens the health port and the local API.
async fn serve(
    config: &Config,
    agent: &Agent,
    paths: &NodePaths,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
) -> anyhow::Result<()> {
    let token = agent.shutdown.token();
    let kubelet = &config.kubelet;
    if let Some(port) = u16::try_from(kubelet.healthz_port)
        .ok()
        .filter(|port| *port != 0)
    {
        let address = kubelet
            .healthz_bind_address
            .parse()
            .context("healthzBindAddress")?;
        let listener = windlass_server::bind_health(address, port)
            .await
            .with_context(|| {
                format!("healthzPort {port} on {address} (is another kubelet running?)")
            })?;
        let health = AgentHealth::new(agent.clone(), Arc::clone(&clock), kubelet);
        let ended = token.clone().cancelled_owned();
        let server = windlass_server::serve_health(listener, Arc::new(health), metrics, ended);
        agent.shutdown.track(report_end("healthz", server));
    }
    let socket = paths.root_dir.join("windlass.sock");
    let listener = windlass_server::bind_socket(&socket).context("local API socket")?;
    let service = ControlService {
        board: agent.board.clone(),
        rejected: agent.rejected.clone(),
        paths: paths.clone(),
        clock,
        shutdown: token,
    };
    agent.shutdown.track(report_end(
        "local API",
        windlass_server::serve_control(listener, service),
    ));
    announce(config, &socket);
    Ok(())
}

/// A server that ends by itself leaves the pods running but is worth an error.
async fn report_end<E: std::fmt::Display>(
    name: &'static str,
    server: impl Future<Output = Result<(), E>>,
) {
    if let Err(error) = server.await {
        tracing::error!(name, %error, "server ended");
    }
}

fn announce(config: &Config, socket: &Path) {
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        static_pods = config.kubelet.static_pod_path,
        runtime = config.kubelet.container_runtime_endpoint,
        socket = %socket.display(),
        "windlass is running stand-alone"
    );
    // without a supervisor nobody listens
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
}
