//! The agent's process: parse → build → spawn → drain.

mod cleanup;
mod cli;
mod code;
mod kernel;
mod logging;
mod memory;
mod process;
mod servers;
#[cfg(feature = "otel")]
mod traces;
mod watchdog;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use windlass::health::AgentHealth;
use windlass::{build, wiring};
use windlass_config::{Config, KubeletFlags, checks};
use windlass_mailboxes::SystemClock;
use windlass_metrics::Metrics;
use windlass_node_api::Verbosity;
use windlass_types::Clock;

/// Time for pending writes of state files at shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

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
            // before logging is initialized, or with errors filtered out
            let error = error_chain(&error);
            if tracing::enabled!(tracing::Level::ERROR) {
                tracing::error!(error, "agent failed");
            } else {
                eprintln!("windlass: {error}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Returns an error with its chain, without causes that the text before them includes.
fn error_chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !text.contains(&cause) {
            text = if text.is_empty() {
                cause
            } else {
                format!("{text}: {cause}")
            };
        }
    }
    text
}

fn run(flags: &KubeletFlags) -> anyhow::Result<()> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let mut config = windlass_config::load(flags)?;
    if flags.cleanup_and_exit {
        cleanup::clear_sources(&mut config);
    }
    let logging = &config.kubelet.logging;
    let verbosity = logging::init(
        logging::format(logging),
        logging.verbosity,
        Arc::clone(&clock),
    )?;
    for warning in &config.warnings {
        tracing::warn!(%warning, "configuration");
    }
    for warning in checks::run(&config.kubelet, &config.gates)? {
        tracing::warn!(warning, "node check");
    }
    process::prepare(&config.kubelet);
    if !config.flags.cleanup_and_exit {
        let protect = config.kubelet.protect_kernel_defaults;
        kernel::set_parameters(Path::new(kernel::PARAMETERS), protect)?;
    }
    let runtime = process::tokio_runtime()?;
    windlass_mailboxes::run_actors(&runtime, agent(&config, clock, verbosity))
}

/// Runs until a signal arrives or `--cleanup-and-exit` has finished. Containers keep running.
async fn agent(
    config: &Config,
    clock: Arc<dyn Clock>,
    verbosity: Arc<dyn Verbosity>,
) -> anyhow::Result<()> {
    let watchdog = watchdog::interval(sd_notify::watchdog_enabled())?;
    let metrics = Metrics::new()?;
    metrics
        .node
        .process_start_time
        .set(clock.now().as_second() as f64);
    process::set_build_info(config, &metrics);
    process::make_root_dir(&config.flags.root_dir)?;
    let _lock = process::lock(config.flags.lock_file.as_deref())?;
    let servers = servers::Servers::bind(config).await?;
    let runtime = build::RuntimeClients::connect(config, &metrics)?;
    let mut parts = build::agent_parts(config, Arc::clone(&clock), metrics.clone(), &runtime)?;
    if config.flags.cleanup_and_exit {
        parts.workers.orphan_grace = cleanup::GRACE_PERIOD;
    }
    metrics
        .node
        .name
        .with_label_values(&[&parts.node.facts.node_name])
        .set(1.0);
    #[cfg(feature = "otel")]
    let exporter = match traces::connect(config, &parts.node.facts.node_name, &metrics)? {
        None => None,
        Some((sink, exporter)) => {
            parts.spans = Some(Arc::new(sink));
            Some(exporter)
        }
    };
    #[cfg(not(feature = "otel"))]
    if config.kubelet.tracing.is_some() {
        tracing::warn!("tracing is not supported: windlass was built without the feature otel");
    }
    let cri = Arc::clone(&runtime.runtime);
    let context = servers::ServerContext {
        runtime,
        reviews: parts.cluster.as_ref().map(|it| it.clients.reviews.clone()),
        host_ips: parts.node.host_ips.clone(),
        verbosity,
        clock: Arc::clone(&clock),
        metrics,
    };
    let agent = wiring::spawn(parts);
    #[cfg(feature = "otel")]
    if let Some(exporter) = exporter {
        agent.shutdown.track(exporter.run(agent.shutdown.token()));
    }
    servers.serve(&agent, config, context).await?;
    log_startup(config);
    if let Some(interval) = watchdog {
        let health = AgentHealth::new(agent.clone(), clock, &config.kubelet);
        let feed = || sd_notify::notify(&[sd_notify::NotifyState::Watchdog]);
        let watching = watchdog::watch(interval, move || health.sync_loop().result, feed);
        tokio::spawn(agent.shutdown.token().run_until_cancelled_owned(watching));
    }
    let trimming = memory::release_unused();
    tokio::spawn(agent.shutdown.token().run_until_cancelled_owned(trimming));
    let code = code::manage(agent.eviction.clone());
    tokio::spawn(agent.shutdown.token().run_until_cancelled_owned(code));
    let cleaned = async {
        match config.flags.cleanup_and_exit {
            true => cleanup::wait_until_clean(&*cri, &config.flags.root_dir).await,
            false => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = cleaned => tracing::info!("cleanup finished"),
        signal = process::wait_for_signal() => {
            signal?;
            tracing::info!("shutting down, containers keep running");
        }
    }
    agent.shutdown.finish(DRAIN_TIMEOUT).await;
    Ok(())
}

fn log_startup(config: &Config) {
    let cluster = config.flags.kubeconfig.as_deref();
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        static_pods = config.kubelet.static_pod_path,
        runtime = config.kubelet.container_runtime_endpoint,
        root_dir = %config.flags.root_dir.display(),
        kubeconfig = %cluster.map_or("none (standalone)".into(), Path::to_string_lossy),
        "agent started"
    );
    // fails without a supervisor
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
}
