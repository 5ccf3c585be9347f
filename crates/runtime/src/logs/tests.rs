//! Reading logs that are written, rotated and tampered with meanwhile.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt;
use tokio_util::sync::CancellationToken;
use windlass_core::cri_log::LogStream;

use super::{LogOptions, LogSource, read_log};

struct Log {
    dir: tempfile::TempDir,
    path: PathBuf,
}

impl Log {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("pod/a/0.log");
        fs::create_dir_all(dir.path().join("pod/a")).expect("dirs");
        Self { dir, path }
    }

    fn write(&self, text: &str) {
        append(&self.path, text);
    }

    /// Full lines of standard output, one second apart.
    fn lines(&self, numbers: std::ops::Range<u32>) {
        for n in numbers {
            self.write(&format!("2026-01-01T00:00:{n:02}Z stdout F line {n}\n"));
        }
    }

    fn source(&self) -> LogSource {
        LogSource {
            root: self.dir.path().to_owned(),
            path: self.path.clone(),
        }
    }

    async fn read(&self, options: LogOptions) -> String {
        collect(read_log(self.source(), options, CancellationToken::new())).await
    }
}

fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .expect("open");
    file.write_all(text.as_bytes()).expect("write");
}

type Lines = dyn futures::Stream<Item = Result<Vec<u8>, super::LogError>> + Send + Unpin;

async fn collect(
    mut lines: impl futures::Stream<Item = Result<Vec<u8>, super::LogError>> + Unpin,
) -> String {
    let mut text = String::new();
    while let Some(line) = lines.next().await {
        match line {
            Ok(line) => text.push_str(&String::from_utf8_lossy(&line)),
            Err(error) => text.push_str(&format!("[{}]", error.source)),
        }
    }
    text
}

async fn next(lines: &mut Lines) -> String {
    let line = tokio::time::timeout(Duration::from_secs(10), lines.next()).await;
    match line.expect("a line in time") {
        Some(Ok(line)) => String::from_utf8_lossy(&line).into_owned(),
        other => format!("{other:?}"),
    }
}

#[tokio::test]
async fn options_choose_lines() {
    let log = Log::new();
    log.lines(0..3);
    log.write("2026-01-01T00:00:03Z stderr F oops\n");
    log.write("torn garbage\n");
    log.write("2026-01-01T00:00:04Z stdout P long \n2026-01-01T00:00:05Z stdout F line\n");
    let all = "line 0\nline 1\nline 2\noops\nlong line\n";
    let check = async |options: LogOptions, expected: &str| {
        assert_eq!(log.read(options.clone()).await, expected, "{options:?}");
    };
    check(LogOptions::default(), all).await;
    let tail = |n| LogOptions {
        tail: Some(n),
        ..LogOptions::default()
    };
    check(tail(0), "").await;
    check(tail(2), "long line\n").await;
    check(tail(4), "oops\nlong line\n").await;
    check(tail(100), all).await;
    let since = LogOptions {
        since: "2026-01-01T00:00:02Z".parse().ok(),
        ..LogOptions::default()
    };
    check(since, "line 2\noops\nlong line\n").await;
    let limit = LogOptions {
        limit_bytes: Some(9),
        ..LogOptions::default()
    };
    check(limit, "line 0\nli").await;
    let errors = LogOptions {
        stream: Some(LogStream::Stderr),
        ..LogOptions::default()
    };
    check(errors, "oops\n").await;
    let times = LogOptions {
        timestamps: true,
        tail: Some(3),
        ..LogOptions::default()
    };
    check(times, "2026-01-01T00:00:04.000000000Z long line\n").await;
}

