//! Reads container logs for users: the last lines, everything since, or as it comes.
//!
//! A pod with a hostPath volume can write into the log directory, so a log is opened below it
//! without following a link (`openat2`, RESOLVE_BENEATH): a link planted there would otherwise
//! show any file of the node. Following survives rotation: the old file is read to its end
//! before the next one is opened, and a reader who fell behind goes through every file that is
//! not compressed yet.
//!
//! *owns* the places for readers and one inotify descriptor · *invariant* a log is read as fast
//! as it is taken, a block ahead: by its taker what the kernel has in memory, on a thread what
//! takes the disk; whoever waits for lines holds no buffer and runs on no thread · *bound*
//! [`MAX_READERS`] of [`BLOCK_BYTES`], on [`MAX_THREADS`].

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
use windlass_pod_lifecycle::cri_log::LogStream;
use windlass_types::Timestamp;

use file::LogFile;
pub use file::open_beneath;
use follow::{Changes, LogWatch};
use lines::Lines;
pub use rotate::{ContainerLog, LogRotation, LogRotationDeps, rotate_logs};

/// Bytes read at once. What is made of them is sent in one write: a TLS connection takes 64 KiB. It
/// stays well below the 128 KiB from which the allocator maps and unmaps each buffer, which costs a
/// page fault for every 4 KiB.
const BLOCK_BYTES: usize = 64 * 1024;

/// Bytes of a file copied at once: there is nothing to make of them, and each block takes a turn on
/// a thread.
const COPY_BLOCK_BYTES: usize = 96 * 1024;

/// Logs read at a time. 1,000 followers have to have room. A reader whose client is slow holds
/// four blocks (to read into, read, on its way, at the client's connection): 256 KiB; all of them
/// 300 MiB. One who waits for lines holds next to nothing.
const MAX_READERS: usize = 1200;

/// Threads on which files are read at a time. The pool they are of is everybody's: a disk that
/// hangs, or many who want the end of a long log, must leave manifests and state files theirs. A
/// block takes some 50 µs, so that 16 are more than the processors of most nodes can use.
pub const MAX_THREADS: usize = 16;

/// A file that was renamed is looked at again after this time: the runtime may still write lines
/// into it that it had taken from the container before it opened the new one.
const RENAMED_FILE_DELAY: Duration = Duration::from_millis(100);

/// Which log.
#[derive(Clone, Debug)]
pub struct LogSource {
    /// `podLogsDir`, which the path must not leave.
    pub root: PathBuf,
    /// Absolute path of the log; of the previous instance's for `--previous`.
    pub path: PathBuf,
}

/// What of it.
#[derive(Clone, Debug, Default)]
pub struct LogOptions {
    /// Go on as lines come, until the container is done and its file is read.
    pub follow: bool,
    /// Only the last lines; counted as in the file, where a long line is several.
    pub tail: Option<u64>,
    /// Only lines written at or after this moment.
    pub since: Option<Timestamp>,
    /// End after this many bytes.
    pub limit_bytes: Option<u64>,
    /// Put the time of writing before each line.
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
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It began well.
    #[error("failed to read log file {path:?}: {source}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// As many logs are read as may be.
    #[error("{MAX_READERS} logs are being read, which is the most at a time; try again later")]
    Busy,
}

/// Who reads logs. Clones share its places and its watch on directories.
#[derive(Clone, Debug)]
pub struct LogReader {
    permits: Arc<Semaphore>,
    threads: Threads,
    watch: LogWatch,
}

impl Default for LogReader {
    fn default() -> Self {
        Self {
            permits: Arc::new(Semaphore::new(MAX_READERS)),
            threads: Threads(Arc::new(Semaphore::new(MAX_THREADS))),
            watch: LogWatch::default(),
        }
    }
}

