//! Holds on to logind: takes the inhibitor, sees to a delay that is long enough, tells what logind
//! says, and starts over when the connection breaks.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use windlass_actors::AnswerSender;

use super::actor::Heard;
use super::logind::{Logind, LogindBus, LogindError};

/// Name of the drop-in; upstream's, so that a node changes hands cleanly.
const DROP_IN: &str = "99-kubelet.conf";
/// logind reads its configuration in less than this.
const RELOAD_DEADLINE: Duration = Duration::from_secs(5);
const RELOAD_POLL: Duration = Duration::from_millis(100);
/// Wait before a lost connection is replaced, doubled with each failure.
const RECONNECT_FIRST: Duration = Duration::from_secs(1);
const RECONNECT_MAX: Duration = Duration::from_secs(30);

/// What [`watch`] needs to know.
#[derive(Clone, Debug)]
pub(super) struct WatchConfig {
    /// Where logind is.
    pub(super) bus: LogindBus,
    /// How long a shutdown is to be delayed.
    pub(super) delay: Duration,
    /// `/etc/systemd/logind.conf.d`.
    pub(super) conf_dir: PathBuf,
}

/// Tells the actor what happens. Ends if the first attempt fails: a machine without logind does
/// not get one later.
pub(super) async fn watch(config: WatchConfig, answers: AnswerSender<Heard>) {
    let mut was_armed = false;
    let mut wait = RECONNECT_FIRST;
    loop {
        match attempt(&config, &answers).await {
            Ok(()) => {
                was_armed = true;
                wait = RECONNECT_FIRST;
                answers.answer(Heard::Lost);
            }
            Err(error) if !was_armed => {
                answers.answer(Heard::Unavailable(error));
                return;
            }
            Err(error) => {
                tracing::debug!(%error, "logind cannot be reached");
                wait = (wait * 2).min(RECONNECT_MAX);
            }
        }
        tokio::time::sleep(wait).await;
    }
}

/// One connection from its beginning to its end.
async fn attempt(config: &WatchConfig, answers: &AnswerSender<Heard>) -> Result<(), LogindError> {
    let logind = config.bus.connect().await?;
    // before the inhibitor: a shutdown that begins while it is held must not be missed
    let mut shutdowns = pin!(logind.shutdowns().await?);
    let lock = arm(config, &logind).await?;
    answers.answer(Heard::Armed(logind.clone(), lock));
    while let Some(begins) = shutdowns.next().await {
        answers.answer(Heard::Preparing(begins));
    }
    Ok(())
}

/// Raises the delay if it is too short, and takes the inhibitor.
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
        "# Written by Windlass: pods get this long to end before a shutdown.\n\
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

/// Asks until logind has taken the new delay over.
async fn await_delay(logind: &Logind, wanted: Duration) -> Result<(), LogindError> {
    let deadline = tokio::time::Instant::now() + RELOAD_DEADLINE;
    loop {
        let actual = logind.inhibit_delay().await?;
        if actual >= wanted {
            return Ok(());
        }
        if tokio::time::Instant::now() >= deadline {
            return Err(LogindError::TooShort { actual, wanted });
        }
        tokio::time::sleep(RELOAD_POLL).await;
    }
}
