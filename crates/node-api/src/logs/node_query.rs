//! Node log queries (upstream NodeLogQuery) and their journalctl arguments.
//!
//! No shell is involved: each option is one argument that starts with its name. A pattern must be
//! valid in Go's syntax as far as Rust shares it; journalctl accepts more, which upstream rejects
//! too.

use regex_syntax::ast::parse::Parser;
use windlass_types::Timestamp;

/// Maximum lines of a journal query.
const MAX_TAIL_LINES: i64 = 100_000;

/// Maximum services of one query.
const MAX_SERVICES: usize = 4;

/// Maximum bytes of a service name.
const MAX_SERVICE_BYTES: usize = 256;

/// Maximum bytes of a pattern, which journalctl compiles.
const MAX_PATTERN_BYTES: usize = 4096;

/// A node log query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeQuery {
    /// Units of the journal, or names of files.
    pub(crate) services: Vec<String>,
    /// Paths below the log directory.
    pub(crate) files: Vec<String>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    tail_lines: Option<i64>,
    boot: Option<i64>,
    pattern: String,
}

impl NodeQuery {
    /// Parses a query; `None` if it has no node log options.
    ///
    /// # Errors
    /// An invalid parameter, with upstream's message.
    pub fn decode(query: &str) -> Result<Option<Self>, String> {
        let pairs: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
        let all = |name: &str| {
            let found = pairs.iter().filter(|(key, _)| key == name);
            found
                .map(|(_, value)| value.to_string())
                .collect::<Vec<_>>()
        };
        let one = |name: &str| all(name).into_iter().next().unwrap_or_default();
        let mut errors = Vec::new();
        let queries = all("query");
        // a slash denotes a file
        let (files, services): (Vec<_>, Vec<_>) = queries
            .iter()
            .filter(|it| !it.trim().is_empty())
            .cloned()
            .partition(|it| it.contains(['/', '\\']));
        if !queries.is_empty() && files.is_empty() && services.is_empty() {
            errors.push(invalid("query", &queries[0], "query cannot be empty"));
        }
        let time = |name: &str, errors: &mut Vec<String>| {
            let text = one(name);
            let time = text.parse().ok();
            if time.is_none() && !text.is_empty() {
                errors.push(invalid(name, &text, "invalid time format"));
            }
            time
        };
        let (since, until) = (
            time("sinceTime", &mut errors),
            time("untilTime", &mut errors),
        );
        let number = |name: &str, errors: &mut Vec<String>| {
            let text = one(name);
            let number = text.parse().ok();
            if number.is_none() && !text.is_empty() {
                errors.push(invalid(name, &text, "not a number"));
            }
            number
        };
        let (boot, tail_lines) = (
            number("boot", &mut errors),
            number("tailLines", &mut errors),
        );
        if !errors.is_empty() {
            return Err(joined(errors));
        }
        let found = Self {
            services,
            files: files.iter().map(|file| file.replace('\\', "/")).collect(),
            since,
            until,
            tail_lines,
            boot,
            pattern: one("pattern"),
        };
        Ok(Some(found).filter(|found| *found != Self::default()))
    }

