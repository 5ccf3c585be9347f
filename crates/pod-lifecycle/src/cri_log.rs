//! The log format of the CRI: `<RFC 3339 time> <stdout|stderr> <P|F>[:tags] <message>`.
//!
//! A line that does not parse is an error with its kind, to be counted and skipped: files may be
//! rotated or truncated while they are read.

use windlass_types::Timestamp;

windlass_types::text_enum! {
    /// Stream of a log line. Its text is the name in the file.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum LogStream {
        /// Standard output.
        Stdout = "stdout",
        /// Standard error.
        Stderr = "stderr",
    }
}

/// A line of a log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLine<'a> {
    /// When the runtime read it.
    pub time: Timestamp,
    /// Its stream.
    pub stream: LogStream,
    /// True if the container's line continues in the next line of the stream.
    pub partial: bool,
    /// Output of the container without the end of line; any bytes.
    pub content: &'a [u8],
}

impl LogLine<'_> {
    /// Writes the content with its end of line. Request timestamps only at the start of a
    /// container's line.
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

/// Error of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogLineError {
    /// The first word is not an RFC 3339 time.
    #[error("no timestamp at the beginning of the line")]
    Time,
    /// The second word is neither `stdout` nor `stderr`.
    #[error("no stream after the timestamp")]
    Stream,
    /// The third word is neither `P` nor `F`.
    #[error("no P or F tag after the stream")]
    Tag,
}

/// Parses a line with or without its end of line.
///
/// # Errors
/// A missing or wrong word before the content.
pub fn parse_line(line: &[u8]) -> Result<LogLine<'_>, LogLineError> {
    let line = split_line(line)?;
    Ok(LogLine {
        time: line.time()?,
        stream: line.stream,
        partial: line.partial,
        content: line.content,
    })
}

/// A line of a log file with an unparsed time, because parsing the time dominates the cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawLine<'a> {
    /// When the runtime read it; has the shape of an RFC 3339 time.
    pub time: &'a [u8],
    /// Its stream.
    pub stream: LogStream,
    /// True if the container's line continues in the next line of the stream.
    pub partial: bool,
    /// Output of the container without the end of line; any bytes.
    pub content: &'a [u8],
}

impl RawLine<'_> {
    /// Parses the time.
    ///
    /// # Errors
    /// `Time` for an invalid time.
    pub fn time(&self) -> Result<Timestamp, LogLineError> {
        let text = std::str::from_utf8(self.time).ok();
        text.and_then(|text| text.parse().ok())
            .ok_or(LogLineError::Time)
    }

    /// Returns the time in the form of [`format_time`], which sorts by time; without arithmetic for
    /// a time in UTC.
    ///
    /// # Errors
    /// `Time` for an invalid time.
    pub fn fixed_time(&self) -> Result<[u8; TIME_LENGTH], LogLineError> {
        let mut fixed = *SHAPE;
        if let Some((b'Z', digits)) = self.time.split_last()
            && in_range(digits)
        {
            fixed[..digits.len()].copy_from_slice(digits);
            // a time without a fraction has no point
            fixed[SECONDS] = b'.';
            return Ok(fixed);
        }
        let text = format_time(self.time()?);
        text.as_bytes().try_into().map_err(|_| LogLineError::Time)
    }
}

/// Splits a line with or without its end of line, without parsing its time.
///
/// # Errors
/// A missing or wrong word before the content.
pub fn split_line(line: &[u8]) -> Result<RawLine<'_>, LogLineError> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    usual_line(line).map_or_else(|| any_line(line), Ok)
}

/// Splits any line word by word.
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
    // only the first tag has a meaning; more may follow after a colon
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

/// Recognizes the usual form of a complete line by its first 40 bytes, 8 at a time.
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
    let mismatches = HEAD[0].mismatches(a)
        | HEAD[1].mismatches(b)
        | HEAD[2].mismatches(c)
        | HEAD[3].mismatches(d);
    (mismatches == 0).then_some(RawLine {
        time: &head[..TIME_LENGTH],
        stream,
        partial: false,
        content,
    })
}

/// A usual line up to the first letter of its second word.
const HEAD: [Shape; 4] = [
    Shape::new(*b"0000-00-"),
    Shape::new(*b"00T00:00"),
    Shape::new(*b":00.0000"),
    Shape::new(*b"00000Z s"),
];

/// The rest of the first 40 bytes after [`HEAD`].
const STDOUT: u64 = u64::from_ne_bytes(*b"tdout F ");
const STDERR: u64 = u64::from_ne_bytes(*b"tderr F ");

/// A pattern of 8 bytes: a 0 matches any digit, other bytes match themselves.
struct Shape {
    bytes: u64,
    /// Addend that sets the highest bit of a byte with too large a difference: more than 9 for a
    /// digit, more than 0 for others.
    over: u64,
}

impl Shape {
    const fn new(bytes: [u8; 8]) -> Self {
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

    /// Returns 0 for a match, else highest bits that include those of the mismatches.
    #[inline]
    const fn mismatches(&self, text: &[u8; 8]) -> u64 {
        let differ = u64::from_ne_bytes(*text) ^ self.bytes;
        // a byte that carries into the next has its own highest bit set
        (differ | differ.wrapping_add(self.over)) & 0x8080_8080_8080_8080
    }
}

/// Pattern of [`format_time`]; a 0 matches any digit.
const SHAPE: &[u8; TIME_LENGTH] = b"0000-00-00T00:00:00.000000000Z";

/// Length of [`format_time`] in bytes.
pub const TIME_LENGTH: usize = "0000-00-00T00:00:00.000000000Z".len();

/// Length of a time up to its seconds in bytes.
const SECONDS: usize = "0000-00-00T00:00:00".len();

/// True for a match of [`SHAPE`].
fn has_shape(text: &[u8]) -> bool {
    let fits = |(byte, shape): (&u8, &u8)| match shape {
        b'0' => byte.is_ascii_digit(),
        mark => byte == mark,
    };
    text.iter().zip(SHAPE).all(fits)
}

/// True for the shape of an RFC 3339 time with an offset.
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

/// True for a valid time of that shape, without its `Z`; false for February 29.
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

/// Formats a time with nine digits of fraction, as `kubectl logs --timestamps`; it sorts by time.
pub fn format_time(time: Timestamp) -> String {
    format!("{time:.9}")
}

/// Returns the bytes before and after the first space.
fn word(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.iter().position(|b| *b == b' ') {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, &[]),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use proptest::prelude::*;

    use super::*;

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

    fn check(line: &[u8], expected: &str) {
        let text = match parse_line(line) {
            Ok(line) => line.to_string(),
            Err(e) => format!("{e:?}"),
        };
        assert_eq!(text, expected, "{}", line.escape_ascii());
    }

    #[test]
    fn line_has_time_stream_tag_and_content() {
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
    fn invalid_line_is_an_error_with_its_kind() {
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
    fn fast_path_agrees_with_slow_path_for_any_byte() {
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
    fn fixed_time_has_nine_fraction_digits() {
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
    fn partial_line_is_joined_with_the_next() {
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
        fn any_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = parse_line(&bytes);
        }

        #[test]
        fn fixed_time_equals_formatted_time(
            seconds in 0_i64..4_000_000_000,
            nanos in 0_i32..1_000_000_000,
        ) {
            let time = Timestamp::new(seconds, nanos).expect("a time");
            let line = format!("{time} stdout F x");
            let fixed = split_line(line.as_bytes()).expect("a line").fixed_time();
            prop_assert_eq!(text_of(&fixed.expect("a time")), format_time(time));
        }

        #[test]
        fn written_line_round_trips(
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
