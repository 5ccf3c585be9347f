//! Container logs in the CRI format: reading, following, rotation.
//!
//! A log is read from its last lines, from a time or from its begin, and followed until its
//! container has exited. Following survives rotation: the old file is read to its end before the
//! next one is opened, and a slow reader reads every file that is not compressed yet.
//!
//! *owns* the permits of readers and one inotify descriptor · *invariant* a reader is at most one
//! block ahead of its client; cached data is read by the client's task, other data on a blocking
//! thread; a follower that waits for lines holds no buffer and no thread; a log that hangs delays no
//! log of another pod · *bound* `MAX_READERS` of `BLOCK_BYTES`, on [`MAX_THREADS`], of which a pod has
//! `MAX_THREADS_PER_POD`.
//!
//! # Entry points
//!
//! * [`LogReader::read`] returns the lines of a log as a stream, [`LogReader::copy`] a file unchanged
//! * [`rotate_logs`] rotates and compresses logs as fast as they grow
//! * [`open_beneath`] opens a file below a directory without following links
//!
//! # Example
//!
//! ```
//! use futures::StreamExt;
//! use tokio_util::sync::CancellationToken;
//! use windlass_container_logs::{LogOptions, LogReader, LogSource};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let root = tempfile::tempdir()?;
//! let path = root.path().join("0.log");
//! std::fs::write(&path, "2026-01-01T00:00:00Z stdout F one\n2026-01-01T00:00:01Z stdout F two\n")?;
//! let source = LogSource { root: root.path().to_owned(), path };
//! let options = LogOptions { tail: Some(1), ..LogOptions::default() };
//! let done = CancellationToken::new();
//! let mut log = LogReader::default().read(source, options, done).await?;
//! let block = log.next().await.ok_or("no line")??;
//! assert_eq!(&block[..], b"two\n");
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run -p windlass-container-logs --example follow_log FILE` follows a log file.
//!
//! # Guarantees
//!
//! * A pod with a hostPath volume can write to the log directory, so a log is opened without
//!   following links (`openat2`, RESOLVE_BENEATH): a link could expose any file of the node.
//! * A rotation loses no line: if the runtime does not reopen the log, the rename is undone.
//! * A read that hangs is listed with its pod ([`HungOperations`]).
//!
//! # Limits
//!
//! Compressed files are not read. What a container writes faster than it is rotated is kept in one
//! file: [`rotate_logs`] states the bound.

mod file;
mod follow;
mod lines;
mod rotate;

use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt, Stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use windlass_hung_operations::{HungOperations, Operation, OperationKind};
use windlass_pacing::SharedByKey;
use windlass_pod_lifecycle::cri_log::LogStream;
use windlass_types::{PodUid, Timestamp};

use file::LogFile;
pub use file::open_beneath;
use follow::{Changes, LogWatch};
use lines::Lines;
pub use rotate::{
    ContainerLog, LogList, LogRotation, LogRotationDeps, ReopenLog, RotationError, rotate_logs,
};

/// Block size of reads, and of the writes to the client. Below the 128 KiB from which the allocator
/// maps and unmaps each buffer, which costs a page fault for every 4 KiB.
const BLOCK_BYTES: usize = 64 * 1024;

/// Block size of copies, which are larger because each block needs a blocking thread.
const COPY_BLOCK_BYTES: usize = 96 * 1024;

/// Maximum concurrent readers, for 1,000 followers. A reader with a slow client holds four blocks
/// (256 KiB), all of them 300 MiB; one that waits for lines holds almost nothing.
const MAX_READERS: usize = 1200;

/// Maximum blocking threads for reading files. They are part of a shared pool: a hung disk, or many
/// readers of long logs, must not block manifests and state files. A block takes some 50 µs.
pub const MAX_THREADS: usize = 16;

/// Maximum blocking threads for the logs of one pod: a pod whose log is on a disk that hangs leaves
/// the other threads to the logs of other pods.
const MAX_THREADS_PER_POD: usize = 4;

/// Delay before a renamed file is read once more: the runtime may still write to it before it opens
/// the new one.
const RENAMED_FILE_DELAY: Duration = Duration::from_millis(100);

/// A block of a log that is not read for this long is listed as hung: a disk takes milliseconds, and
/// a search for the last lines of the largest log (10 MiB by default) a tenth of a second.
const HANG_THRESHOLD: Duration = Duration::from_secs(4);

/// Location of a log.
#[derive(Clone, Debug)]
pub struct LogSource {
    /// `podLogsDir`, which the path must not leave.
    pub root: PathBuf,
    /// Absolute path of the log.
    pub path: PathBuf,
}

impl LogSource {
    /// The pod of the log, from its directory `<namespace>_<name>_<uid>/<container>`, and the
    /// container.
    fn owner(&self) -> Option<(PodUid, &str)> {
        let below = self.path.strip_prefix(&self.root).ok()?;
        let mut parts = below.iter().map(|part| part.to_str());
        let (pod, container) = (parts.next()??, parts.next()??);
        let (_, uid) = pod.rsplit_once('_')?;
        Some((PodUid::from(uid), container))
    }

    /// A read of the log as a hung operation.
    fn operation(&self) -> Operation {
        let (pod, name) = match self.owner() {
            Some((pod, container)) => (Some(pod), format!("read of the log of {container}")),
            None => (None, format!("read of the log {}", self.path.display())),
        };
        Operation {
            kind: OperationKind::LogRead,
            pod,
            name,
        }
    }
}

/// Options of reading a log.
#[derive(Clone, Debug, Default)]
pub struct LogOptions {
    /// Follow the log until the container has exited and its log is read.
    pub follow: bool,
    /// Only the last lines; long lines count as several, as in the file.
    pub tail: Option<u64>,
    /// Only lines written at or after this time.
    pub since: Option<Timestamp>,
    /// End after this many bytes.
    pub limit_bytes: Option<u64>,
    /// Include a timestamp on each line.
    pub timestamps: bool,
    /// Only this stream.
    pub stream: Option<LogStream>,
}

/// A log that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file does not exist or is outside the log directory.
    #[error("failed to open log file {path:?}: {source}")]
    Open {
        /// Path of the log.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// A read failed after the log was opened.
    #[error("failed to read log file {path:?}: {source}")]
    Read {
        /// Path of the log.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// The limit of concurrent readers is reached.
    #[error("too many concurrent log readers (limit: {MAX_READERS}); try again later")]
    Busy,
}

/// Reads logs. Clones share the permits and the directory watches.
#[derive(Clone, Debug)]
pub struct LogReader {
    permits: Arc<Semaphore>,
    threads: Threads,
    watch: LogWatch,
    hung: Option<HungOperations>,
}

impl Default for LogReader {
    fn default() -> Self {
        Self {
            permits: Arc::new(Semaphore::new(MAX_READERS)),
            threads: Threads::default(),
            watch: LogWatch::default(),
            hung: None,
        }
    }
}

impl LogReader {
    /// Creates a reader that lists reads that hang in `hung`.
    pub fn listing_in(hung: HungOperations) -> Self {
        Self {
            hung: Some(hung),
            ..Self::default()
        }
    }

    /// Returns the log as a stream of blocks of whole lines, each with its newline unless it is
    /// part of a longer one.
    ///
    /// The caller cancels `done` when the container has exited: then the stream ends with the file.
    /// It is ignored without `follow`. Requires a tokio runtime; dropping the stream stops the
    /// reader. Cached data is read while the stream is polled, in blocks of 64 KiB.
    ///
    /// # Errors
    /// The log does not exist, or the limit of readers is reached.
    pub async fn read(
        &self,
        source: LogSource,
        options: LogOptions,
        done: CancellationToken,
    ) -> Result<impl Stream<Item = Result<Bytes, LogError>> + Send + Unpin + 'static, LogError>
    {
        let permit = self.permit()?;
        let path = source.path.clone();
        let follow = options.follow;
        let tail = options.tail;
        let opened = self.threads.run_for(&source, {
            let source = source.clone();
            move || {
                let mut file = LogFile::open(&source)?.ok_or(io::ErrorKind::NotFound)?;
                if let Some(lines) = tail {
                    file.seek_to_tail(lines)?;
                }
                Ok(file)
            }
        });
        let file = match track(self.hung.as_ref(), &source, opened).await {
            Ok(file) => file,
            Err(source) => return Err(LogError::Open { path, source }),
        };
        // one block in the channel, one being read
        let (sender, receiver) = mpsc::channel(1);
        let reader = Reader {
            reading: Reading {
                lines: Lines::new(options),
                block: Vec::new(),
            },
            threads: self.threads.clone(),
            watch: self.watch.clone(),
            hung: self.hung.clone(),
            follow,
            source,
            done,
            sender,
            _permit: permit,
        };
        Ok(received(receiver, async move {
            let sender = reader.sender.clone();
            if let Err(source) = reader.run(file).await {
                // the receiver may be dropped
                let _ = sender.send(Err(LogError::Read { path, source })).await;
            }
        }))
    }

    /// Returns the first `length` bytes of an open file, unchanged.
    ///
    /// # Errors
    /// The limit of readers is reached.
    pub fn copy(
        &self,
        file: std::fs::File,
        length: u64,
    ) -> Result<impl Stream<Item = io::Result<Bytes>> + Send + Unpin + 'static, LogError> {
        let permit = self.permit()?;
        let state = (file, length, self.threads.clone(), permit);
        Ok(Box::pin(futures::stream::try_unfold(
            state,
            |(mut file, left, threads, permit)| async move {
                let read = threads.run(move || {
                    let mut block = Vec::with_capacity(COPY_BLOCK_BYTES);
                    let wanted = left.min(COPY_BLOCK_BYTES as u64);
                    (&mut file).take(wanted).read_to_end(&mut block)?;
                    Ok((file, block))
                });
                let (file, block) = read.await?;
                let left = left.saturating_sub(block.len() as u64);
                let state = (file, left, threads, permit);
                Ok((!block.is_empty()).then(|| (Bytes::from(block), state)))
            },
        )))
    }

    /// Runs `work` on one of the blocking threads for logs, once one is free.
    ///
    /// # Errors
    /// Errors of `work`, and shutdown.
    pub async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        self.threads.run(work).await
    }

    /// Acquires a permit for a reader of other data, held until the end of the response.
    ///
    /// # Errors
    /// The limit of readers is reached.
    pub fn permit(&self) -> Result<OwnedSemaphorePermit, LogError> {
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        permit.map_err(|_| LogError::Busy)
    }
}

/// Stream of the items that `sends` sends; it has all senders of the channel. It runs while the
/// stream is polled: a separate task would have to wake the client for each block.
fn received<T: Send + 'static>(
    mut receiver: mpsc::Receiver<T>,
    sends: impl Future<Output = ()> + Send + 'static,
) -> impl Stream<Item = T> + Send + Unpin + 'static {
    let mut sends = Box::pin(sends.fuse());
    futures::stream::poll_fn(move |context| {
        if let Poll::Ready(item) = receiver.poll_recv(context) {
            return Poll::Ready(item);
        }
        let _ = sends.poll_unpin(context);
        receiver.poll_recv(context)
    })
}

struct Reader {
    reading: Reading,
    threads: Threads,
    watch: LogWatch,
    hung: Option<HungOperations>,
    follow: bool,
    source: LogSource,
    done: CancellationToken,
    sender: mpsc::Sender<Result<Bytes, LogError>>,
    _permit: OwnedSemaphorePermit,
}

impl Reader {
    async fn run(mut self, mut file: LogFile) -> io::Result<()> {
        let mut changes: Option<Changes> = None;
        loop {
            // checked before reading, so that everything written before the end is read below
            let done = !self.follow || self.done.is_cancelled();
            let Some(back) = self.read_to_end(file).await? else {
                return Ok(());
            };
            file = back;
            if self.follow
                && let Some(next) = self.next_file(&file).await?
            {
                if !next.is(&file) {
                    tokio::time::sleep(RENAMED_FILE_DELAY).await;
                    if self.read_to_end(file).await?.is_none() {
                        return Ok(());
                    }
                }
                // the runtime finishes a line before it reopens, so an incomplete one stays
                // incomplete
                self.reading.lines.forget_torn_line();
                file = next;
                continue;
            }
            if done {
                if let Some(line) = self.reading.lines.last_line() {
                    let _ = self.sender.send(Ok(line)).await;
                }
                return Ok(());
            }
            let Some(changes) = &mut changes else {
                // read again: changes before the watch cause no event
                changes = Some(self.watch_directory().await?);
                continue;
            };
            tokio::select! {
                biased;
                () = self.done.cancelled() => {}
                () = changes.next() => {}
            }
        }
    }

    /// Sends the rest of the file; `None` if the stream ends.
    async fn read_to_end(&mut self, mut file: LogFile) -> io::Result<Option<LogFile>> {
        while !self.reading.lines.ended() {
            let read = match self.reading.block_of(|block| file.read_cached(block)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut reading = std::mem::take(&mut self.reading);
                    let read = self.threads.run_for(&self.source, move || {
                        let read = reading.block_of(|block| file.read(block))?;
                        Ok((file, reading, read))
                    });
                    let read = track(self.hung.as_ref(), &self.source, read);
                    let (back, reading, read) = read.await?;
                    file = back;
                    self.reading = reading;
                    read
                }
                read => read?,
            };
            let Some(out) = read else {
                return Ok(Some(file));
            };
            if out.is_empty() {
                // lets other tasks run while lines are skipped
                tokio::task::yield_now().await;
            } else if self.sender.send(Ok(Bytes::from(out))).await.is_err() {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// The file after the one that was read to its end.
    async fn next_file(&self, file: &LogFile) -> io::Result<Option<LogFile>> {
        let source = self.source.clone();
        let read = file.read_so_far()?;
        let next = move || read.next(&source);
        let next = self.threads.run_for(&self.source, next);
        track(self.hung.as_ref(), &self.source, next).await
    }

    async fn watch_directory(&self) -> io::Result<Changes> {
        let (watch, source) = (self.watch.clone(), self.source.clone());
        // threads of the pool can spawn the watch's task on this runtime
        let add_watch = move || Ok(watch.directory_of(&source));
        self.threads.run(add_watch).await
    }
}

/// Waits for a read of a log; lists it while it hangs.
async fn track<T>(
    hung: Option<&HungOperations>,
    source: &LogSource,
    read: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    match hung {
        Some(hung) => {
            let operation = || source.operation();
            hung.track(HANG_THRESHOLD, operation, |_| true, read).await
        }
        None => read.await,
    }
}

/// The lines of a file, and the buffer of the current block.
#[derive(Debug, Default)]
struct Reading {
    lines: Lines,
    block: Vec<u8>,
}

impl Reading {
    /// Selected lines of the next block; `None` at the end of the file.
    fn block_of(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<Option<Vec<u8>>> {
        self.block.resize(BLOCK_BYTES, 0);
        let read = read(&mut self.block)?;
        if read == 0 {
            // a waiting follower holds no buffer
            self.block = Vec::new();
            return Ok(None);
        }
        let mut out = Vec::new();
        self.lines.take(&self.block[..read], &mut out);
        Ok(Some(out))
    }
}

/// Permits for [`MAX_THREADS`] blocking threads, [`MAX_THREADS_PER_POD`] of them for one pod. Clones
/// share them.
#[derive(Clone, Debug)]
struct Threads {
    all: Arc<Semaphore>,
    pods: Arc<SharedByKey<PodUid, Semaphore>>,
}

impl Default for Threads {
    fn default() -> Self {
        Self {
            all: Arc::new(Semaphore::new(MAX_THREADS)),
            pods: Arc::default(),
        }
    }
}

/// Permit for a thread, and that of its pod.
type Thread = (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>);

impl Threads {
    /// Runs `work` once a thread is free.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        self.run_within(None, Box::new(work)).await
    }

    /// Runs `work` on a log, once a thread for its pod is free.
    async fn run_for<T: Send + 'static>(
        &self,
        source: &LogSource,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let semaphore = || Semaphore::new(MAX_THREADS_PER_POD);
        let owner = source.owner();
        let of_pod = owner.map(|(uid, _)| self.pods.get_or_insert_with(uid, semaphore));
        self.run_within(of_pod, Box::new(work)).await
    }

    async fn run_within<T: Send + 'static>(
        &self,
        of_pod: Option<Arc<Semaphore>>,
        work: Box<dyn FnOnce() -> io::Result<T> + Send>,
    ) -> io::Result<T> {
        let all = Arc::clone(&self.all);
        if let Some(thread) = try_acquire(&all, of_pod.as_ref()) {
            return on_thread(thread, work).await;
        }
        // in a task: an unpolled stream would hold its permit without using the thread
        let waiting = tokio::spawn(async move {
            let of_pod = match of_pod {
                Some(of_pod) => Some(of_pod.acquire_owned().await.map_err(io::Error::other)?),
                None => None,
            };
            let thread = all.acquire_owned().await.map_err(io::Error::other)?;
            on_thread((thread, of_pod), work).await
        });
        let waiting = AbortOnDropHandle::new(waiting);
        waiting.await.map_err(io::Error::other)?
    }
}

/// A thread that is free now.
fn try_acquire(all: &Arc<Semaphore>, of_pod: Option<&Arc<Semaphore>>) -> Option<Thread> {
    let of_pod = match of_pod {
        Some(of_pod) => Some(Arc::clone(of_pod).try_acquire_owned().ok()?),
        None => None,
    };
    Some((Arc::clone(all).try_acquire_owned().ok()?, of_pod))
}

async fn on_thread<T: Send + 'static>(
    thread: Thread,
    work: Box<dyn FnOnce() -> io::Result<T> + Send>,
) -> io::Result<T> {
    let done = tokio::task::spawn_blocking(move || {
        let _thread = thread;
        work()
    });
    done.await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests;
