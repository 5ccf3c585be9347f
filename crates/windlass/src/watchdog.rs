//! systemd's watchdog (`WatchdogSec=`): as long as the sync loop turns, systemd is told so three times in that
//! time, so that one look at a clock that was just set is not the agent's end. An agent that it does not hear of is killed and started again; containers go on running.

use std::time::Duration;

use anyhow::bail;
use tokio::time::MissedTickBehavior;

/// systemd's time has to be longer: the least that upstream takes.
const LEAST: Duration = Duration::from_secs(1);

/// How often systemd wants to hear of us, if it does, where `asked` is the time that it waits.
///
/// # Errors
/// The time is so short that a busy machine would have the agent killed.
pub(crate) fn interval(asked: Option<Duration>) -> anyhow::Result<Option<Duration>> {
    match asked.filter(|asked| !asked.is_zero()) {
        Some(asked) if asked <= LEAST => {
            bail!("WatchdogSec of the unit: {asked:?} is too little, more than {LEAST:?} is needed")
        }
        asked => Ok(asked.map(|asked| asked / 3)),
    }
}

/// Calls `feed` every `interval` as long as there is nothing wrong; never ends.
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
            tracing::error!(error, "the watchdog is not fed");
        } else if let Err(error) = feed() {
            tracing::warn!(%error, "the watchdog cannot be fed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    #[test]
    fn systemd_hears_three_times_in_its_time_and_a_time_that_is_too_short_is_refused() {
        let interval = |asked| interval(asked).map_err(|error| error.to_string());
        assert_eq!(interval(None), Ok(None));
        assert_eq!(interval(Some(Duration::ZERO)), Ok(None));
        let asked = Duration::from_secs(30);
        assert_eq!(interval(Some(asked)), Ok(Some(Duration::from_secs(10))));
        let error = interval(Some(LEAST)).expect_err("too short");
        assert_eq!(
            error,
            "WatchdogSec of the unit: 1s is too little, more than 1s is needed"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_watchdog_starves_while_the_loop_does_not_turn() {
        let (turns, fed) = (Cell::new(true), Cell::new(0));
        let check = || match turns.get() {
            true => Ok("it turns".to_owned()),
            false => Err("it does not".to_owned()),
        };
        let feed = || {
            fed.set(fed.get() + 1);
            // that nobody listens now says nothing of the next time
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
