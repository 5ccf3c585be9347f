//! systemd's watchdog (`WatchdogSec=`): systemd restarts an agent whose sync loop makes no
//! progress.
//!
//! It is notified three times per timeout, so that one failed check after a clock step is harmless.

use std::time::Duration;

use anyhow::bail;
use tokio::time::MissedTickBehavior;

/// The timeout has to be longer, as upstream.
const MIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Returns the interval of notifications for a watchdog `timeout`; `None` without a watchdog.
///
/// # Errors
/// The timeout is so short that systemd would kill the agent on a busy host.
pub(crate) fn interval(timeout: Option<Duration>) -> anyhow::Result<Option<Duration>> {
    match timeout.filter(|timeout| !timeout.is_zero()) {
        Some(timeout) if timeout <= MIN_TIMEOUT => {
            bail!("WatchdogSec of the unit must be more than {MIN_TIMEOUT:?}, got {timeout:?}")
        }
        timeout => Ok(timeout.map(|timeout| timeout / 3)),
    }
}

/// Calls `feed` every `interval` while `check` succeeds; never completes.
pub(crate) async fn watch(
    interval: Duration,
    check: impl Fn() -> Result<String, String>,
    feed: impl Fn() -> std::io::Result<()>,
) {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = check() {
            tracing::error!(
                error,
                "systemd watchdog notification skipped: health check failed"
            );
        } else if let Err(error) = feed() {
            tracing::warn!(%error, "systemd watchdog notification failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    #[test]
    fn watchdog_interval_is_third_of_timeout_and_has_minimum() {
        let interval = |timeout| interval(timeout).map_err(|error| error.to_string());
        assert_eq!(interval(None), Ok(None));
        assert_eq!(interval(Some(Duration::ZERO)), Ok(None));
        let timeout = Duration::from_secs(30);
        assert_eq!(interval(Some(timeout)), Ok(Some(Duration::from_secs(10))));
        let error = interval(Some(MIN_TIMEOUT)).expect_err("too short");
        assert_eq!(
            error,
            "WatchdogSec of the unit must be more than 1s, got 1s"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn watchdog_is_not_notified_while_sync_loop_hangs() {
        let (turns, fed) = (Cell::new(true), Cell::new(0));
        let check = || match turns.get() {
            true => Ok("it turns".to_owned()),
            false => Err("it does not".to_owned()),
        };
        let feed = || {
            fed.set(fed.get() + 1);
            // a failed notification is followed by the next
            Err(std::io::ErrorKind::NotConnected.into())
        };
        let second = Duration::from_secs(1);
        let watch = watch(second, check, feed);
        tokio::pin!(watch);
        for (turning, expected) in [(true, 4), (false, 4), (true, 7)] {
            turns.set(turning);
            let span = second * 3 + MILLISECOND;
            let over = tokio::time::timeout(span, &mut watch).await;
            assert!(over.is_err());
            assert_eq!(fed.get(), expected, "turning: {turning}");
        }
    }
}
