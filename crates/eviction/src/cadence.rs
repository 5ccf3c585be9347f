//! When passes, events and log lines follow each other.

use std::time::Duration;

use crate::interval::{MAX_INTERVAL, MIN_INTERVAL};
use crate::signal::Signal;

/// Passes that wait for the file systems of the runtime, without which signals of disks are
/// missing: a minute at [`MIN_INTERVAL`].
const MAX_LAYOUT_PASSES: u32 = 60;

/// Cadence of the eviction manager.
#[derive(Clone, Debug)]
pub struct Cadence {
    next: Duration,
    layout_passes: u32,
    /// Signal and time of the last event on the node.
    announced: Option<(Signal, Duration)>,
    /// No pod could be evicted the last time.
    is_stuck: bool,
}

impl Default for Cadence {
    fn default() -> Self {
        Self {
            next: MIN_INTERVAL,
            layout_passes: 0,
            announced: None,
            is_stuck: false,
        }
    }
}

impl Cadence {
    /// Records a pass, which wants the next one after `next`.
    pub fn passed(&mut self, next: Duration, knows_file_systems: bool) {
        self.next = next;
        if !knows_file_systems && self.layout_passes < MAX_LAYOUT_PASSES {
            self.layout_passes += 1;
            self.next = MIN_INTERVAL;
        }
    }

    /// Returns whether a threshold that is met is announced by an event: as often as upstream
    /// begins a pass. `now` is monotonic.
    pub fn announces(&mut self, signal: Signal, now: Duration) -> bool {
        let is_recent = |(known, at)| known == signal && now.saturating_sub(at) < MAX_INTERVAL;
        let announces = !self.announced.is_some_and(is_recent);
        if announces {
            self.announced = Some((signal, now));
        }
        announces
    }

    /// Records whether a pod was chosen. Without one, reclaiming again at once would free nothing.
    /// Returns true the first time in a row without one.
    pub fn chose(&mut self, has_victim: bool) -> bool {
        if !has_victim {
            self.next = MAX_INTERVAL;
        }
        let was_stuck = std::mem::replace(&mut self.is_stuck, !has_victim);
        self.is_stuck && !was_stuck
    }

    /// Returns the time until the next pass; `is_triggered` if the kernel notified during this one.
    pub fn next(&self, is_triggered: bool) -> Duration {
        match is_triggered {
            true => MIN_INTERVAL,
            false => self.next,
        }
    }
}

#[cfg(test)]
mod tests {
    //! Steps, each with what follows.

    use super::*;

    /// `pass <next> [unknown]`, `met <signal> <second>`, `victim`, `no victim`, `trigger`.
    fn check(steps: &[(&str, &str)]) {
        let mut cadence = Cadence::default();
        for (step, expected) in steps {
            let words: Vec<&str> = step.split(' ').collect();
            let seconds = |text: &str| Duration::from_secs(text.parse().expect("seconds"));
            let text = |condition, yes: &str| if condition { yes } else { "-" }.to_owned();
            let line = match words[..] {
                ["pass", next, ..] => {
                    cadence.passed(seconds(next), words.len() == 2);
                    format!("{:?}", cadence.next(false))
                }
                ["met", signal, now] => {
                    let signal = signal.parse().expect("a signal");
                    text(cadence.announces(signal, seconds(now)), "event")
                }
                ["victim"] => text(cadence.chose(true), "error"),
                ["no", "victim"] => {
                    let is_first = text(cadence.chose(false), "error");
                    format!("{is_first} {:?}", cadence.next(false))
                }
                ["trigger"] => format!("{:?}", cadence.next(true)),
                _ => panic!("{step}"),
            };
            assert_eq!(line, *expected, "{step}");
        }
    }

    #[test]
    fn next_pass_is_at_the_time_of_the_last_one_or_a_trigger() {
        check(&[("pass 7", "7s"), ("trigger", "1s"), ("pass 10", "10s")]);
    }

    #[test]
    fn unknown_file_systems_are_waited_for_in_sixty_passes() {
        let mut steps = vec![("pass 10 unknown", "1s"); 60];
        steps.push(("pass 10 unknown", "10s"));
        check(&steps);
        check(&[("pass 10 unknown", "1s"), ("pass 10", "10s")]);
    }

    #[test]
    fn event_of_a_signal_is_repeated_after_ten_seconds() {
        check(&[
            ("met memory.available 5", "event"),
            ("met memory.available 14", "-"),
            ("met memory.available 15", "event"),
            ("met nodefs.available 16", "event"),
            ("met memory.available 17", "event"),
        ]);
    }

    #[test]
    fn pass_without_a_victim_pauses_and_is_an_error_once() {
        check(&[
            ("pass 1", "1s"),
            ("no victim", "error 10s"),
            ("trigger", "1s"),
            ("pass 1", "1s"),
            ("no victim", "- 10s"),
            ("victim", "-"),
            ("no victim", "error 10s"),
        ]);
    }
}