#[tokio::test]
async fn a_tail_is_found_across_blocks_and_a_last_line_without_end_counts() {
    let log = Log::new();
    let long = "x".repeat(1000);
    for n in 0..500 {
        log.write(&format!("2026-01-01T00:00:00Z stdout F {n} {long}\n"));
    }
    log.write("2026-01-01T00:00:00Z stdout F killed while wri");
    let text = log
        .read(LogOptions {
            tail: Some(201),
            ..LogOptions::default()
        })
        .await;
    assert_eq!(text.lines().count(), 201);
    assert!(text.starts_with("300 x"), "{}", &text[..10]);
    assert!(text.ends_with("killed while wri\n"));
}

#[tokio::test]
async fn following_shows_lines_as_they_come_and_ends_with_the_container() {
    let log = Log::new();
    log.lines(0..1);
    let done = CancellationToken::new();
    let options = LogOptions {
        follow: true,
        ..LogOptions::default()
    };
    let mut lines = read_log(log.source(), options, done.clone());
    assert_eq!(next(&mut lines).await, "line 0\n");
    log.write("2026-01-01T00:00:01Z stdout F half");
    log.write(" a line\n");
    assert_eq!(next(&mut lines).await, "half a line\n");
    // what was written before the end is shown before the stream ends
    log.lines(2..4);
    done.cancel();
    assert_eq!(collect(lines).await, "line 2\nline 3\n");
}

#[tokio::test]
async fn following_survives_rotation_and_loses_no_line() {
    let log = Log::new();
    log.lines(0..1);
    let done = CancellationToken::new();
    let options = LogOptions {
        follow: true,
        ..LogOptions::default()
    };
    let mut lines = read_log(log.source(), options, done.clone());
    assert_eq!(next(&mut lines).await, "line 0\n");
    // written to the old file after its last read, then renamed, then the new one appears
    log.lines(1..2);
    let old = log.path.with_extension("log.20260101-000000");
    fs::rename(&log.path, &old).expect("rename");
    append(&old, "2026-01-01T00:00:02Z stdout F after the rename\n");
    assert_eq!(next(&mut lines).await, "line 1\n");
    assert_eq!(next(&mut lines).await, "after the rename\n");
    log.lines(3..4);
    assert_eq!(next(&mut lines).await, "line 3\n");
    // copied and truncated in place
    fs::write(&log.path, "2026-01-01T00:00:04Z stdout F 4\n").expect("truncate");
    assert_eq!(next(&mut lines).await, "4\n");
    done.cancel();
    assert_eq!(collect(lines).await, "");
}

#[tokio::test]
async fn a_log_out_of_place_is_not_read() {
    let log = Log::new();
    assert_eq!(log.read(LogOptions::default()).await, "[entity not found]");

    let secret = tempfile::NamedTempFile::new().expect("file");
    std::os::unix::fs::symlink(secret.path(), &log.path).expect("link");
    assert_eq!(
        log.read(LogOptions::default()).await,
        "[a link in the path]"
    );

    fs::remove_file(&log.path).expect("remove");
    fs::create_dir(&log.path).expect("directory");
    assert_eq!(
        log.read(LogOptions::default()).await,
        "[not a regular file]"
    );

    let outside = LogSource {
        root: log.dir.path().join("pod"),
        path: secret.path().to_owned(),
    };
    let text = collect(read_log(
        outside,
        LogOptions::default(),
        CancellationToken::new(),
    ))
    .await;
    assert!(text.starts_with("[not below"), "{text}");
    let dotted = LogSource {
        root: log.dir.path().join("pod"),
        path: log.dir.path().join("pod/../../etc/passwd"),
    };
    let text = collect(read_log(
        dotted,
        LogOptions::default(),
        CancellationToken::new(),
    ))
    .await;
    assert!(
        text.contains("cross-device") || text.contains("18"),
        "{text}"
    );
}

#[tokio::test]
async fn a_line_too_long_for_memory_is_left_out() {
    let log = Log::new();
    log.write("2026-01-01T00:00:00Z stdout F ");
    log.write(&"x".repeat(3 * super::MAX_LINE));
    log.write("\n");
    log.lines(1..2);
    assert_eq!(log.read(LogOptions::default()).await, "line 1\n");
}
