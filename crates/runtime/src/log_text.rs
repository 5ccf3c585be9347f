//! The end of a CRI log as a termination message.

use windlass_pod_lifecycle::cri_log::parse_line;

/// Text of the last lines of a log's end. Invalid lines, such as a first line cut by the block, are
/// skipped.
pub(crate) fn tail_of_log(bytes: &[u8], max_bytes: usize, max_lines: usize) -> String {
    let mut text = Vec::new();
    let mut starts = vec![0];
    for line in bytes
        .split(|b| *b == b'\n')
        .filter_map(|l| parse_line(l).ok())
    {
        line.write_to(false, &mut text);
        if !line.partial {
            starts.push(text.len());
        }
    }
    // a start is recorded after each newline, so the last one is the end of complete text
    let lines = starts.len() - usize::from(starts.last() == Some(&text.len()));
    let by_lines = starts[lines.saturating_sub(max_lines).min(starts.len() - 1)];
    let by_bytes = text.len().saturating_sub(max_bytes);
    String::from_utf8_lossy(&text[by_lines.max(by_bytes)..]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_is_limited_by_lines_and_bytes() {
        let time = "2016-10-06T00:17:09Z";
        let log = format!(
            "ut off by the block\n{time} stdout F one\n{time} stdout P tw\n{time} stderr F o\n\
             {time} stdout F three\n"
        );
        let check = |bytes, lines, expected: &str| {
            let seen = tail_of_log(log.as_bytes(), bytes, lines);
            assert_eq!(seen, expected, "{bytes} {lines}");
        };
        check(100, 80, "one\ntwo\nthree\n");
        check(100, 2, "two\nthree\n");
        check(4, 80, "ree\n");
        check(100, 0, "");
        assert_eq!(tail_of_log(b"", 10, 10), "");
    }
}
