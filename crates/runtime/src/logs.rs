//! Reads container logs for users: the last lines, everything since, or as it comes.
//!
//! A pod with a hostPath volume can write into the log directory, so a log is opened below it
//! without following a link (`openat2`, RESOLVE_BENEATH): a link planted there would otherwise
//! show any file of the node. Following survives rotation: the old file is read to its end
//! before the new one is opened.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::Duration;

use futures::Stream;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use windlass_core::cri_log::{LogLine, LogStream, parse_line};
use windlass_types::Timestamp;

mod file;

use file::LogFile;
pub(crate) use file::open_beneath;

/// Bytes read at once.
const BLOCK: usize = 64 * 1024;

/// A longer line is left out: runtimes cut lines at 16 KiB.
const MAX_LINE: usize = 1024 * 1024;

/// Lines on their way to a slow reader; then the file is not read further.
const QUEUE: usize = 64;

/// Looks for new lines this often at first and, while none come, ever more rarely.
const POLL: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(320));

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
#[error("cannot read log {}: {source}", path.display())]
pub struct LogError {
    /// Which.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// The log as a stream of lines, each with its newline unless it is part of a longer one.
///
/// `done` is cancelled by the caller when the container has ended: then the rest of the file
/// is the rest of the stream. Without `follow` it is not looked at. Needs a tokio runtime;
/// dropping the stream stops the reading.
pub fn read_log(
    source: LogSource,
    options: LogOptions,
    done: CancellationToken,
) -> impl Stream<Item = Result<Vec<u8>, LogError>> + Send + Unpin + 'static {
    let (sender, receiver) = mpsc::channel(QUEUE);
    tokio::spawn(async move {
        let path = source.path.clone();
        let mut reader = Reader {
            source,
            left: options.limit_bytes,
            options,
            done,
            sender: sender.clone(),
            pending: Vec::new(),
            broken: false,
            inside: [false; 2],
        };
        if let Err(source) = reader.run().await {
            // the other end may be gone, then nobody wants to know
            let _ = sender.send(Err(LogError { path, source })).await;
        }
    });
    Box::pin(futures::stream::unfold(receiver, |mut receiver| async {
        receiver.recv().await.map(|item| (item, receiver))
    }))
}

struct Reader {
    source: LogSource,
    options: LogOptions,
    done: CancellationToken,
    sender: mpsc::Sender<Result<Vec<u8>, LogError>>,
    /// Bytes of an unfinished line.
    pending: Vec<u8>,
    /// Bytes of `limit_bytes` that are left.
    left: Option<u64>,
    /// The line being read is longer than [`MAX_LINE`].
    broken: bool,
    /// The last line sent of stdout, stderr was a part: its rest needs no time of its own.
    inside: [bool; 2],
}

impl Reader {
    async fn run(&mut self) -> io::Result<()> {
        let Some(mut file) = self.open().await? else {
            return Err(io::ErrorKind::NotFound.into());
        };
        if let Some(lines) = self.options.tail {
            file = blocking(move || {
                let start = start_of_tail(&mut file.file, lines)?;
                file.file.seek(SeekFrom::Start(start))?;
                Ok(file)
            })
            .await?;
        }
        let mut pause = POLL.0;
        loop {
            // asked before reading: what was written before the end is then read below
            let done = !self.options.follow || self.done.is_cancelled();
            let (back, block) = blocking(move || read_block(file)).await?;
            file = back;
            if !block.is_empty() {
                pause = POLL.0;
                if !self.take(&block).await {
                    return Ok(());
                }
                continue;
            }
            if self.options.follow
                && let Some(next) = self.rotated(&file).await?
            {
                file = next;
                continue;
            }
            if done {
                self.last_line().await;
                return Ok(());
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(POLL.1),
                () = self.done.cancelled() => {}
                () = self.sender.closed() => return Ok(()),
            }
        }
    }

    async fn open(&self) -> io::Result<Option<LogFile>> {
        let source = self.source.clone();
        blocking(move || LogFile::open(&source)).await
    }

