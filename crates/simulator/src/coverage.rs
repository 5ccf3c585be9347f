//! Counts of what runs did: steps that had an effect, and reactions of the node.

use std::collections::BTreeMap;
use std::fmt;

/// Counters by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage(BTreeMap<String, u64>);

impl Coverage {
    /// Counts one occurrence.
    pub fn count(&mut self, name: &str) {
        self.add(name, 1);
    }

    /// Counts several occurrences.
    pub fn add(&mut self, name: &str, times: u64) {
        match self.0.get_mut(name) {
            Some(count) => *count += times,
            None => drop(self.0.insert(name.to_owned(), times)),
        }
    }

    /// Adds the counts of another run.
    pub fn merge(&mut self, other: &Self) {
        for (name, count) in &other.0 {
            self.add(name, *count);
        }
    }

    /// Returns how often something occurred.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Returns the names with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, count)| (name.as_str(), *count))
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, count) in &self.0 {
            writeln!(f, "{count:>10} {name}")?;
        }
        Ok(())
    }
}
