//! Limits on the calls that stop pods, and how long one pod's stop took without waiting for them.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use windlass_pacing::Limiter;

/// Concurrent calls of each kind that stop pods. A runtime with hundreds of
/// concurrent stops finishes all of them late and serves no reads in that time. The status patches
/// that follow then exceed the rate limit of the API client.
const MAX_CONCURRENT_STOPS: usize = 8;
/// Two lists of one pod take some 10 ms.
const MIN_LIST_TERM: Duration = Duration::from_millis(500);
/// Sending the stop signal takes some 50 ms; then the container has its grace period, in which the
/// call costs the runtime nothing.
const MIN_SIGNAL_TIME: Duration = Duration::from_millis(250);
/// A sandbox stops in 0.1 s, and in about 0.5 s when eight do.
const MIN_SANDBOX_TERM: Duration = Duration::from_secs(2);
/// Calls of a stop that take longer on a runtime that is slow to respond: the lists, the stops of
/// the containers, the stop of the sandbox; one more for what they vary.
const CALLS_OF_A_STOP: u32 = 4;
/// Interval at which a stop that only waits for permits is checked.
const QUEUED_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The limiters of all pods' stops. Calls that hang lose their permits.
#[derive(Debug)]
pub(crate) struct StopLimits {
    lists: Limiter,
    containers: Limiter,
    sandboxes: Limiter,
    /// Time that the runtime took for the last pod's lists: it needs about as long to send a
    /// signal.
    response_time: Mutex<Duration>,
}

impl Default for StopLimits {
    fn default() -> Self {
        let limiter = |term| Limiter::new(MAX_CONCURRENT_STOPS, term);
        Self {
            lists: limiter(MIN_LIST_TERM),
            containers: limiter(MIN_SIGNAL_TIME),
            sandboxes: limiter(MIN_SANDBOX_TERM),
            response_time: Mutex::default(),
        }
    }
}

impl StopLimits {
    /// Runs the lists that show what is left of a pod.
    pub(crate) async fn list<T>(&self, lists: impl Future<Output = T>) -> T {
        let timed = async {
            let begun = Instant::now();
            let result = lists.await;
            *self.response_time.lock() = begun.elapsed();
            result
        };
        self.lists.run(timed).await
    }

    fn response_time(&self) -> Duration {
        *self.response_time.lock()
    }
}

/// One pod's stop.
#[derive(Debug)]
pub(crate) struct PodStop<'a> {
    limits: &'a StopLimits,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Calls that wait for a permit, and calls that have it.
    waiting: usize,
    running: usize,
    /// Time so far in which something other than permits was waited for.
    counted: Duration,
    since: Instant,
}

impl State {
    /// All that is left waits for permits.
    fn is_queued(&self) -> bool {
        self.waiting > 0 && self.running == 0
    }

    /// Counts the time since the last change.
    fn count(&mut self) {
        let now = Instant::now();
        if !self.is_queued() {
            self.counted += now - self.since;
        }
        self.since = now;
    }
}

/// A call that waits or runs; counted until it is dropped.
struct Counted<'a, 'b> {
    stop: &'a PodStop<'b>,
    runs: bool,
}

impl Counted<'_, '_> {
    fn run(&mut self) {
        let mut state = self.stop.state.lock();
        state.count();
        state.waiting -= 1;
        state.running += 1;
        self.runs = true;
    }
}

impl Drop for Counted<'_, '_> {
    fn drop(&mut self) {
        let mut state = self.stop.state.lock();
        state.count();
        match self.runs {
            true => state.running -= 1,
            false => state.waiting -= 1,
        }
    }
}

impl<'a> PodStop<'a> {
    /// A stop that begins now.
    pub(crate) fn new(limits: &'a StopLimits) -> Self {
        Self {
            limits,
            state: Mutex::new(State {
                waiting: 0,
                running: 0,
                counted: Duration::ZERO,
                since: Instant::now(),
            }),
        }
    }

    /// Runs the lists that show what is to be stopped.
    pub(crate) async fn list<T>(&self, lists: impl Future<Output = T>) -> T {
        self.limits.list(self.counted(|| lists)).await
    }

    /// Stops a container: the permit is for sending the signal only.
    pub(crate) async fn container<T>(&self, stop: impl Future<Output = T>) -> T {
        let signal_time = self.limits.response_time().max(MIN_SIGNAL_TIME);
        let counted = self.counted(|| stop);
        self.limits.containers.run_for(signal_time, counted).await
    }

    /// Stops a sandbox.
    pub(crate) async fn sandbox<T>(&self, stop: impl Future<Output = T>) -> T {
        self.limits.sandboxes.run(self.counted(|| stop)).await
    }

    /// Returns once the stop has taken longer than `limit`, without the time in which it waited for
    /// other pods' stops, and with an allowance for a runtime that is slow to respond.
    pub(crate) async fn exceeds(&self, limit: Duration) {
        loop {
            let (left, queued) = {
                let mut state = self.state.lock();
                state.count();
                let response_time = self.limits.response_time();
                let allowance = response_time.saturating_mul(CALLS_OF_A_STOP);
                let limit = limit.saturating_add(allowance);
                (limit.saturating_sub(state.counted), state.is_queued())
            };
            if left.is_zero() {
                return;
            }
            sleep(if queued {
                left.min(QUEUED_CHECK_INTERVAL)
            } else {
                left
            })
            .await;
        }
    }

    /// Counts a call as waiting from now and as running once it is polled.
    fn counted<T, F: Future<Output = T>>(
        &self,
        call: impl FnOnce() -> F,
    ) -> impl Future<Output = T> {
        let mut counted = {
            let mut state = self.state.lock();
            state.count();
            state.waiting += 1;
            Counted {
                stop: self,
                runs: false,
            }
        };
        let call = call();
        async move {
            counted.run();
            call.await
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn stop_time_excludes_waiting_for_permits() {
        let limits = StopLimits::default();
        let others = PodStop::new(&limits);
        let busy = join_all((0..8).map(|_| others.sandbox(sleep(SECOND))));
        let stop = PodStop::new(&limits);
        let begun = Instant::now();
        let work = async {
            stop.sandbox(sleep(SECOND)).await;
            // something of its own, as a hook
            sleep(SECOND).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = async { busy.await; std::future::pending().await } => {}
            () = work => {}
            () = stop.exceeds(2 * SECOND) => {}
        }
        assert_eq!(begun.elapsed(), 3 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn signals_are_sent_as_fast_as_the_runtime_responds() {
        for (response, expected) in [(SECOND / 10, SECOND / 4), (3 * SECOND, 3 * SECOND)] {
            let limits = StopLimits::default();
            let stop = PodStop::new(&limits);
            stop.list(sleep(response)).await;
            let grace = join_all((0..8).map(|_| stop.container(sleep(30 * SECOND))));
            let begun = Instant::now();
            let ninth = async {
                stop.container(async {}).await;
                begun.elapsed()
            };
            tokio::select! {
                biased;
                _ = grace => unreachable!("they last longer"),
                waited = ninth => assert_eq!(waited, expected),
            }
        }
    }
}
