//! A fast writer in virtual time, and the bytes of its files.

use std::fs;
use std::io::Write;
use std::time::Duration;

use windlass_pod_lifecycle::log_rotation::MIN_CHECK_INTERVAL;
use windlass_types::ContainerId;

use super::{FixedLogs, TestEnv};
use crate::rotate::{ContainerLog, rotate_logs};

/// Time between two writes.
const STEP: Duration = Duration::from_millis(10);
/// Fifty times the maximum size per second, like 500 MB/s with 10 MiB.
const STEP_BYTES: usize = 5000;
const RATE: u64 = STEP_BYTES as u64 * 100;
const MAX_SIZE: u64 = 10_000;
const MAX_FILES: usize = 5;
/// Size of a file: the maximum, and what is written in two checks.
const FILE_BUDGET: u64 = MAX_SIZE + RATE * (2 * MIN_CHECK_INTERVAL.as_millis() as u64) / 1000;

/// A container that writes to the file that it has open, and opens the log again when the runtime
/// is called.
struct Writer<'a> {
    env: &'a TestEnv,
    file: fs::File,
    reopened: usize,
    /// Maximum size of all files of the log.
    max_total: u64,
    /// Maximum size of one file.
    max_file: u64,
}

impl<'a> Writer<'a> {
    fn new(env: &'a TestEnv) -> Self {
        let file = fs::File::create(env.log()).expect("created");
        Self {
            env,
            file,
            reopened: 0,
            max_total: 0,
            max_file: 0,
        }
    }

    async fn write_for(&mut self, time: Duration) {
        for _ in 0..time.as_millis() / STEP.as_millis() {
            let calls = self.env.runtime.calls().len();
            if calls > self.reopened {
                self.reopened = calls;
                let mut options = fs::OpenOptions::new();
                let options = options.create(true).append(true);
                self.file = options.open(self.env.log()).expect("reopened");
            }
            self.file.write_all(&[b'x'; STEP_BYTES]).expect("written");
            let entries = fs::read_dir(self.env.dir.path().join("app")).expect("directory");
            let sizes = entries.filter_map(|it| Some(it.ok()?.metadata().ok()?.len()));
            let sizes: Vec<u64> = sizes.collect();
            let file = sizes.iter().copied().max().unwrap_or(0);
            self.max_total = self.max_total.max(sizes.iter().sum());
            self.max_file = self.max_file.max(file);
            tokio::time::sleep(STEP).await;
        }
    }

    /// Compares the largest sizes with the budget, with a first file that may have `more` bytes.
    fn check(&self, more: u64) {
        let first = FILE_BUDGET + more;
        assert!(self.max_file <= first, "{} bytes in a file", self.max_file);
        let budget = FILE_BUDGET * (MAX_FILES as u64 - 1) + first;
        let total = self.max_total;
        assert!(total <= budget, "{total} of {budget} bytes");
    }
}

/// Rotates while `scenario` runs.
async fn while_rotating(env: &TestEnv, scenario: impl Future<Output = ()>) {
    let deps = env.deps(MAX_SIZE, MAX_FILES, Duration::from_secs(10));
    let logs = FixedLogs(vec![ContainerLog {
        container: ContainerId::from("app"),
        path: env.log(),
        runs: true,
    }]);
    tokio::select! {
        biased;
        () = scenario => {}
        () = rotate_logs(deps, logs) => {}
    }
}

#[tokio::test(start_paused = true)]
async fn log_of_a_burst_stays_within_its_budget() {
    let env = TestEnv::new();
    let scenario = async {
        let mut writer = Writer::new(&env);
        // quiet for some checks
        tokio::time::sleep(Duration::from_secs(35)).await;
        writer.write_for(Duration::from_secs(20)).await;
        // one check per interval would leave 5 MB in the first file
        writer.check(RATE / 10);
        assert!(writer.reopened > 100, "{} rotations", writer.reopened);
    };
    while_rotating(&env, scenario).await;
}

#[tokio::test(start_paused = true)]
async fn burst_of_a_slow_log_is_noticed_within_a_second() {
    let env = TestEnv::new();
    let scenario = async {
        let mut writer = Writer::new(&env);
        for _ in 0..80 {
            writer.file.write_all(b"a line\n").expect("written");
            tokio::time::sleep(Duration::from_millis(90)).await;
        }
        writer.write_for(Duration::from_secs(5)).await;
        writer.check(RATE);
    };
    while_rotating(&env, scenario).await;
}

#[tokio::test(start_paused = true)]
async fn idle_log_is_checked_once_per_interval() {
    let env = TestEnv::new();
    let scenario = async {
        env.write("0.log", "quiet");
        tokio::time::sleep(Duration::from_secs(12)).await;
        // a check would have it reopened, and a rename causes no event
        fs::rename(env.log(), env.dir.path().join("moved")).expect("moved");
        tokio::time::sleep(Duration::from_secs(7)).await;
        assert!(env.runtime.calls().is_empty());
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(!env.runtime.calls().is_empty());
        // the runtime of the test creates no file: once more, then once per interval
        tokio::time::sleep(Duration::from_secs(7)).await;
        assert_eq!(env.runtime.calls(), ["reopen app", "reopen app"]);
    };
    while_rotating(&env, scenario).await;
}
