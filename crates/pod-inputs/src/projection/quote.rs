//! Labels and annotations as text: `key="value"`, quoted as in Go.

use std::collections::BTreeMap;
use std::fmt::Write;

/// Returns all entries, sorted, one per line (upstream `fieldpath.FormatMap`).
pub(super) fn entries(map: Option<&BTreeMap<String, String>>) -> String {
    let lines = map.into_iter().flatten();
    let lines: Vec<_> = lines.map(|(k, v)| format!("{k}={}", quote(v))).collect();
    lines.join("\n")
}

/// Go's `strconv.Quote`.
fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        let short = match c {
            '"' | '\\' => c,
            '\x07' => 'a',
            '\x08' => 'b',
            '\x0c' => 'f',
            '\n' => 'n',
            '\r' => 'r',
            '\t' => 't',
            '\x0b' => 'v',
            _ => {
                let code = u32::from(c);
                // writing to a String cannot fail
                let _ = match code {
                    _ if is_print(c) => write!(out, "{c}"),
                    0..=0x7f => write!(out, "\\x{code:02x}"),
                    0x80..=0xffff => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
                continue;
            }
        };
        out.push('\\');
        out.push(short);
    }
    out.push('"');
    out
}

/// Go's `unicode.IsPrint`. `escape_debug` uses the same table, but also escapes quotes and a
/// leading combining mark.
fn is_print(c: char) -> bool {
    let text = String::from_iter(['a', c]);
    c == '\'' || text.escape_debug().eq(['a', c])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_as_in_go() {
        let check = |text: &str, expected: &str| assert_eq!(quote(text), expected);
        check("plain 'text'", "\"plain 'text'\"");
        check("a\"b\\c", r#""a\"b\\c""#);
        check("\x07\x08\x0c\n\r\t\x0b", r#""\a\b\f\n\r\t\v""#);
        check("\0\x1b\x7f", r#""\x00\x1b\x7f""#);
        check("é 世界 e\u{301} 😀", "\"é 世界 e\u{301} 😀\"");
        check("\u{a0}\u{200b}\u{feff}", r#""\u00a0\u200b\ufeff""#);
        check("\u{e0001}", r#""\U000e0001""#);
        check("$%", "\"$%\"");
    }
}
