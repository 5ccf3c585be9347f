//! Prometheus text format 0.0.4, written family by family.

use std::borrow::Cow;
use std::fmt::Write;

use windlass_types::Timestamp;

/// Kind of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A gauge.
    Gauge,
    /// A counter.
    Counter,
}

/// Name, help and kind of a family.
#[derive(Clone, Debug)]
pub(crate) struct Family {
    name: Cow<'static, str>,
    help: Cow<'static, str>,
    kind: Kind,
}

/// Creates a counter family.
pub(crate) fn counter(
    name: impl Into<Cow<'static, str>>,
    help: impl Into<Cow<'static, str>>,
) -> Family {
    family(name, help, Kind::Counter)
}

/// Creates a gauge family.
pub(crate) fn gauge(
    name: impl Into<Cow<'static, str>>,
    help: impl Into<Cow<'static, str>>,
) -> Family {
    family(name, help, Kind::Gauge)
}

/// Creates a family of a kind.
pub(crate) fn family(
    name: impl Into<Cow<'static, str>>,
    help: impl Into<Cow<'static, str>>,
    kind: Kind,
) -> Family {
    let (name, help) = (name.into(), help.into());
    Family { name, help, kind }
}

/// Text buffer. A family without samples is omitted.
#[derive(Debug)]
pub(crate) struct Text {
    out: String,
    /// The current family, until its first sample.
    pending: Option<Family>,
    name: Cow<'static, str>,
}

impl Text {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self {
            out: String::with_capacity(bytes),
            pending: None,
            name: Cow::Borrowed(""),
        }
    }

    /// Starts a family.
    pub(crate) fn family(&mut self, family: Family) {
        self.name = family.name.clone();
        self.pending = Some(family);
    }

    /// Adds a sample of the family, with its time if that is not now.
    pub(crate) fn sample(&mut self, labels: &[&[(&str, &str)]], value: f64, at: Option<Timestamp>) {
        if let Some(family) = self.pending.take() {
            let kind = match family.kind {
                Kind::Gauge => "gauge",
                Kind::Counter => "counter",
            };
            let Family { name, help, .. } = family;
            let _infallible = write!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        }
        self.out.push_str(&self.name);
        let mut separator = '{';
        for (name, value) in labels.iter().copied().flatten() {
            self.out.push(separator);
            self.out.push_str(name);
            self.out.push_str("=\"");
            escape(value, &mut self.out);
            self.out.push('"');
            separator = ',';
        }
        if separator == ',' {
            self.out.push('}');
        }
        let _infallible = match at {
            Some(at) => writeln!(self.out, " {value} {}", at.as_millisecond()),
            None => writeln!(self.out, " {value}"),
        };
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    /// Takes the text and continues with a buffer of this capacity.
    pub(crate) fn take(&mut self, room: usize) -> String {
        std::mem::replace(&mut self.out, String::with_capacity(room))
    }

    pub(crate) fn finish(self) -> String {
        self.out
    }
}

fn escape(value: &str, out: &mut String) {
    for character in value.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Text, gauge};

    #[test]
    fn family_is_written_with_first_sample_and_escaped_labels() {
        let mut text = Text::with_capacity(0);
        text.family(gauge("absent", "What it is."));
        text.family(gauge("there", "What it is."));
        let at = "2026-11-22T00:00:00.123Z".parse().expect("time");
        text.sample(&[&[("a", "x\"\\\n")], &[("b", "")]], 0.25, Some(at));
        text.sample(&[], 12e9, None);
        assert_eq!(
            text.finish(),
            "# HELP there What it is.\n# TYPE there gauge\n\
             there{a=\"x\\\"\\\\\\n\",b=\"\"} 0.25 1795305600123\nthere 12000000000\n"
        );
    }
}
