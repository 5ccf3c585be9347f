//! Records of the kernel log as `/dev/kmsg` has them (`Documentation/ABI/testing/dev-kmsg`).
//!
//! A record is `priority,sequence,microseconds,flags[,…];text`. Lines that start with a space are
//! its properties.

use std::borrow::Cow;

/// Facility of messages of the kernel. Messages that processes write have another one.
const KERNEL: u64 = 0;
/// Microseconds per second.
pub(crate) const SECOND_US: u64 = 1_000_000;

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Syslog facility and level.
    priority: u64,
    /// Number of the record since boot.
    pub sequence: u64,
    /// Microseconds since boot, by the clock of the scheduler.
    pub at_us: u64,
    /// Its text, unescaped.
    pub text: Cow<'a, str>,
}

impl Record<'_> {
    /// True for a message of the kernel itself.
    pub fn is_of_kernel(&self) -> bool {
        self.priority >> 3 == KERNEL
    }
}

/// Returns the records of what was read. Malformed lines are skipped.
pub fn records(bytes: &[u8]) -> impl Iterator<Item = Record<'_>> {
    bytes.split(|byte| *byte == b'\n').filter_map(record)
}

fn record(line: &[u8]) -> Option<Record<'_>> {
    let end = line.iter().position(|byte| *byte == b';')?;
    let (head, text) = (line.get(..end)?, line.get(end + 1..)?);
    let mut fields = std::str::from_utf8(head).ok()?.split(',');
    let mut number = || -> Option<u64> {
        let field = fields.next()?;
        // `parse` accepts a sign
        field.bytes().all(|it| it.is_ascii_digit()).then_some(())?;
        field.parse().ok()
    };
    Some(Record {
        priority: number()?,
        sequence: number()?,
        at_us: number()?,
        text: unescaped(text),
    })
}

/// Replaces `\x5c` and the like, which stand for bytes that are not printable ASCII.
fn unescaped(text: &[u8]) -> Cow<'_, str> {
    if !text.contains(&b'\\') {
        return String::from_utf8_lossy(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let escaped = after
            .strip_prefix(b"x")
            .filter(|_| *first == b'\\')
            .and_then(|it| it.split_at_checked(2))
            .and_then(|(digits, after)| Some((hexadecimal(digits)?, after)));
        let (byte, after) = escaped.unwrap_or((*first, after));
        bytes.push(byte);
        rest = after;
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

fn hexadecimal(digits: &[u8]) -> Option<u8> {
    digits
        .iter()
        .all(u8::is_ascii_hexdigit)
        .then(|| std::str::from_utf8(digits).ok())
        .flatten()
        .and_then(|digits| u8::from_str_radix(digits, 16).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares `number microseconds text`, with `!` for a message of a process.
    #[track_caller]
    fn check(bytes: &[u8], expected: &[&str]) {
        let line = |it: Record<'_>| {
            let writer = if it.is_of_kernel() { "" } else { "!" };
            format!("{writer}{} {} {}", it.sequence, it.at_us, it.text)
        };
        let found: Vec<String> = records(bytes).map(line).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn record_has_number_time_and_text() {
        check(
            b"6,339,5140900,-;NET: Registered\n",
            &["339 5140900 NET: Registered"],
        );
        check(b"4,1,2,-,caller=T1;a;b", &["1 2 a;b"]);
        check(b"6,1,2,-;\n", &["1 2 "]);
        // properties of the device follow
        check(b"6,1,2,-;a\n SUBSYSTEM=pci\n DEVICE=+pci:0\n", &["1 2 a"]);
        check(b"6,1,2,-;a\n6,2,3,c;b\n", &["1 2 a", "2 3 b"]);
    }

    #[test]
    fn messages_of_processes_are_recognized() {
        check(b"12,1,2,-;oom-kill:\n", &["!1 2 oom-kill:"]);
        check(b"7,1,2,-;k\n8,2,3,-;u\n", &["1 2 k", "!2 3 u"]);
    }

    #[test]
    fn escaped_bytes_are_restored() {
        check(br"6,1,2,-;a\x5cb\x0ac", &["1 2 a\\b\nc"]);
        check(br"6,1,2,-;\xc3\xbc \xff", &["1 2 \u{fc} \u{fffd}"]);
        // not escapes
        check(br"6,1,2,-;\x4 \xzz \y \", &[r"1 2 \x4 \xzz \y \"]);
    }

    #[test]
    fn malformed_records_are_skipped() {
        for bytes in [
            &b""[..],
            b"\n",
            b"6,1,2,-",
            b";",
            b"6,1;a",
            b"+6,1,2,-;a",
            b"6,,2,-;a",
            b"6,99999999999999999999999,2,-;a",
            b"\xff,1,2,-;a",
            b" 6,1,2,-;a",
        ] {
            check(bytes, &[]);
        }
    }
}
