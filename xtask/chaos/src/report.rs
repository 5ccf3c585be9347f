//! The table of a run, with the budget of each figure.

use std::fmt::Write;
use std::time::Duration;

/// Figures with their budgets.
#[derive(Debug, Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    what: String,
    value: String,
    budget: String,
    within: bool,
}

impl Report {
    /// A figure without a budget.
    pub(crate) fn figure(&mut self, what: impl Into<String>, value: impl ToString) {
        self.rows.push(Row {
            what: what.into(),
            value: value.to_string(),
            budget: String::new(),
            within: true,
        });
    }

    /// A count of at most `budget`.
    pub(crate) fn count(&mut self, what: impl Into<String>, value: usize, budget: usize) {
        self.rows.push(Row {
            what: what.into(),
            value: value.to_string(),
            budget: format!("≤ {budget}"),
            within: value <= budget,
        });
    }

    /// A time of at most `budget`.
    pub(crate) fn time(&mut self, what: impl Into<String>, value: Duration, budget: Duration) {
        self.rows.push(Row {
            what: what.into(),
            value: format!("{:.2} s", value.as_secs_f64()),
            budget: format!("≤ {} s", budget.as_secs()),
            within: value <= budget,
        });
    }

    /// Returns the table as Markdown.
    pub(crate) fn markdown(&self) -> String {
        let mut text = String::from("| what | count or time | budget | met |\n|---|---|---|---|\n");
        for row in &self.rows {
            let met = match (row.budget.is_empty(), row.within) {
                (true, _) => "",
                (false, true) => "yes",
                (false, false) => "**no**",
            };
            // writing to a string does not fail
            let _ = writeln!(
                text,
                "| {} | {} | {} | {met} |",
                row.what, row.value, row.budget
            );
        }
        text
    }

    /// Names of the figures over their budgets.
    pub(crate) fn over_budget(&self) -> Vec<&str> {
        let over = self.rows.iter().filter(|row| !row.within);
        over.map(|row| row.what.as_str()).collect()
    }
}

/// The percentile of times; zero without one.
pub(crate) fn percentile(times: &[Duration], percent: usize) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    let index = (sorted.len().saturating_sub(1) * percent).div_ceil(100);
    sorted.get(index).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_over_its_budget_is_named() {
        let mut report = Report::default();
        report.figure("kills", 1000);
        report.count("restarts", 0, 0);
        assert_eq!(report.over_budget(), Vec::<&str>::new());
        report.count("flips", 1, 0);
        report.time("back", Duration::from_secs(31), Duration::from_secs(30));
        assert_eq!(report.over_budget(), ["flips", "back"]);
        assert!(report.markdown().contains("| flips | 1 | ≤ 0 | **no** |"));
    }

    #[test]
    fn percentiles_are_of_the_sorted_times() {
        let times: Vec<Duration> = (1..=100).rev().map(Duration::from_millis).collect();
        assert_eq!(percentile(&times, 0), Duration::from_millis(1));
        assert_eq!(percentile(&times, 50), Duration::from_millis(51));
        assert_eq!(percentile(&times, 99), Duration::from_millis(100));
        assert_eq!(percentile(&[], 50), Duration::ZERO);
    }
}
