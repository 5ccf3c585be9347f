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
    let line = split_line(line)?;
    Ok(LogLine {
        time: line.time()?,
        stream: line.stream,
        partial: line.partial,
        content: line.content,
    })
}

/// One line of a log file whose time is still text: most readers need no time, and reading it
/// costs more than all the rest of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawLine<'a> {
    /// When the runtime read it; looks like an RFC 3339 time and need not be one.
    pub time: &'a [u8],
    /// Where it was written to.
    pub stream: LogStream,
    /// The container's line goes on in the next line of the same stream.
    pub partial: bool,
    /// What the container wrote, without the end of line. Any bytes.
    pub content: &'a [u8],
}

impl RawLine<'_> {
    /// When the runtime read it.
    ///
    /// # Errors
    /// There is no such moment: `Time`.
    pub fn time(&self) -> Result<Timestamp, LogLineError> {
        let text = std::str::from_utf8(self.time).ok();
        text.and_then(|text| text.parse().ok())
            .ok_or(LogLineError::Time)
    }

    /// The time in the form of [`format_time`], without arithmetic for what is in UTC already.
    /// Such texts sort by time.
    ///
    /// # Errors
    /// There is no such moment: `Time`.
    pub fn fixed_time(&self) -> Result<[u8; TIME_LENGTH], LogLineError> {
        let mut fixed = *SHAPE;
        if let Some((b'Z', digits)) = self.time.split_last()
            && in_range(digits)
        {
            fixed[..digits.len()].copy_from_slice(digits);
            // a time without fraction has no point to copy
            fixed[SECONDS] = b'.';
            return Ok(fixed);
        }
        let text = format_time(self.time()?);
        text.as_bytes().try_into().map_err(|_| LogLineError::Time)
    }
}

/// Reads one line, with or without its end of line, but for its time.
///
/// # Errors
/// Which of the three words before the content is missing or wrong.
pub fn split_line(line: &[u8]) -> Result<RawLine<'_>, LogLineError> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    usual_line(line).map_or_else(|| any_line(line), Ok)
}

/// A line word by word.
fn any_line(line: &[u8]) -> Result<RawLine<'_>, LogLineError> {
    let (time, rest) = word(line);
    if !looks_like_time(time) {
        return Err(LogLineError::Time);
    }
    let (stream, rest) = word(rest);
    let stream = match stream {
        b"stdout" => LogStream::Stdout,
        b"stderr" => LogStream::Stderr,
        _ => return Err(LogLineError::Stream),
    };
    let (tags, content) = word(rest);
    // Only the first tag has a meaning; more may follow after a colon.
    let partial = match tags {
        b"P" | [b'P', b':', ..] => true,
        b"F" | [b'F', b':', ..] => false,
        _ => return Err(LogLineError::Tag),
    };
    Ok(RawLine {
        time,
        stream,
        partial,
        content,
    })
}

/// A whole line as runtimes write it, which is nearly every line of a long log: told from its first
/// forty bytes, eight at a time.
#[inline]
fn usual_line(line: &[u8]) -> Option<RawLine<'_>> {
    let (head, content) = line.split_first_chunk::<40>()?;
    let ([a, b, c, d, words], []) = head.as_chunks::<8>() else {
        return None;
    };
    let stream = match u64::from_ne_bytes(*words) {
        STDOUT => LogStream::Stdout,
        STDERR => LogStream::Stderr,
        _ => return None,
    };
    let misfits = HEAD[0].misfits(a) | HEAD[1].misfits(b) | HEAD[2].misfits(c) | HEAD[3].misfits(d);
    (misfits == 0).then_some(RawLine {
        time: &head[..TIME_LENGTH],
        stream,
        partial: false,
        content,
    })
}

/// A usual line up to its second word's first letter.
const HEAD: [Shape; 4] = [
    Shape::of(*b"0000-00-"),
    Shape::of(*b"00T00:00"),
    Shape::of(*b":00.0000"),
    Shape::of(*b"00000Z s"),
];

/// What follows [`HEAD`].
const STDOUT: u64 = u64::from_ne_bytes(*b"tdout F ");
const STDERR: u64 = u64::from_ne_bytes(*b"tderr F ");

/// Eight bytes: digits where it has a 0, else just these.
struct Shape {
    bytes: u64,
    /// What added to a byte that differs by more than it may sets the highest bit: a digit differs
    /// from `0` by nine at most, anything else not at all.
    over: u64,
}

impl Shape {
    const fn of(bytes: [u8; 8]) -> Self {
        let mut over = [0x7f; 8];
        let mut at = 0;
        while at < over.len() {
            if bytes[at] == b'0' {
                over[at] = 0x7f - 9;
            }
            at += 1;
        }
        Self {
            bytes: u64::from_ne_bytes(bytes),
            over: u64::from_ne_bytes(over),
        }
    }

    /// The highest bits of bytes that do not fit, and perhaps of others then.
    #[inline]
    const fn misfits(&self, text: &[u8; 8]) -> u64 {
        let differ = u64::from_ne_bytes(*text) ^ self.bytes;
        // a byte that carries into another one has its own highest bit set
        (differ | differ.wrapping_add(self.over)) & 0x8080_8080_8080_8080
    }
}

/// A time as [`format_time`] writes it: digits where it has a 0, else these marks.
const SHAPE: &[u8; TIME_LENGTH] = b"0000-00-00T00:00:00.000000000Z";