    /// # Errors
    /// An invalid query, with upstream's message.
    pub fn check(&self) -> Result<(), String> {
        let mut errors = Vec::new();
        for service in &self.services {
            let safe = |b: u8| b.is_ascii_alphanumeric() || b"-_.:@".contains(&b);
            if service.len() > MAX_SERVICE_BYTES {
                let why = format!("length must be less than {MAX_SERVICE_BYTES}");
                errors.push(invalid("query", service, &why));
            } else if !service.bytes().all(safe) {
                errors.push(invalid(
                    "query",
                    service,
                    "input contains unsupported characters",
                ));
            }
        }
        if self.services.len() > MAX_SERVICES {
            let count = self.services.len();
            errors.push(format!(
                "query: Too many: {count}: must have at most {MAX_SERVICES} items"
            ));
        }
        match (self.files.len(), self.services.len()) {
            (0, 0) => errors.push("query: Required value: cannot be empty with options".to_owned()),
            (0, _) => {}
            (_, 1..) => {
                let all = self.files.join(", ");
                errors.push(invalid("query", &all, "cannot specify a file and service"));
            }
            (1, 0) if self.has_options() => {
                let why = "cannot specify file with options";
                errors.push(invalid("query", &self.files[0], why));
            }
            (1, 0) => {}
            _ => {
                let all = self.files.join(", ");
                errors.push(invalid("query", &all, "cannot specify more than one file"));
            }
        }
        if let (Some(since), Some(until)) = (self.since, self.until)
            && since > until
        {
            let until = until.to_string();
            errors.push(invalid("untilTime", &until, "must be after `sinceTime`"));
        }
        if let Some(boot) = self.boot.filter(|boot| *boot > 0) {
            errors.push(format!("boot: Invalid value: {boot}: must be less than 1"));
        }
        if let Some(lines) = self.tail_lines
            && !(0..=MAX_TAIL_LINES).contains(&lines)
        {
            errors.push(format!(
                "tailLines: Invalid value: {lines}: must be between 0 and {MAX_TAIL_LINES}, inclusive"
            ));
        }
        if self.pattern.len() > MAX_PATTERN_BYTES || self.pattern.contains('\0') {
            let shortened: String = self.pattern.chars().take(64).collect();
            errors.push(invalid(
                "pattern",
                &shortened,
                "too long or contains a zero byte",
            ));
        } else if let Err(error) = Parser::new().parse(&plain_braces(&self.pattern)) {
            let why = format!("error parsing regexp: {}", error.kind());
            errors.push(invalid("pattern", &self.pattern, &why));
        }
        match errors.is_empty() {
            true => Ok(()),
            false => Err(joined(errors)),
        }
    }

    /// Returns whether it has options besides files and services.
    pub(crate) fn has_options(&self) -> bool {
        let plain = Self {
            services: self.services.clone(),
            files: self.files.clone(),
            ..Self::default()
        };
        *self != plain
    }

    /// Returns the arguments of journalctl.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            "--utc".to_owned(),
            "--no-pager".to_owned(),
            "--output=short-precise".to_owned(),
        ];
        let time = |time: Timestamp| time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string();
        arguments.extend(self.since.map(|since| format!("--since={}", time(since))));
        arguments.extend(self.until.map(|until| format!("--until={}", time(until))));
        arguments.extend(self.tail_lines.map(|lines| format!("--lines={lines}")));
        arguments.extend(self.services.iter().map(|unit| format!("--unit={unit}")));
        if !self.pattern.is_empty() {
            arguments.push(format!("--grep={}", self.pattern));
        }
        arguments.extend(self.boot.map(|boot| format!("--boot={boot}")));
        arguments
    }
}

/// Returns upstream's error for a missing file.
pub(crate) fn no_such_file(file: &str) -> String {
    let why = format!(
        "statat {}: no such file or directory",
        file.trim_matches('/')
    );
    invalid("query", file, &why)
}

fn invalid(field: &str, value: &str, why: &str) -> String {
    format!("{field}: Invalid value: {value:?}: {why}")
}

/// Joins errors as upstream does.
fn joined(mut errors: Vec<String>) -> String {
    match errors.len() {
        1 => errors.remove(0),
        _ => format!("[{}]", errors.join(", ")),
    }
}

/// Escapes each brace that starts no repetition: journalctl and Go treat it literally, and the
/// parser would reject it.
fn plain_braces(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some(at) = rest.find(['\\', '{']) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let taken = if from.starts_with('{') {
            if !is_repetition(from) {
                out.push('\\');
            }
            1
        } else {
            // an escaped character, and the brace of a class or a code point
            let escaped = from[1..].chars().next().map_or(0, char::len_utf8);
            let has_brace = from[1..].starts_with(['p', 'P', 'x', 'u', 'U'])
                && from[1 + escaped..].starts_with('{');
            1 + escaped + usize::from(has_brace)
        };
        out.push_str(&from[..taken]);
        rest = &from[taken..];
    }
    out + rest
}

