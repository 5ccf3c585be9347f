//! Resource usage of a process, from `/proc`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::time::Duration;

use anyhow::Context;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;
use windlass_testbed::agent::Agent;

/// USER_HZ of `/proc`, 100 on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;
/// Fields of `/proc/PID/stat` behind the name; utime and stime are the 14th and 15th of all.
const UTIME: usize = 11;
/// The 22nd: start of the process, in ticks since boot.
const STARTTIME: usize = 19;

/// The agent is idle if it uses at most [`SETTLED_CPU`] in this time.
const SETTLE_WINDOW: Duration = Duration::from_secs(2);
/// Two ticks: a single one may be a rounding error.
const SETTLED_CPU: f64 = 0.02;
/// The same for each pod: an idle agent still syncs each pod once a minute.
const SETTLED_CPU_PER_POD: f64 = 0.0002;
/// An agent is not idle before: it releases the code of its start after 10 s.
const START: Duration = Duration::from_secs(12);
/// Timeout of waiting for an idle agent.
const SETTLE_DEADLINE: Duration = Duration::from_secs(180);

/// Waits until the agent with `pods` pods is idle.
pub(super) async fn settle(agent: &mut Agent, pods: usize) -> anyhow::Result<()> {
    let process = Process::new(agent)?;
    let settled = SETTLED_CPU + SETTLED_CPU_PER_POD * pods as f64;
    let deadline = Instant::now() + SETTLE_DEADLINE;
    tokio::time::sleep(START.saturating_sub(process.age()?)).await;
    loop {
        agent.check_alive()?;
        let before = process.cpu_seconds()?;
        tokio::time::sleep(SETTLE_WINDOW).await;
        if process.cpu_seconds()? - before <= settled {
            return Ok(());
        }
        anyhow::ensure!(Instant::now() < deadline, "the agent does not become idle");
    }
}

/// CPU time of the whole host without idle and iowait.
pub(super) fn machine_busy_seconds() -> anyhow::Result<f64> {
    let stat = fs::read_to_string("/proc/stat")?;
    let line = stat.lines().next().context("an empty /proc/stat")?;
    let ticks = line.split_ascii_whitespace().skip(1).map(str::parse::<u64>);
    let ticks: Vec<u64> = ticks.collect::<Result<_, _>>()?;
    // user, nice, system, idle, iowait, irq, softirq; guest time is part of user
    let busy = [0, 1, 2, 5, 6].iter().filter_map(|index| ticks.get(*index));
    Ok(busy.sum::<u64>() as f64 / TICKS_PER_SECOND)
}

/// Voluntary context switches of the threads of a process.
#[derive(Debug, Default)]
pub(super) struct Sleeps(BTreeMap<OsString, u64>);

impl Sleeps {
    /// Difference to `before`, without threads that have exited.
    pub(super) fn since(&self, before: &Self) -> u64 {
        let threads = self.0.iter();
        let new = threads.map(|(thread, count)| {
            let old = before.0.get(thread).copied().unwrap_or_default();
            count.saturating_sub(old)
        });
        new.sum()
    }
}

/// Sample interval of a thread's run time.
const BURST_SAMPLE_INTERVAL: Duration = Duration::from_millis(1);

/// Longest time that a thread ran without waiting.
#[derive(Debug, Default)]
struct Bursts {
    current: Option<(u64, Duration)>,
    longest: Duration,
}

impl Bursts {
    /// Adds a sample: number of waits and total run time.
    fn add(&mut self, waits: u64, ran: Duration) {
        match self.current {
            Some((of, since)) if of == waits => {
                self.longest = self.longest.max(ran.saturating_sub(since));
            }
            _ => self.current = Some((waits, ran)),
        }
    }
}

/// CPU time of this program, to the nanosecond: some calls take less than a tick.
pub(super) fn own_cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// A process by its PID.
#[derive(Clone, Copy, Debug)]
pub(super) struct Process {
    pid: u32,
}

impl Process {
    pub(super) fn new(agent: &Agent) -> anyhow::Result<Self> {
        let pid = agent.pid().context("the agent does not run")?;
        Ok(Self { pid })
    }

    /// Resident memory in KiB without mapped files, which differ between builds.
    pub(super) fn anonymous_kib(self) -> anyhow::Result<u64> {
        self.status("RssAnon:")
    }

    /// Number of threads.
    pub(super) fn threads(self) -> anyhow::Result<u64> {
        self.status("Threads:")
    }

    /// Number of open descriptors.
    pub(super) fn descriptors(self) -> anyhow::Result<usize> {
        Ok(fs::read_dir(format!("/proc/{}/fd", self.pid))?.count())
    }

    /// Resident memory in KiB.
    pub(super) fn rss_kib(self) -> anyhow::Result<u64> {
        self.status("VmRSS:")
    }

