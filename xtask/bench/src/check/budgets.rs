//! The table of budgets, and figures compared with it.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write;

use anyhow::{Context, bail, ensure};

use crate::report::provenance;
use xtask_run as run;

const TABLE: &str = "xtask/bench/budgets.md";

/// Columns of the table: name, budget, the same for `--short`, unit, reason.
const COLUMNS: usize = 5;

/// Budgets by the name of the figure.
#[derive(Debug)]
pub(super) struct Budgets(BTreeMap<String, Budget>);

/// Max value of a figure.
#[derive(Clone, Debug)]
struct Budget {
    release: f64,
    /// For the dev build and a short measurement.
    short: f64,
    unit: String,
}

/// A figure compared with its budget. Displays as one line.
#[derive(Clone, Debug)]
pub(super) struct Comparison {
    /// Name.
    pub(super) name: String,
    value: f64,
    /// NaN without a row in the table.
    budget: f64,
    unit: String,
    detail: String,
}

impl Budgets {
    /// The table of this repository.
    pub(super) fn of_repository() -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(run::root().join(TABLE));
        Self::parse(&text.context(TABLE)?)
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut budgets = BTreeMap::new();
        // a header and a rule
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        for row in rows {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            ensure!(cells.len() == COLUMNS, "{row:?} has not {COLUMNS} cells");
            let number = |cell: &str| cell.parse::<f64>().with_context(|| row.to_owned());
            let budget = Budget {
                release: number(cells[1])?,
                short: number(cells[2])?,
                unit: cells[3].to_owned(),
            };
            ensure!(!cells[4].is_empty(), "{row:?} gives no reason");
            let name = cells[0].trim_matches('`').to_owned();
            if budgets.insert(name, budget).is_some() {
                bail!("{} is twice in the table", cells[0]);
            }
        }
        Ok(Self(budgets))
    }

    /// Compares all figures. One without a budget is over it; each budget needs a figure.
    pub(super) fn compare(
        &self,
        figures: &BTreeMap<&'static str, (f64, String)>,
        short: bool,
    ) -> anyhow::Result<Vec<Comparison>> {
        let unused = self
            .0
            .keys()
            .find(|name| !figures.contains_key(name.as_str()));
        ensure!(unused.is_none(), "{unused:?} of budgets.md is not measured");
        let none = Budget {
            release: f64::NAN,
            short: f64::NAN,
            unit: "without a row in budgets.md".to_owned(),
        };
        let compared = figures.iter().map(|(name, (value, detail))| {
            let budget = self.0.get(*name).unwrap_or(&none);
            Comparison {
                name: (*name).to_owned(),
                value: *value,
                budget: if short { budget.short } else { budget.release },
                unit: budget.unit.clone(),
                detail: detail.clone(),
            }
        });
        Ok(compared.collect())
    }
}

impl Comparison {
    /// True if the figure exceeds its budget, or is not a number.
    pub(super) fn is_over(&self) -> bool {
        self.value > self.budget || self.value.is_nan() || self.budget.is_nan()
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            value,
            budget,
            unit,
            detail,
        } = self;
        let result = if self.is_over() { "over  " } else { "within" };
        write!(f, "{result}  {name:<27} {value:>8.2} of {budget} {unit}")?;
        match detail.is_empty() {
            true => Ok(()),
            false => write!(f, "  ({detail})"),
        }
    }
}

/// The results as a table for the document.
pub(super) fn table(results: &[Comparison], command: &str) -> anyhow::Result<String> {
    let mut text = provenance(command)?;
    writeln!(text, "| figure | value | budget | unit |")?;
    writeln!(text, "|---|---|---|---|")?;
    for result in results {
        let Comparison {
            name,
            value,
            budget,
            unit,
            ..
        } = result;
        writeln!(text, "| `{name}` | {value:.2} | {budget} | {unit} |")?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = "# Title\n| figure | budget | short | unit | why |\n|---|---|---|---|---|\n\
                        | `a.calls` | 3 | 4 | calls | least |\n| `b` | 0 | 0.5 | times | why |\n";

    fn lines(figures: &[(&'static str, f64)], short: bool) -> anyhow::Result<Vec<String>> {
        let figures = figures
            .iter()
            .map(|(name, value)| (*name, (*value, String::new())));
        let results = Budgets::parse(ROWS)?.compare(&figures.collect(), short)?;
        let lines = results.iter().map(ToString::to_string);
        Ok(lines
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect())
    }

    #[test]
    fn figures_are_within_or_over_their_budget() {
        for (value, short, expected) in [
            (3.0, false, "within a.calls 3.00 of 3 calls"),
            (3.5, false, "over a.calls 3.50 of 3 calls"),
            (3.5, true, "within a.calls 3.50 of 4 calls"),
            (f64::NAN, true, "over a.calls NaN of 4 calls"),
        ] {
            let lines = lines(&[("a.calls", value), ("b", 0.0)], short).unwrap();
            assert_eq!(lines[0], expected);
        }
    }

    #[test]
    fn each_figure_has_a_budget_and_each_budget_a_figure() {
        let error =
            |figures: &[(&'static str, f64)]| lines(figures, false).unwrap_err().to_string();
        assert!(error(&[("a.calls", 1.0)]).contains("not measured"));
        let all = [("a.calls", 1.0), ("b", 0.0), ("c", 1.0)];
        let expected = "over c 1.00 of NaN without a row in budgets.md";
        assert_eq!(lines(&all, false).unwrap()[2], expected);
    }

    #[test]
    fn rows_without_reason_or_number_are_errors() {
        for (row, expected) in [
            ("| `a` | 1 | 2 | calls |  |", "gives no reason"),
            ("| `a` | one | 2 | calls | x |", "`a` | one"),
            ("| `a` | 1 | calls | x |", "has not 5 cells"),
        ] {
            let error = Budgets::parse(row).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(Budgets::of_repository().is_ok());
    }
}
