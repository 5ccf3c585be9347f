//! A table that is redrawn in place on a terminal, and printed on each change to a file or pipe.

use std::io::{IsTerminal, Write};

/// Max characters of a cell.
const MAX_CELL: usize = 100;
/// Terminal codes that disable line wrapping while a table is drawn.
const WRAP_OFF: &str = "\x1b[?7l";
const WRAP_ON: &str = "\x1b[?7h";

/// Output of a redrawn table.
#[derive(Debug)]
pub(crate) struct Screen {
    live: bool,
    /// Lines drawn last time.
    lines: usize,
    last: String,
}

impl Screen {
    /// The standard output.
    pub(crate) fn stdout() -> Self {
        Self {
            live: std::io::stdout().is_terminal(),
            lines: 0,
            last: String::new(),
        }
    }

    /// Draws the table. Without a terminal only if `key` has changed.
    pub(crate) fn draw(&mut self, table: &str, key: &str) {
        let mut out = std::io::stdout().lock();
        // A closed pipe is not an error.
        let _ = if self.live {
            let up = if self.lines == 0 {
                String::new()
            } else {
                format!("\x1b[{}A", self.lines)
            };
            self.lines = table.lines().count();
            write!(out, "{up}\x1b[J{WRAP_OFF}{table}{WRAP_ON}")
        } else if key != self.last {
            self.last = key.to_owned();
            writeln!(out, "{table}")
        } else {
            Ok(())
        };
        let _ = out.flush();
    }
}

/// Aligns rows into columns; the first row is the header.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cut = |cell: &String| cell.chars().take(MAX_CELL).collect::<String>();
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|c| cut(c).chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..columns)
        .map(|column| width(column).unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{:<width$}", cut(cell), width = *width))
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let text = table(&[row(["NAME", "READY"]), row(["a-long-name", "1/1"])]);
        assert_eq!(text, "NAME         READY\na-long-name  1/1\n");
    }
}
