//! Reading logs that are written, rotated and tampered with.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use tokio::sync::RwLock;
use tokio_util::sync::CancellationToken;
use windlass_hung_operations::HungOperations;
use windlass_mailboxes::SystemClock;
use windlass_pod_lifecycle::cri_log::LogStream;

use super::{LogError, LogOptions, LogReader, LogSource, MAX_READERS, MAX_THREADS};

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

    /// Renames the log as a rotation does and returns its new name; the next line creates a new
    /// one.
    fn rotate(&self, stamp: &str) -> PathBuf {
        let old = self.path.with_extension(format!("log.{stamp}"));
        fs::rename(&self.path, &old).expect("rename");
        old
    }

    fn source(&self) -> LogSource {
        LogSource {
            root: self.dir.path().to_owned(),
            path: self.path.clone(),
        }
    }

    async fn read(&self, options: LogOptions) -> String {
        read(self.source(), options).await
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

type Blocks = Box<dyn futures::Stream<Item = Result<Bytes, LogError>> + Send + Unpin>;

/// All of a log that is not followed; an error in brackets.
async fn read(source: LogSource, options: LogOptions) -> String {
    let reader = LogReader::default();
    match reader.read(source, options, CancellationToken::new()).await {
        Ok(blocks) => collect(blocks).await,
        Err(LogError::Open { source, .. }) => format!("[{source}]"),
        Err(error) => format!("[{error}]"),
    }
}

async fn collect(
    mut blocks: impl futures::Stream<Item = Result<Bytes, LogError>> + Unpin,
) -> String {
    let mut text = String::new();
    while let Some(block) = blocks.next().await {
        match block {
            Ok(block) => text.push_str(&String::from_utf8_lossy(&block)),
            Err(error) => text.push_str(&format!("[{error}]")),
        }
    }
    text
}

/// A log that is followed, as far as it was read.
struct Followed {
    blocks: Blocks,
    text: String,
    done: CancellationToken,
}

impl Followed {
    async fn new(reader: &LogReader, log: &Log) -> Self {
        let done = CancellationToken::new();
        let options = LogOptions {
            follow: true,
            ..LogOptions::default()
        };
        let blocks = reader.read(log.source(), options, done.clone()).await;
        Self {
            blocks: Box::new(blocks.expect("a log")),
            text: String::new(),
            done,
        }
    }

    /// Reads until the expected number of bytes.
    async fn expect(&mut self, expected: &str) {
        while self.text.len() < expected.len() {
            let block = tokio::time::timeout(Duration::from_secs(20), self.blocks.next()).await;
            match block {
                Ok(Some(Ok(block))) => self.text.push_str(&String::from_utf8_lossy(&block)),
                other => panic!("{other:?} after {:?}, not {expected:?}", self.text),
            }
        }
        assert_eq!(std::mem::take(&mut self.text), expected);
    }

    async fn rest(self) -> String {
        self.done.cancel();
        collect(self.blocks).await
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
async fn tail_spans_blocks_and_counts_unterminated_last_line() {
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
async fn follow_streams_new_lines_until_container_exit() {
    let log = Log::new();
    log.lines(0..1);
    let mut followed = Followed::new(&LogReader::default(), &log).await;
    followed.expect("line 0\n").await;
    log.write("2026-01-01T00:00:01Z stdout F half");
    log.write(" a line\n");
    followed.expect("half a line\n").await;
    // what was written before the end is shown before the stream ends
    log.lines(2..4);
    assert_eq!(followed.rest().await, "line 2\nline 3\n");
}

#[tokio::test]
async fn follow_survives_rotation_without_losing_lines() {
    let log = Log::new();
    log.lines(0..1);
    let mut followed = Followed::new(&LogReader::default(), &log).await;
    followed.expect("line 0\n").await;
    // written to the old file after its last read, then renamed, then the new one appears
    log.lines(1..2);
    let old = log.rotate("20260101-000000");
    append(&old, "2026-01-01T00:00:02Z stdout F after the rename\n");
    followed.expect("line 1\nafter the rename\n").await;
    log.lines(3..4);
    // written by the runtime before it opened the new one
    append(&old, "2026-01-01T00:00:02Z stdout F final line\n");
    followed.expect("final line\nline 3\n").await;
    // copied and truncated in place
    fs::write(&log.path, "2026-01-01T00:00:04Z stdout F 4\n").expect("truncate");
    followed.expect("4\n").await;
    assert_eq!(followed.rest().await, "");
}

#[tokio::test]
async fn slow_reader_reads_all_uncompressed_rotated_files() {
    let log = Log::new();
    let long = "x".repeat(1000);
    let mut expected = String::new();
    let write = |range: std::ops::Range<u32>, expected: &mut String| {
        for n in range {
            log.write(&format!("2026-01-01T00:00:00Z stdout F {n} {long}\n"));
            expected.push_str(&format!("{n} {long}\n"));
        }
    };
    append(
        &log.path.with_extension("log.20251231-000000"),
        "an older one\n",
    );
    write(0..2000, &mut expected);
    // the client does not read: two blocks are in flight, the file is far from its end
    let mut followed = Followed::new(&LogReader::default(), &log).await;
    for stamp in ["20260101-000000", "20260101-000010", "20260101-000020"] {
        log.rotate(stamp);
        settle();
        write(2000..2010, &mut expected);
    }
    append(
        &log.path.with_extension("log.20260101-000005.gz"),
        "compressed",
    );
    followed.expect(&expected).await;
    assert_eq!(followed.rest().await, "");
}

/// Waits for a tick of the file system clock, which takes up to 10 ms.
fn settle() {
    let probe = tempfile::NamedTempFile::new().expect("file");
    let first = probe.as_file().metadata().and_then(|it| it.modified());
    let first = first.expect("time");
    loop {
        fs::write(probe.path(), "x").expect("write");
        if fs::metadata(probe.path())
            .and_then(|it| it.modified())
            .expect("time")
            > first
        {
            return;
        }
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn followed_log_that_is_removed_ends_with_its_container() {
    let log = Log::new();
    log.lines(0..1);
    let mut followed = Followed::new(&LogReader::default(), &log).await;
    followed.expect("line 0\n").await;
    fs::remove_dir_all(log.dir.path().join("pod")).expect("removed");
    assert_eq!(followed.rest().await, "");
}

#[tokio::test]
async fn followers_share_a_watch_that_is_removed_with_the_last() {
    let logs: Vec<_> = (0..10).map(|_| Log::new()).collect();
    let reader = LogReader::default();
    let mut all = Vec::new();
    for n in 0..1000 {
        let log = &logs[n % logs.len()];
        if n < logs.len() {
            log.lines(0..1);
        }
        let mut followed = Followed::new(&reader, log).await;
        followed.expect("line 0\n").await;
        all.push(followed);
    }
    let permits = reader.permits.available_permits();
    assert_eq!(permits, MAX_READERS - 1000);
    // a follower adds its watch when it is polled after the first lines
    within(async {
        while reader.watch.followers() < 1000 {
            for followed in &mut all {
                let block = followed.blocks.next().now_or_never();
                assert!(block.is_none(), "no line yet");
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    logs[3].lines(1..2);
    for followed in all.iter_mut().skip(3).step_by(10) {
        followed.expect("line 1\n").await;
    }
    let watched = reader.watch.directories();
    assert_eq!(watched, 10, "a directory is watched once");
    // the clients disconnect
    drop(all);
    within(async {
        while reader.permits.available_permits() < MAX_READERS || reader.watch.directories() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    let within = tokio::time::timeout(Duration::from_secs(20), future);
    within.await.expect("in time")
}

#[tokio::test]
async fn reader_over_the_limit_is_rejected() {
    let log = Log::new();
    log.lines(0..1);
    let reader = LogReader::default();
    let all = reader.permits.clone();
    let permits = u32::try_from(MAX_READERS).expect("few");
    let taken = all.acquire_many(permits).await.expect("permits");
    let done = CancellationToken::new();
    let refused = reader.read(log.source(), LogOptions::default(), done.clone());
    assert!(matches!(refused.await, Err(LogError::Busy)));
    drop(taken);
    let let_in = reader.read(log.source(), LogOptions::default(), done);
    assert_eq!(collect(let_in.await.expect("a place")).await, "line 0\n");
}

#[tokio::test]
async fn slow_client_stops_the_reader() {
    let log = Log::new();
    let line = format!("2026-01-01T00:00:00Z stdout F {}\n", "x".repeat(1000));
    log.write(&line.repeat(4000));
    let mut followed = Followed::new(&LogReader::default(), &log).await;
    let first = within(followed.blocks.next()).await;
    let first = first.expect("a block").expect("no error").len();
    assert!(first <= super::BLOCK_BYTES, "{first}");
    // overwrites unread data: a reader that had read ahead would return the old text
    let text = fs::read_to_string(&log.path).expect("log");
    fs::write(&log.path, text.replace('x', "y")).expect("write");
    let rest = followed.rest().await;
    let old = rest.lines().filter(|line| line.contains('x')).count();
    assert!(
        old * 1000 <= 3 * super::BLOCK_BYTES,
        "{old} lines were read ahead"
    );
}

#[tokio::test]
async fn bytes_stay_as_they_are() {
    let log = Log::new();
    let mut file = OpenOptions::new().append(true).create(true).open(&log.path);
    let file = file.as_mut().expect("log");
    file.write_all(b"2026-01-01T00:00:00Z stdout F \xff\xfe\0\r\n")
        .expect("write");
    let reader = LogReader::default();
    let blocks = reader.read(
        log.source(),
        LogOptions::default(),
        CancellationToken::new(),
    );
    let mut blocks = blocks.await.expect("a log");
    let block = blocks.next().await.expect("a block").expect("no error");
    assert_eq!(&block[..], b"\xff\xfe\0\r\n");
}

#[tokio::test]
async fn log_outside_its_directory_is_not_read() {
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
    let text = read(outside, LogOptions::default()).await;
    assert!(text.starts_with("[not below"), "{text}");
    let dotted = LogSource {
        root: log.dir.path().join("pod"),
        path: log.dir.path().join("pod/../../etc/passwd"),
    };
    let text = read(dotted, LogOptions::default()).await;
    assert!(
        text.contains("cross-device") || text.contains("18"),
        "{text}"
    );
}

#[tokio::test]
async fn oversized_log_line_is_skipped() {
    let log = Log::new();
    log.write("2026-01-01T00:00:00Z stdout F ");
    log.write(&"x".repeat(3 * super::lines::MAX_LINE));
    log.write("\n");
    log.lines(1..2);
    assert_eq!(log.read(LogOptions::default()).await, "line 1\n");
}

#[tokio::test]
async fn hung_files_use_a_limited_number_of_threads() {
    let reader = LogReader::default();
    let (hang, began) = (Arc::new(RwLock::new(())), Arc::<AtomicUsize>::default());
    let held = hang.write().await;
    let looks: Vec<_> = (0..4 * MAX_THREADS)
        .map(|_| {
            let (reader, hang, began) = (reader.clone(), Arc::clone(&hang), Arc::clone(&began));
            tokio::spawn(async move {
                let look = move || {
                    began.fetch_add(1, Ordering::Relaxed);
                    drop(hang.blocking_read());
                    Ok(())
                };
                reader.run_blocking(look).await
            })
        })
        .collect();
    while began.load(Ordering::Relaxed) < MAX_THREADS {
        tokio::task::yield_now().await;
    }
    // other work uses the other threads
    let other = tokio::task::spawn_blocking(|| ());
    other.await.expect("a thread");
    assert_eq!(began.load(Ordering::Relaxed), MAX_THREADS);
    drop(held);
    for look in looks {
        look.await.expect("no panic").expect("looked");
    }
    assert_eq!(began.load(Ordering::Relaxed), 4 * MAX_THREADS);
}

#[tokio::test]
async fn unpolled_followers_hold_no_thread() {
    let log = Log::new();
    log.lines(0..1);
    let reader = LogReader::default();
    let mut all = Vec::new();
    for _ in 0..2 * MAX_THREADS {
        all.push(Followed::new(&reader, &log).await);
    }
    let threads = reader.threads.all.clone();
    let most = u32::try_from(MAX_THREADS).expect("few");
    let held = threads.acquire_many(most).await.expect("all of them");
    // now each waits for a thread to find the next file, and is not polled
    for followed in &mut all {
        followed.expect("line 0\n").await;
    }
    drop(held);
    let other = within(reader.run_blocking(|| Ok("looked")));
    assert_eq!(other.await.expect("a thread"), "looked");
}

/// A reader of one pod's log, in the background, and its end.
fn read_in_background(
    reader: &LogReader,
    source: &LogSource,
) -> tokio::task::JoinHandle<Result<(), LogError>> {
    let (reader, source) = (reader.clone(), source.clone());
    tokio::spawn(async move {
        let token = CancellationToken::new();
        let blocks = reader.read(source, LogOptions::default(), token).await;
        blocks.map(drop)
    })
}

#[tokio::test]
async fn hung_log_is_listed_with_its_pod_and_delays_no_other() {
    use windlass_testing::hung_disk::HungDisk;

    let root = tempfile::tempdir().expect("temp dir");
    let source = |pod: &str| LogSource {
        root: root.path().to_owned(),
        path: root.path().join(format!("{pod}/app/0.log")),
    };
    let (sick, other) = (source("default_sick_u1"), source("default_other_u2"));
    fs::create_dir_all(other.path.parent().expect("a directory")).expect("dirs");
    append(&other.path, "2026-01-01T00:00:00Z stdout F line\n");
    let mut disk = HungDisk::mount(sick.path.parent().expect("a directory")).expect("mounted");

    let hung = HungOperations::new(Arc::new(SystemClock));
    let reader = LogReader::listing_in(hung.clone());
    // more than there are threads
    let reads: Vec<_> = (0..MAX_THREADS + 4)
        .map(|_| read_in_background(&reader, &sick))
        .collect();
    let began = tokio::time::Instant::now();
    while hung.list().is_empty() {
        assert!(began.elapsed() < Duration::from_secs(5), "not named");
        let read = read_in_background(&reader, &other);
        let read = tokio::time::timeout(Duration::from_secs(2), read).await;
        let read = read.expect("not delayed by the log that hangs");
        read.expect("a task").expect("a log");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let listed = hung.list();
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0].operation.pod, Some("u1".into()));
    let text = listed[0].to_string();
    assert!(
        text.starts_with("read of the log of app hung since"),
        "{text}"
    );

    disk.release();
    for read in reads {
        let read = tokio::time::timeout(Duration::from_secs(10), read).await;
        read.expect("released")
            .expect("a task")
            .expect_err("no log");
    }
    assert_eq!(hung.list(), []);
}