/// Bytes of a time as [`format_time`] writes it.
pub const TIME_LENGTH: usize = "0000-00-00T00:00:00.000000000Z".len();

/// Bytes of a time up to its seconds.
const SECONDS: usize = "0000-00-00T00:00:00".len();

/// Whether digits and marks are where [`SHAPE`] has them.
fn has_shape(text: &[u8]) -> bool {
    let fits = |(byte, shape): (&u8, &u8)| match shape {
        b'0' => byte.is_ascii_digit(),
        mark => byte == mark,
    };
    text.iter().zip(SHAPE).all(fits)
}

/// Whether it has the shape of an RFC 3339 time: digits and marks where they belong, and an offset.
fn looks_like_time(text: &[u8]) -> bool {
    let Some((date, rest)) = text.split_at_checked(SECONDS) else {
        return false;
    };
    let offset = match rest.split_first() {
        Some((b'.', fraction)) => {
            let digits = fraction.iter().take_while(|b| b.is_ascii_digit()).count();
            match digits {
                0 => return false,
                _ => &fraction[digits..],
            }
        }
        _ => rest,
    };
    has_shape(date) && (offset == b"Z" || matches!(offset, [b'+' | b'-', _, _, b':', _, _]))
}

/// Whether a time of that shape, without its `Z`, is a moment, and no 29th of February, which takes
/// arithmetic.
fn in_range(time: &[u8]) -> bool {
    let number = |at: usize| match time.get(at..at + 2) {
        Some([tens, ones]) => tens.wrapping_sub(b'0') * 10 + ones.wrapping_sub(b'0'),
        _ => u8::MAX,
    };
    let last_day = match number(5) {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => 28,
        _ => return false,
    };
    time.len() < TIME_LENGTH
        && (1..=last_day).contains(&number(8))
        && number(11) < 24
        && number(14) < 60
        && number(17) < 60
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
        check(b"2016-10-06T00:17:09.Z stdout F x", "Time");
        check(b"2016-10-06T00:17:09.66979420:Z stdout F x", "Time");
        check(b"2016-10-06T00:17:09.669794202+ stdout F x", "Time");
        check(b"2016-10-06T00:17:09.669794202Zstdout F x", "Time");
        check(b"2016-10-06T00:17:09Z", "Stream");
        check(b"2016-10-06T00:17:09Z stdin F x", "Stream");
        check(b"2016-10-06T00:17:09Z stdout", "Tag");
        check(b"2016-10-06T00:17:09Z stdout X x", "Tag");
    }

    #[test]
    fn a_usual_line_is_told_as_any_other_whatever_one_of_its_bytes_is() {
        for stream in ["stdout", "stderr"] {
            let line = format!("2016-10-06T00:17:09.669794202Z {stream} F hello");
            let whole = any_line(line.as_bytes()).expect("a line");
            assert_eq!(usual_line(line.as_bytes()), Some(whole));
            let mut line = line.into_bytes();
            for at in 0..line.len() {
                let good = line[at];
                for byte in 0..=u8::MAX {
                    line[at] = byte;
                    if let Some(usual) = usual_line(&line) {
                        assert_eq!(Ok(usual), any_line(&line), "{}", line.escape_ascii());
                    }
                }
                line[at] = good;
            }
        }
        assert_eq!(usual_line(b"2016-10-06T00:17:09.669794202Z stdout F"), None);
    }

    #[test]
    fn a_time_is_brought_into_its_fixed_form() {
        #[rustfmt::skip]
        let cases = [
            ("2016-10-06T00:17:09Z", "2016-10-06T00:17:09.000000000Z"),
            ("2016-10-06T00:17:09.5Z", "2016-10-06T00:17:09.500000000Z"),
            ("2016-10-06T00:17:09.669794202Z", "2016-10-06T00:17:09.669794202Z"),
            ("2016-10-06T01:17:09.5+02:00", "2016-10-05T23:17:09.500000000Z"),
            ("2016-10-31T00:17:09.5Z", "2016-10-31T00:17:09.500000000Z"),
            ("2016-02-29T00:17:09.5Z", "2016-02-29T00:17:09.500000000Z"),
            ("2016-13-06T00:17:09Z", "no time"),
            ("2016-02-30T00:17:09Z", "no time"),
            ("2016-10-06T25:17:09Z", "no time"),
            ("2016-10-06T00:17:09.1234567890Z", "no time"),
        ];
        for (text, expected) in cases {
            let line = format!("{text} stdout F x");
            let raw = split_line(line.as_bytes()).expect("the shape of a time");
            let fixed = raw.fixed_time();
            let fixed = fixed.map_or_else(|_| "no time".to_owned(), |fixed| text_of(&fixed));
            assert_eq!(fixed, expected, "{text}");
            let exact = raw
                .time()
                .map_or_else(|_| "no time".to_owned(), format_time);
            assert_eq!(fixed, exact, "{text}");
        }
    }

    fn text_of(bytes: &[u8]) -> String {
        String::from_utf8_lossy(bytes).into_owned()
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
        fn a_fixed_time_is_the_time(seconds in 0_i64..4_000_000_000, nanos in 0_i32..1_000_000_000) {
            let time = Timestamp::new(seconds, nanos).expect("a time");
            let line = format!("{time} stdout F x");
            let fixed = split_line(line.as_bytes()).expect("a line").fixed_time();
            prop_assert_eq!(text_of(&fixed.expect("a time")), format_time(time));
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
