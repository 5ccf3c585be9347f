//! Text built of fields at levels, values aligned.

use std::fmt::Write;

/// Column at which values begin, at the outer two levels and further in.
const VALUES: (usize, usize) = (18, 20);

/// A page under construction.
#[derive(Debug, Default)]
pub(super) struct Page(String);

impl Page {
    /// The finished text.
    pub(super) fn into_text(self) -> String {
        self.0
    }

    /// A heading without a value.
    pub(super) fn section(&mut self, name: &str) {
        self.line(0, &format!("{name}:"));
    }

    /// A line at a level; two blanks for each.
    pub(super) fn line(&mut self, level: usize, text: &str) {
        let _infallible = writeln!(self.0, "{:1$}{text}", "", level * 2);
    }

    /// `Name:   value`; further lines of the value are aligned with its first.
    pub(super) fn field(&mut self, level: usize, name: &str, value: &str) {
        // a value needs a blank before it even if the name is longer than the column allows
        let column = if level < 2 { VALUES.0 } else { VALUES.1 };
        let width = column.saturating_sub(level * 2).max(name.len() + 2);
        let mut lines = value.lines();
        let first = lines.next().unwrap_or_default();
        let text = format!("{:width$}{first}", format!("{name}:"));
        self.line(level, text.trim_end());
        for line in lines {
            self.line(level, &format!("{:width$}{line}", ""));
        }
    }

    /// A field that is left out if it has no value.
    pub(super) fn optional(&mut self, level: usize, name: &str, value: Option<&str>) {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            self.field(level, name, value);
        }
    }

    /// `Name:   key=value`, one pair in a line.
    pub(super) fn map<'a>(
        &mut self,
        level: usize,
        name: &str,
        pairs: impl Iterator<Item = (&'a String, &'a String)>,
    ) {
        let lines: Vec<_> = pairs.map(|(key, value)| format!("{key}={value}")).collect();
        match lines.as_slice() {
            [] => self.field(level, name, "<none>"),
            lines => self.field(level, name, &lines.join("\n")),
        }
    }
}
