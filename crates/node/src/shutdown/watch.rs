//! Keeps the connection to logind: ensures a sufficient delay, acquires the inhibitor, reports
//! signals, and reconnects.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use windlass_mailboxes::CompletionSender;

use super::actor::ShutdownEvent;
use super::logind::{Logind, LogindBus, LogindError};

/// Name of the drop-in, as upstream, so that a switch of the kubelet leaves no second file.
const DROP_IN: &str = "99-kubelet.conf";
/// Timeout for logind to reload its configuration.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(5);
const RELOAD_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Back-off before a reconnect, doubled with each failure.
const INITIAL_RECONNECT_BACKOFF: Duration = Duration::from_secs(1);
const MAX_RECONNECT_BACKOFF: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub(super) struct WatchConfig {
    pub(super) bus: LogindBus,
    /// Required delay of a shutdown.
    pub(super) delay: Duration,
    /// `/etc/systemd/logind.conf.d`.
    pub(super) conf_dir: PathBuf,
}

/// Reports signals to the actor. Ends if the first attempt fails: a host without logind does not
/// get one later.
pub(super) async fn watch(config: WatchConfig, completions: CompletionSender<ShutdownEvent>) {
    let mut was_connected = false;
    let mut wait = INITIAL_RECONNECT_BACKOFF;
    loop {
        match attempt(&config, &completions).await {
            Ok(()) => {
                was_connected = true;
                wait = INITIAL_RECONNECT_BACKOFF;
                completions.send(ShutdownEvent::Lost);
            }
            Err(error) if !was_connected => {
                completions.send(ShutdownEvent::Unavailable(error));
                return;
            }
            Err(error) => {
                tracing::debug!(%error, "logind cannot be reached");
                wait = (wait * 2).min(MAX_RECONNECT_BACKOFF);
            }
        }
        tokio::time::sleep(wait).await;
    }
}

/// Runs one connection until it ends.
async fn attempt(
    config: &WatchConfig,
    completions: &CompletionSender<ShutdownEvent>,
) -> Result<(), LogindError> {
    let logind = config.bus.connect().await?;
    // before the inhibitor, so that no signal is missed
    let mut shutdowns = pin!(logind.shutdowns().await?);
    let lock = arm(config, &logind).await?;
    completions.send(ShutdownEvent::Connected(logind.clone(), lock));
    while let Some(begins) = shutdowns.next().await {
        completions.send(ShutdownEvent::PrepareForShutdown(begins));
    }
    Ok(())
}

/// Raises the delay if it is too short, and acquires the inhibitor.
async fn arm(config: &WatchConfig, logind: &Logind) -> Result<OwnedFd, LogindError> {
    if logind.inhibit_delay().await? < config.delay {
        write_drop_in(config).await?;
        logind.reload().await?;
        await_delay(logind, config.delay).await?;
    }
    logind.inhibit().await
}

async fn write_drop_in(config: &WatchConfig) -> Result<(), LogindError> {
    let path = config.conf_dir.join(DROP_IN);
    let text = format!(
        "# Written by Windlass: grace period of pods before a shutdown.\n\
         [Login]\nInhibitDelayMaxSec={}\n",
        config.delay.as_secs()
    );
    let write = async {
        tokio::fs::create_dir_all(&config.conf_dir).await?;
        tokio::fs::write(&path, text).await
    };
    write.await.map_err(|error| LogindError::DropIn {
        path: path.display().to_string(),
        reason: error.to_string(),
    })
}

/// Polls until logind applies the new delay.
async fn await_delay(logind: &Logind, required: Duration) -> Result<(), LogindError> {
    let deadline = tokio::time::Instant::now() + RELOAD_TIMEOUT;
    loop {
        let actual = logind.inhibit_delay().await?;
        if actual >= required {
            return Ok(());
        }
        if tokio::time::Instant::now() >= deadline {
            return Err(LogindError::TooShort { actual, required });
        }
        tokio::time::sleep(RELOAD_POLL_INTERVAL).await;
    }
}
