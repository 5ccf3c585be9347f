//! A container that writes its log as fast as it can.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use tokio::time::Instant;
use windlass_testbed::containerd::PrivateContainerd;
use windlass_testbed::images;

use super::super::fleet::Fleet;
use super::super::report::{Report, Unit};
use super::super::{KIB_PER_MIB, Options};
use xtask_run as run;

/// `containerLogMaxSize`.
const MAX_SIZE_MIB: u64 = 10;
/// `containerLogMaxFiles`.
const MAX_FILES: u64 = 5;
/// Time until a burst after rest is noticed.
const NOTICE_SECONDS: f64 = 1.0;
/// Interval of the checks of a log that grows, and the time of a rotation on a busy machine.
const ROTATION_SECONDS: f64 = 0.05 + 0.2;
/// Upstream's interval of its checks.
const UPSTREAM_SECONDS: f64 = 10.0;
const SAMPLE_INTERVAL: Duration = Duration::from_millis(1);
const BYTES_PER_MIB: f64 = KIB_PER_MIB * 1024.0;
const POD: &str = "flood";

/// Sizes of the files in a directory.
#[derive(Debug, Default)]
struct Sizes {
    /// Largest size of each uncompressed file, by inode.
    files: BTreeMap<u64, u64>,
    /// The first file with content.
    first: Option<u64>,
    /// Largest size of all files at one time.
    max_total: u64,
    /// Bytes written until a time.
    progress: Vec<(Duration, u64)>,
}

impl Sizes {
    /// Adds a sample: names, inodes and sizes.
    fn add<'a>(&mut self, at: Duration, files: impl Iterator<Item = (&'a str, u64, u64)>) {
        let mut total = 0;
        for (name, inode, size) in files {
            total += size;
            if name.ends_with(".gz") || name.ends_with(".tmp") || size == 0 {
                continue;
            }
            self.first.get_or_insert(inode);
            let known = self.files.entry(inode).or_default();
            *known = size.max(*known);
        }
        self.max_total = self.max_total.max(total);
        self.progress.push((at, self.files.values().sum()));
    }

    /// Largest number of bytes written within a period.
    fn max_written_within(&self, period: Duration) -> u64 {
        let mut start = self.progress.iter().peekable();
        let mut max = 0;
        for (at, written) in &self.progress {
            while start.next_if(|(from, _)| *from + period < *at).is_some() {}
            let before = start.peek().map_or(0, |(_, before)| *before);
            max = max.max(written - before);
        }
        max
    }

    fn largest(&self, selects_first: bool) -> u64 {
        let files = self.files.iter();
        let files = files.filter(|(inode, _)| (self.first == Some(**inode)) == selects_first);
        files.map(|(_, size)| *size).max().unwrap_or_default()
    }
}

/// Compares the sizes with the budget.
pub(super) async fn measure(
    options: &Options,
    containerd: &PrivateContainerd,
    binary: &Path,
    report: &mut Report,
) -> anyhow::Result<()> {
    let seconds = options.pressure.flood_seconds;
    run::step(&format!("a container writes its log for {seconds} s"));
    let config =
        format!("containerLogMaxSize: {MAX_SIZE_MIB}Mi\ncontainerLogMaxFiles: {MAX_FILES}\n");
    let mut fleet = Fleet::configured(containerd, binary, options.concurrency, &config).await?;
    fleet
        .start_manifests(vec![(POD.to_owned(), manifest())])
        .await?;
    let dir = log_dir(&containerd.base().join("logs"))?;
    let period = Duration::from_secs(seconds);
    let sizes = tokio::task::spawn_blocking(move || sample(&dir, period)).await??;
    fleet.remove_pods(&[POD.to_owned()]).await?;
    fleet.settle().await?;
    fleet.stop().await?;

    let mib = |bytes: u64| bytes as f64 / BYTES_PER_MIB;
    let within = |seconds: f64| mib(sizes.max_written_within(Duration::from_secs_f64(seconds)));
    report.figure(
        "log written in the busiest second",
        within(1.0),
        Unit::MiB,
        f64::NAN,
    );
    let budget = |seconds: f64| MAX_SIZE_MIB as f64 + within(seconds);
    let first = budget(NOTICE_SECONDS + ROTATION_SECONDS);
    report.figure(
        &format!("largest first file, maximum of {MAX_SIZE_MIB} MiB, after rest"),
        mib(sizes.largest(true)),
        Unit::MiB,
        first,
    );
    report.figure(
        "largest file after it",
        mib(sizes.largest(false)),
        Unit::MiB,
        budget(ROTATION_SECONDS),
    );
    report.figure(
        &format!("all files of the log, {MAX_FILES} at most"),
        mib(sizes.max_total),
        Unit::MiB,
        first + (MAX_FILES - 1) as f64 * budget(ROTATION_SECONDS),
    );
    report.figure(
        "a file of upstream, with a check every 10 s (computed)",
        budget(UPSTREAM_SECONDS),
        Unit::MiB,
        f64::NAN,
    );
    Ok(())
}

fn sample(dir: &Path, period: Duration) -> anyhow::Result<Sizes> {
    let mut sizes = Sizes::default();
    let begin = Instant::now();
    loop {
        let at = begin.elapsed();
        if at >= period {
            break;
        }
        let entries = fs::read_dir(dir)?.flatten();
        // a file may be removed or renamed meanwhile
        let files: Vec<(String, u64, u64)> = entries
            .filter_map(|entry| {
                let metadata = entry.metadata().ok()?;
                let name = entry.file_name().into_string().ok()?;
                Some((name, metadata.ino(), metadata.len()))
            })
            .collect();
        sizes.add(
            at,
            files
                .iter()
                .map(|(name, inode, size)| (name.as_str(), *inode, *size)),
        );
        std::thread::sleep(SAMPLE_INTERVAL);
    }
    Ok(sizes)
}

/// Returns the log directory of the container.
fn log_dir(root: &Path) -> anyhow::Result<PathBuf> {
    let pods = fs::read_dir(root)?.flatten();
    let mut pods = pods.filter(|entry| {
        let name = entry.file_name();
        name.to_string_lossy().contains(&format!("_{POD}-"))
    });
    let pod = pods.next().context("no log directory of the pod")?;
    Ok(pod.path().join("main"))
}

/// A pod that writes lines of 1000 bytes after 3 s of rest.
fn manifest() -> String {
    let line = "x".repeat(999);
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {POD}\nspec:\n  \
         terminationGracePeriodSeconds: 0\n  containers:\n  - name: main\n    image: {}\n    \
         command: [\"sh\", \"-c\", \"sleep 3; exec yes {line}\"]\n",
        images::BUSYBOX
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_size_of_each_file_counts() {
        let mut sizes = Sizes::default();
        let samples: [&[(&str, u64, u64)]; 4] = [
            &[("0.log", 1, 0)],
            &[("0.log", 1, 30)],
            &[("0.log.20260101-000000", 1, 40), ("0.log", 2, 5)],
            &[("0.log.20260101-000000.gz", 3, 4), ("0.log", 2, 15)],
        ];
        for (second, files) in (0..).zip(samples) {
            sizes.add(Duration::from_secs(second), files.iter().copied());
        }
        assert_eq!((sizes.largest(true), sizes.largest(false)), (40, 15));
        assert_eq!(sizes.max_total, 45);
        let within = [0, 1, 2, 9].map(|it| sizes.max_written_within(Duration::from_secs(it)));
        assert_eq!(within, [0, 30, 45, 55]);
    }
}
