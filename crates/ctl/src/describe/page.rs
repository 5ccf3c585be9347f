//! Builder of indented text with aligned values.

use std::fmt::Write;

/// Column of values at the outer two levels and at inner levels.
const VALUE_COLUMNS: (usize, usize) = (18, 20);

/// A page under construction.
#[derive(Debug, Default)]
pub(super) struct Page(String);

impl Page {
    pub(super) fn into_text(self) -> String {
        self.0
    }

    /// Adds a heading.
    pub(super) fn section(&mut self, name: &str) {
        self.line(0, &format!("{name}:"));
    }

    /// Adds a line, indented by two spaces per level.
    pub(super) fn line(&mut self, level: usize, text: &str) {
        let _infallible = writeln!(self.0, "{:1$}{text}", "", level * 2);
    }

    /// Adds `Name:   value`; all lines of the value are aligned.
    pub(super) fn field(&mut self, level: usize, name: &str, value: &str) {
        // at least one space after a long name
        let column = if level < 2 {
            VALUE_COLUMNS.0
        } else {
            VALUE_COLUMNS.1
        };
        let width = column.saturating_sub(level * 2).max(name.len() + 2);
        let mut lines = value.lines();
        let first = lines.next().unwrap_or_default();
        let text = format!("{:width$}{first}", format!("{name}:"));
        self.line(level, text.trim_end());
        for line in lines {
            self.line(level, &format!("{:width$}{line}", ""));
        }
    }

    /// Adds a field if it has a value.
    pub(super) fn optional(&mut self, level: usize, name: &str, value: Option<&str>) {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            self.field(level, name, value);
        }
    }

    /// Adds `Name:   key=value`, one pair per line.
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
