//! The log format of the CRI: `<RFC 3339 time> <stdout|stderr> <P|F>[:tags] <message>`.
//!
//! A log file is written by the runtime while it is read, rotated and truncated by others, so a
//! line that does not parse is an error value with its kind, to be counted and skipped.

use std::fmt;

use windlass_types::Timestamp;

/// Where a container wrote a line to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl LogStream {
    /// The word in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// One line of a log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLine<'a> {
    /// When the runtime read it.
    pub time: Timestamp,
    /// Where it was written to.
    pub stream: LogStream,
    /// The container's line goes on in the next line of the same stream.
    pub partial: bool,
    /// What the container wrote, without the end of line. Any bytes.
    pub content: &'a [u8],
}

impl LogLine<'_> {
    /// What a reader of the log gets: the content, with the end of line the container wrote. Ask
    /// for the timestamp only where a line of the container begins.
    pub fn write_to(&self, timestamps: bool, out: &mut Vec<u8>) {
        if timestamps {
            out.extend_from_slice(format_time(self.time).as_bytes());
            out.push(b' ');
        }
        out.extend_from_slice(self.content);
        if !self.partial {
            out.push(b'\n');
        }
    }
}

impl fmt::Display for LogLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {} {}",
            format_time(self.time),
            self.stream.as_str(),
            if self.partial { "P" } else { "F" },
            self.content.escape_ascii()
        )
    }
}

/// What is wrong with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogLineError {
    /// The first word is no RFC 3339 time.
    #[error("no timestamp at the beginning of the line")]
    Time,
    /// The second word is neither `stdout` nor `stderr`.
    #[error("no stream after the timestamp")]
    Stream,
    /// The third word is neither `P` nor `F`.
    #[error("no P or F tag after the stream")]
    Tag,
}

/// Reads one line, with or without its end of line.
///
/// # Errors
/// Which of the three words before the content is missing or wrong.
pub fn parse_line(line: &[u8]) -> Result<LogLine<'_>, LogLineError> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let (time, rest) = word(line);
    let time = std::str::from_utf8(time)
        .ok()
        .and_then(|text| text.parse::<Timestamp>().ok())
        .ok_or(LogLineError::Time)?;
    let (stream, rest) = word(rest);
    let stream = match stream {
        b"stdout" => LogStream::Stdout,
        b"stderr" => LogStream::Stderr,
        _ => return Err(LogLineError::Stream),
    };
    let (tags, content) = word(rest);
    // Only the first tag has a meaning; more may follow after a colon.
    let partial = match tags.split(|b| *b == b':').next() {
        Some(b"P") => true,
        Some(b"F") => false,
        _ => return Err(LogLineError::Tag),
    };
    Ok(LogLine {
        time,
        stream,
        partial,
        content,
    })
}

/// A time with all nine digits, as `kubectl logs --timestamps` shows it, so that lines sort.
pub fn format_time(time: Timestamp) -> String {
    format!("{time:.9}")
}

/// The bytes up to the first space and those after it.
fn word(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.iter().position(|b| *b == b' ') {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, &[]),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(line: &[u8], expected: &str) {
        let text = match parse_line(line) {
            Ok(line) => line.to_string(),
            Err(e) => format!("{e:?}"),
        };
        assert_eq!(text, expected, "{}", line.escape_ascii());
    }

    #[test]
    fn a_line_has_time_stream_tag_and_content() {
        let full = "2016-10-06T00:17:09.669794202Z stdout F hello  world";
        check(
            b"2016-10-06T00:17:09.669794202Z stdout F hello  world\n",
            full,
        );
        check(full.as_bytes(), full);
        check(
            b"2016-10-06T02:17:09.5+02:00 stderr P:x:y part\n",
            "2016-10-06T00:17:09.500000000Z stderr P part",
        );
        check(
            b"2016-10-06T00:17:09Z stdout F \n",
            "2016-10-06T00:17:09.000000000Z stdout F ",
        );
        check(
            b"2016-10-06T00:17:09Z stdout F",
            "2016-10-06T00:17:09.000000000Z stdout F ",
        );
        check(
            b"2016-10-06T00:17:09Z stdout F \xff\r\n",
            "2016-10-06T00:17:09.000000000Z stdout F \\xff\\r",
        );
    }

    #[test]
    fn garbage_is_told_apart() {
        check(b"", "Time");
        check(b"\n", "Time");
        check(b"\0\0\0\0", "Time");
        check(b"yesterday stdout F x", "Time");
        check(b"2016-10-06T00:17:09Z", "Stream");
        check(b"2016-10-06T00:17:09Z stdin F x", "Stream");
        check(b"2016-10-06T00:17:09Z stdout", "Tag");
        check(b"2016-10-06T00:17:09Z stdout X x", "Tag");
    }

    #[test]
    fn a_partial_line_is_joined_with_the_next() {
        let mut out = Vec::new();
        for line in [
            b"2016-10-06T00:17:09Z stdout P ab".as_slice(),
            b"2016-10-06T00:17:10Z stdout F cd",
        ] {
            parse_line(line).expect("a line").write_to(false, &mut out);
        }
        assert_eq!(out, b"abcd\n");
        out.clear();
        let line = parse_line(b"2016-10-06T00:17:09.1Z stdout F x").expect("a line");
        line.write_to(true, &mut out);
        assert_eq!(out, b"2016-10-06T00:17:09.100000000Z x\n");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = parse_line(&bytes);
        }

        #[test]
        fn what_was_written_is_read_back(
            content in proptest::collection::vec(any::<u8>(), 0..60),
            partial: bool,
        ) {
            let mut line = format!(
                "2016-10-06T00:17:09.000000001Z stderr {} ",
                if partial { "P" } else { "F" }
            )
            .into_bytes();
            line.extend_from_slice(&content);
            line.push(b'\n');
            let read = parse_line(&line).expect("a line");
            prop_assert_eq!(read.content, &content[..]);
            prop_assert_eq!(read.partial, partial);
        }
    }
}