/// Returns whether it starts with `{n}`, `{n,}` or `{n,m}`.
fn is_repetition(from: &str) -> bool {
    let inner = from[1..].split_once('}').map(|(inner, _)| inner);
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    inner.is_some_and(|inner| {
        let (min, max) = inner.split_once(',').unwrap_or((inner, ""));
        !min.is_empty() && is_number(min) && is_number(max)
    })
}

#[cfg(test)]
mod tests {
    use super::NodeQuery;

    fn line(query: &str) -> String {
        match NodeQuery::decode(query) {
            Ok(None) => "a path".to_owned(),
            Err(error) => error,
            Ok(Some(found)) => match found.check() {
                Err(error) => error,
                Ok(()) if !found.files.is_empty() => format!("file {}", found.files[0]),
                Ok(()) => found.arguments().split_off(3).join(" "),
            },
        }
    }

    #[test]
    fn node_log_query_becomes_journalctl_arguments() {
        #[rustfmt::skip]
        let cases = [
            ("", "a path"),
            ("other=1&%ff=%ff", "a path"),
            ("query=kubelet", "--unit=kubelet"),
            ("query=a&query=b@1.service&pattern=x%20y&boot=-1&tailLines=5",
                "--lines=5 --unit=a --unit=b@1.service --grep=x y --boot=-1"),
            ("query=a&sinceTime=2026-11-22T05:00:00%2B01:00&untilTime=2026-11-22T05:00:00Z",
                "--since=2026-11-22 04:00:00 UTC --until=2026-11-22 05:00:00 UTC --unit=a"),
            ("query=a&pattern=--file%3D/etc/shadow", "--unit=a --grep=--file=/etc/shadow"),
            ("query=/a.log", "file /a.log"),
            ("query=a%5Cb", "file a/b"),
            ("query=%20", "query: Invalid value: \" \": query cannot be empty"),
            ("query=a%3Brm", "query: Invalid value: \"a;rm\": input contains unsupported characters"),
            ("query=a%ff", "query: Invalid value: \"a\u{fffd}\": input contains unsupported characters"),
            ("query=a&query=/b", "query: Invalid value: \"/b\": cannot specify a file and service"),
            ("query=/a&query=/b", "query: Invalid value: \"/a, /b\": cannot specify more than one file"),
            ("query=/a&tailLines=1", "query: Invalid value: \"/a\": cannot specify file with options"),
            ("tailLines=1", "query: Required value: cannot be empty with options"),
            ("query=a&query=b&query=c&query=d&query=e", "query: Too many: 5: must have at most 4 items"),
            ("query=a&boot=1", "boot: Invalid value: 1: must be less than 1"),
            ("query=a&boot=x&tailLines=y",
                "[boot: Invalid value: \"x\": not a number, tailLines: Invalid value: \"y\": not a number]"),
            ("query=a&tailLines=100001",
                "tailLines: Invalid value: 100001: must be between 0 and 100000, inclusive"),
            ("query=a&sinceTime=now", "sinceTime: Invalid value: \"now\": invalid time format"),
            ("query=a&pattern=(", "pattern: Invalid value: \"(\": error parsing regexp: unclosed group"),
            ("query=a&pattern=*", "pattern: Invalid value: \"*\": error parsing regexp: \
                repetition operator missing expression"),
            ("query=a&pattern=(%3F=b)", "pattern: Invalid value: \"(?=b)\": error parsing regexp: \
                look-around, including look-ahead and look-behind, is not supported"),
            ("query=a&pattern=%7B%22a%22", "--unit=a --grep={\"a\""),
            ("query=a&pattern=a%7B%7C%5Cp%7BL%7D%7B,2%7D%5C%7B%5B%7B%5D", "--unit=a --grep=a{|\\p{L}{,2}\\{[{]"),
            ("query=a&pattern=(%3Fi)err(or)?%5Cd%7B2%7D", "--unit=a --grep=(?i)err(or)?\\d{2}"),
            ("query=a&pattern=%00", "pattern: Invalid value: \"\\0\": too long or contains a zero byte"),
        ];
        for (query, expected) in cases {
            assert_eq!(line(query), expected, "{query}");
        }
        let long = format!("query={}", "a".repeat(257));
        assert!(line(&long).ends_with("length must be less than 256"));
    }
}