    /// Peak resident memory in KiB since [`Process::reset_peak`].
    pub(super) fn peak_kib(self) -> anyhow::Result<u64> {
        self.status("VmHWM:")
    }

    /// Resets the peak of resident memory.
    pub(super) fn reset_peak(self) -> anyhow::Result<()> {
        let file = format!("/proc/{}/clear_refs", self.pid);
        fs::write(&file, "5").with_context(|| file)
    }

    fn status(self, name: &'static str) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.split_ascii_whitespace().next());
        Ok(number.context(name)?.parse()?)
    }

    /// Number of voluntary context switches of each thread.
    pub(super) fn sleeps(self) -> anyhow::Result<Sleeps> {
        let mut sleeps = BTreeMap::new();
        for thread in fs::read_dir(format!("/proc/{}/task", self.pid))? {
            let thread = thread?;
            // the thread has just exited
            let Ok(status) = fs::read_to_string(thread.path().join("status")) else {
                continue;
            };
            let mut lines = status.lines();
            let line = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            let count = line.context("no voluntary_ctxt_switches")?.trim().parse()?;
            sleeps.insert(thread.file_name(), count);
        }
        Ok(Sleeps(sleeps))
    }

    /// Longest time in `period` that the main thread, which runs all actors, ran without waiting;
    /// an upper bound of handlers. Accurate to [`BURST_SAMPLE_INTERVAL`].
    pub(super) async fn longest_burst(self, period: Duration) -> anyhow::Result<Duration> {
        let end = Instant::now() + period;
        let mut bursts = Bursts::default();
        let thread = format!("/proc/{0}/task/{0}", self.pid);
        while Instant::now() < end {
            let status = fs::read_to_string(format!("{thread}/status"))?;
            let mut lines = status.lines();
            let waits = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            let waits = waits
                .context("no voluntary_ctxt_switches")?
                .trim()
                .parse()?;
            let schedstat = fs::read_to_string(format!("{thread}/schedstat"))?;
            let ran = schedstat.split(' ').next().context("an empty schedstat")?;
            bursts.add(waits, Duration::from_nanos(ran.parse()?));
            tokio::time::sleep(BURST_SAMPLE_INTERVAL).await;
        }
        Ok(bursts.longest)
    }

    /// User and system CPU time.
    pub(super) fn cpu_seconds(self) -> anyhow::Result<f64> {
        Ok(self.stat::<2>(UTIME)?.iter().sum::<u64>() as f64 / TICKS_PER_SECOND)
    }

    /// Time since the process started.
    fn age(self) -> anyhow::Result<Duration> {
        let [started] = self.stat(STARTTIME)?;
        let uptime = fs::read_to_string("/proc/uptime")?;
        let uptime: f64 = uptime.split(' ').next().unwrap_or_default().parse()?;
        let age = (uptime - started as f64 / TICKS_PER_SECOND).max(0.0);
        Ok(Duration::try_from_secs_f64(age)?)
    }

    /// Reads `N` fields of `/proc/PID/stat`.
    fn stat<const N: usize>(self, first: usize) -> anyhow::Result<[u64; N]> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid))?;
        let fields = stat.rsplit(") ").next().context("no fields in stat")?;
        let values = fields.split(' ').skip(first).take(N).map(str::parse);
        let values: Vec<u64> = values.collect::<Result<_, _>>()?;
        values.try_into().ok().context("too few fields in stat")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_memory_and_time() {
        let pid = std::process::id();
        let process = Process { pid };
        assert!(process.rss_kib().unwrap() > process.anonymous_kib().unwrap());
        assert!(process.descriptors().unwrap() >= 3);
        assert!(process.threads().unwrap() >= 2);
        let of_all = process.cpu_seconds().unwrap();
        assert!((of_all - own_cpu_seconds()).abs() < 0.1, "{of_all}");
        let age = process.age().unwrap();
        assert!(age < Duration::from_secs(3600), "{age:?}");
        while process.age().unwrap() == age {
            std::hint::spin_loop();
        }
        assert!(process.age().unwrap() > age);
        assert!(process.sleeps().is_ok_and(|sleeps| !sleeps.0.is_empty()));
    }

    #[test]
    fn bursts_end_where_the_thread_waits() {
        let mut bursts = Bursts::default();
        for (waits, ran) in [(1, 10), (1, 12), (1, 15), (2, 40), (2, 41)] {
            bursts.add(waits, Duration::from_millis(ran));
        }
        assert_eq!(bursts.longest, Duration::from_millis(5));
    }

    #[test]
    fn threads_that_came_or_went_take_nothing_away() {
        let sleeps = |counts: &[(&str, u64)]| {
            let counts = counts
                .iter()
                .map(|(thread, count)| ((*thread).into(), *count));
            Sleeps(counts.collect())
        };
        let before = sleeps(&[("1", 10), ("2", 5000)]);
        let after = sleeps(&[("1", 13), ("3", 4)]);
        assert_eq!(after.since(&before), 7);
    }
}
