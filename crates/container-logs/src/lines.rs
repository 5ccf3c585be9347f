//! Selects and formats lines of a log file.

use bytes::Bytes;
use windlass_pod_lifecycle::cri_log::{LogStream, RawLine, TIME_LENGTH, format_time, split_line};

use super::LogOptions;

/// Longer lines are skipped: runtimes split lines at 16 KiB.
pub(super) const MAX_LINE: usize = 1024 * 1024;

/// The lines of one reader.
#[derive(Debug, Default)]
pub(super) struct Lines {
    options: LogOptions,
    /// Minimum time of a line, in the form of [`RawLine::fixed_time`].
    since: Option<[u8; TIME_LENGTH]>,
    /// Bytes of an unfinished line.
    pending: Vec<u8>,
    /// Remaining bytes of `limit_bytes`.
    bytes_left: Option<u64>,
    /// Remaining lines of `tail`, unless it follows: later lines do not belong to the tail.
    lines_left: Option<u64>,
    /// The line being read is longer than [`MAX_LINE`].
    too_long: bool,
    /// The last line of stdout or stderr was partial: its rest has no timestamp.
    inside: [bool; 2],
}

impl Lines {
    pub(super) fn new(options: LogOptions) -> Self {
        let since = options.since.map(format_time);
        Self {
            since: since.and_then(|text| text.into_bytes().try_into().ok()),
            bytes_left: options.limit_bytes,
            lines_left: options.tail.filter(|_| !options.follow),
            options,
            ..Self::default()
        }
    }

    /// True if no more lines are selected.
    pub(super) fn ended(&self) -> bool {
        self.bytes_left == Some(0) || self.lines_left == Some(0)
    }

    /// Appends the selected lines of the next block to `out`.
    pub(super) fn take(&mut self, block: &[u8], out: &mut Vec<u8>) {
        out.reserve(self.pending.len() + block.len());
        let mut begin = 0;
        for newline in memchr::memchr_iter(b'\n', block) {
            if self.ended() {
                return;
            }
            let line = &block[begin..=newline];
            begin = newline + 1;
            if std::mem::take(&mut self.too_long) {
                continue;
            }
            if self.pending.is_empty() {
                self.put(line, out);
                continue;
            }
            let mut whole = std::mem::take(&mut self.pending);
            whole.extend_from_slice(line);
            self.put(&whole, out);
        }
        if !self.too_long {
            self.pending.extend_from_slice(&block[begin..]);
            self.too_long = self.pending.len() > MAX_LINE;
        }
        if self.too_long {
            self.pending = Vec::new();
        }
    }

    /// Unterminated last line, left by a container that was killed while writing.
    pub(super) fn last_line(&mut self) -> Option<Bytes> {
        let line = std::mem::take(&mut self.pending);
        let mut out = Vec::new();
        if !line.is_empty() && !self.too_long && !self.ended() {
            self.put(&line, &mut out);
        }
        Some(Bytes::from(out)).filter(|out| !out.is_empty())
    }

    /// Drops an incomplete line before the next file.
    pub(super) fn forget_torn_line(&mut self) {
        self.pending.clear();
        self.too_long = false;
    }

    /// Handles a line, with or without its newline.
    fn put(&mut self, line: &[u8], out: &mut Vec<u8>) {
        if let Some(left) = &mut self.lines_left {
            *left -= 1;
        }
        let Ok(raw) = split_line(line) else {
            return;
        };
        let Some(time) = self.wanted(&raw) else {
            return;
        };
        let inside = &mut self.inside[usize::from(raw.stream == LogStream::Stderr)];
        let begins = !std::mem::replace(inside, raw.partial);
        let before = out.len();
        if begins && let Time::Shown(time) = time {
            out.extend_from_slice(&time);
            out.push(b' ');
        }
        match line.last() {
            // the content with its newline
            Some(b'\n') if !raw.partial => {
                out.extend_from_slice(&line[line.len() - raw.content.len() - 1..]);
            }
            _ => {
                out.extend_from_slice(raw.content);
                if !raw.partial {
                    out.push(b'\n');
                }
            }
        }
        if let Some(left) = &mut self.bytes_left {
            let room = usize::try_from(*left).unwrap_or(usize::MAX);
            out.truncate(before.saturating_add(room));
            *left -= (out.len() - before) as u64;
        }
    }

    /// The line's time if the line is selected; a line without a valid time is not.
    fn wanted(&self, line: &RawLine<'_>) -> Option<Time> {
        let stream = self.options.stream;
        if stream.is_some_and(|wanted| wanted != line.stream) {
            return None;
        }
        if self.since.is_none() && !self.options.timestamps {
            return Some(Time::Hidden);
        }
        let time = line.fixed_time().ok()?;
        if self.since.is_some_and(|since| time < since) {
            return None;
        }
        Some(match self.options.timestamps {
            true => Time::Shown(time),
            false => Time::Hidden,
        })
    }
}

enum Time {
    Shown([u8; TIME_LENGTH]),
    Hidden,
}