    /// The file that took the place of the one just read to its end. Between the two halves of
    /// a rotation there is none; a truncated file counts as a new one.
    async fn rotated(&mut self, file: &LogFile) -> io::Result<Option<LogFile>> {
        let (id, position) = (file.id, file.position);
        let Some(next) = self.open().await? else {
            return Ok(None);
        };
        let same = next.id == id && next.file.metadata()?.len() >= position;
        if same {
            return Ok(None);
        }
        // the runtime finishes a line before it reopens, so a torn one stays torn
        self.pending.clear();
        self.broken = false;
        Ok(Some(next))
    }

    /// Sends the complete lines of a block. Returns false if the stream is to end.
    async fn take(&mut self, block: &[u8]) -> bool {
        self.pending.extend_from_slice(block);
        let mut pending = std::mem::take(&mut self.pending);
        let mut rest = pending.as_slice();
        while let Some(end) = rest.iter().position(|b| *b == b'\n') {
            let (line, after) = rest.split_at(end);
            rest = &after[1..];
            let broken = std::mem::take(&mut self.broken);
            if !broken && !self.send(line).await {
                return false;
            }
        }
        let kept = rest.len();
        pending.drain(..pending.len() - kept);
        if pending.len() > MAX_LINE {
            tracing::debug!(path = %self.source.path.display(), "log line too long, left out");
            pending.clear();
            self.broken = true;
        }
        self.pending = pending;
        true
    }

    /// A container that was killed while writing leaves a line without its end.
    async fn last_line(&mut self) {
        let line = std::mem::take(&mut self.pending);
        if !line.is_empty() && !self.broken {
            self.send(&line).await;
        }
    }

    async fn send(&mut self, line: &[u8]) -> bool {
        let line = match parse_line(line) {
            Ok(line) => line,
            Err(error) => {
                tracing::debug!(path = %self.source.path.display(), %error, "log line skipped");
                return true;
            }
        };
        if !self.wanted(&line) {
            return true;
        }
        let inside = &mut self.inside[usize::from(line.stream == LogStream::Stderr)];
        let begins = !std::mem::replace(inside, line.partial);
        let mut out = Vec::with_capacity(line.content.len() + 40);
        line.write_to(self.options.timestamps && begins, &mut out);
        if let Some(left) = &mut self.left {
            out.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= out.len() as u64;
        }
        let full = self.left == Some(0);
        self.sender.send(Ok(out)).await.is_ok() && !full
    }

    fn wanted(&self, line: &LogLine<'_>) -> bool {
        if self
            .options
            .stream
            .is_some_and(|wanted| wanted != line.stream)
        {
            return false;
        }
        self.options.since.is_none_or(|since| line.time >= since)
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(io::Error::other)?
}

fn read_block(mut file: LogFile) -> io::Result<(LogFile, Vec<u8>)> {
    let mut block = Vec::with_capacity(BLOCK);
    (&mut file.file)
        .take(BLOCK as u64)
        .read_to_end(&mut block)?;
    file.position = file.file.stream_position()?;
    Ok((file, block))
}

/// Offset at which the last `lines` lines begin, found from the end.
fn start_of_tail(file: &mut std::fs::File, lines: u64) -> io::Result<u64> {
    let end = file.metadata()?.len();
    if lines == 0 {
        return Ok(end);
    }
    let mut block = vec![0; BLOCK];
    let mut found = 0;
    let mut start = end;
    while start > 0 {
        let from = start.saturating_sub(BLOCK as u64);
        let part = &mut block[..(start - from) as usize];
        file.seek(SeekFrom::Start(from))?;
        file.read_exact(part)?;
        for (i, _) in part.iter().enumerate().rev().filter(|(_, b)| **b == b'\n') {
            let after = from + i as u64 + 1;
            // the newline that ends the file ends its last line
            if after == end {
                continue;
            }
            found += 1;
            if found == lines {
                return Ok(after);
            }
        }
        start = from;
    }
    Ok(0)
}

#[cfg(test)]
mod tests;