impl LogReader {
    /// The log as a stream of blocks of whole lines, each with its newline unless it is part of a
    /// longer one.
    ///
    /// `done` is cancelled by the caller when the container has ended: then the rest of the file
    /// is the rest of the stream. Without `follow` it is not looked at. Needs a tokio runtime;
    /// dropping the stream stops the reading. What the kernel has in memory is read while the stream is
    /// polled, a block (64 KiB) at a time.
    ///
    /// # Errors
    /// There is no such log, or no permit for one reader more.
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
        let opened = self.threads.run({
            let source = source.clone();
            move || {
                let mut file = LogFile::open(&source)?.ok_or(io::ErrorKind::NotFound)?;
                if let Some(lines) = tail {
                    file.seek_to_tail(lines)?;
                }
                Ok(file)
            }
        });
        let file = match opened.await {
            Ok(file) => file,
            Err(source) => return Err(LogError::Open { path, source }),
        };
        // one on its way, one in the making
        let (sender, receiver) = mpsc::channel(1);
        let reader = Reader {
            reading: Reading {
                lines: Lines::new(options),
                block: Vec::new(),
            },
            threads: self.threads.clone(),
            watch: self.watch.clone(),
            follow,
            source,
            done,
            sender,
            _permit: permit,
        };
        Ok(received(receiver, async move {
            let sender = reader.sender.clone();
            if let Err(source) = reader.run(file).await {
                // the other end may be gone, then nobody wants to know
                let _ = sender.send(Err(LogError::Read { path, source })).await;
            }
        }))
    }

    /// The first `length` bytes of an open file, as they are.
    ///
    /// # Errors
    /// There is no permit for one reader more.
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

    /// Looks at files on one of the threads of logs, when one is free.
    ///
    /// # Errors
    /// Those of `look`, and that the process is about to end.
    pub async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        self.threads.run(work).await
    }

    /// A permit for a reader of something else, kept as long as the answer.
    ///
    /// # Errors
    /// There is none.
    pub fn permit(&self) -> Result<OwnedSemaphorePermit, LogError> {
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        permit.map_err(|_| LogError::Busy)
    }
}

/// What `sends`, which has the channel's only senders, sends until it ends. It runs while the stream is
/// polled and has nothing: a task of its own would have to wake the taker for each block.
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
            // asked before reading: what was written before the end is then read below
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
                // the runtime finishes a line before it reopens, so a torn one stays torn
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
                // what happens from here on wakes; what happened before is read first
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

    /// Sends what there is. `None` if the stream is to end.
    async fn read_to_end(&mut self, mut file: LogFile) -> io::Result<Option<LogFile>> {
        while !self.reading.lines.ended() {
            let read = match self.reading.block_of(|block| file.read_cached(block)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut reading = std::mem::take(&mut self.reading);
                    let read = self.threads.run(move || {
                        let read = reading.block_of(|block| file.read(block))?;
                        Ok((file, reading, read))
                    });
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
                // whatever is not wanted is read beside other work
                tokio::task::yield_now().await;
            } else if self.sender.send(Ok(Bytes::from(out))).await.is_err() {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// The file that follows the one just read to its end.
    async fn next_file(&self, file: &LogFile) -> io::Result<Option<LogFile>> {
        let source = self.source.clone();
        let read = file.read_so_far()?;
        self.threads.run(move || read.next(&source)).await
    }

    async fn watch_directory(&self) -> io::Result<Changes> {
        let (watch, source) = (self.watch.clone(), self.source.clone());
        // the watch's task belongs to this runtime, and a thread of its pool knows it too
        let look = move || Ok(watch.directory_of(&source));
        self.threads.run(look).await
    }
}

/// The lines of a file, and room for the block they are taken from.
#[derive(Debug, Default)]
struct Reading {
    lines: Lines,
    block: Vec<u8>,
}

impl Reading {
    /// What is wanted of the next block; `None` at the end of the file.
    fn block_of(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<Option<Vec<u8>>> {
        self.block.resize(BLOCK_BYTES, 0);
        let read = read(&mut self.block)?;
        if read == 0 {
            // whoever waits for lines holds no buffer
            self.block = Vec::new();
            return Ok(None);
        }
        let mut out = Vec::new();
        self.lines.take(&self.block[..read], &mut out);
        Ok(Some(out))
    }
}

/// Permits for [`MAX_THREADS`] of the pool's. Clones share them.
#[derive(Clone, Debug)]
struct Threads(Arc<Semaphore>);

impl Threads {
    /// Runs `work` when there is a thread for it, which it keeps to its end.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let threads = Arc::clone(&self.0);
        if let Ok(thread) = Arc::clone(&threads).try_acquire_owned() {
            return on_thread(thread, work).await;
        }
        // waited for by a task: a stream that nobody polls would keep the thread that it is given
        let waiting = tokio::spawn(async move {
            let thread = threads.acquire_owned().await.map_err(io::Error::other)?;
            on_thread(thread, work).await
        });
        let waiting = AbortOnDropHandle::new(waiting);
        waiting.await.map_err(io::Error::other)?
    }
}

async fn on_thread<T: Send + 'static>(
    thread: OwnedSemaphorePermit,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let done = tokio::task::spawn_blocking(move || {
        let _thread = thread;
        work()
    });
    done.await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests;
