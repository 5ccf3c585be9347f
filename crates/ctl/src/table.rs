//! Tables with aligned columns, in the format of kubectl.

use comfy_table::{ContentArrangement, Table, presets};

/// Spaces between columns.
const GAP: u16 = 3;

/// Formats a heading and rows, without trailing spaces.
pub(crate) fn render(heading: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    if !heading.is_empty() {
        table.set_header(heading.iter().map(ToString::to_string));
    }
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, GAP));
    }
    table
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::render;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [
            vec!["web".to_owned(), "1/1".to_owned()],
            vec!["a-long-name".to_owned(), "0/1".to_owned()],
        ];
        assert_eq!(
            render(&["NAME", "READY"], &rows),
            "NAME          READY\nweb           1/1\na-long-name   0/1\n"
        );
        assert_eq!(render(&["NAME"], &[]), "NAME\n");
    }
}
