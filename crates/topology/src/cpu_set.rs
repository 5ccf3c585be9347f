//! Sets of CPUs, with the list format of the kernel.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::{BitAnd, BitOr, Sub};
use std::str::FromStr;

/// Highest number of a CPU in a list: a range beyond it is a mistake.
const MAX_CPU: u32 = 1 << 16;

/// Sorted set of CPU numbers. Displays and parses the kernel's list format, for example `0-3,8`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuSet(BTreeSet<u32>);

/// Error of a text that is not a CPU list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a list of CPUs such as 0-3,8")]
pub struct CpuSetError(String);

impl CpuSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of CPUs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there is no CPU.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if a CPU is in the set.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// Adds a CPU.
    pub fn insert(&mut self, cpu: u32) {
        self.0.insert(cpu);
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// True if all CPUs are in another set.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }

    /// True if no CPU is in another set.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.0.is_disjoint(&other.0)
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl Extend<u32> for CpuSet {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, cpus: I) {
        self.0.extend(cpus);
    }
}

impl BitOr for &CpuSet {
    type Output = CpuSet;

    fn bitor(self, other: Self) -> CpuSet {
        CpuSet(&self.0 | &other.0)
    }
}

impl BitAnd for &CpuSet {
    type Output = CpuSet;

    fn bitand(self, other: Self) -> CpuSet {
        CpuSet(&self.0 & &other.0)
    }
}

impl Sub for &CpuSet {
    type Output = CpuSet;

    fn sub(self, other: Self) -> CpuSet {
        CpuSet(&self.0 - &other.0)
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if_eq(&(last + 1)) {
                last = next;
            }
            match first == last {
                true => write!(f, "{separator}{first}")?,
                false => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

impl FromStr for CpuSet {
    type Err = CpuSetError;

    fn from_str(text: &str) -> Result<Self, CpuSetError> {
        let error = || CpuSetError(text.to_owned());
        let trimmed = text.trim();
        let mut cpus = Self::new();
        if trimmed.is_empty() {
            return Ok(cpus);
        }
        for part in trimmed.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: u32 = first.parse().map_err(|_| error())?;
            let last: u32 = last.parse().map_err(|_| error())?;
            if first > last || last > MAX_CPU {
                return Err(error());
            }
            cpus.extend(first..=last);
        }
        Ok(cpus)
    }
}

#[cfg(test)]
mod tests {
    //! The list format.

    use super::*;

    #[test]
    fn lists_are_parsed_and_printed() {
        for (text, printed) in [
            ("", ""),
            ("0", "0"),
            ("0-3,8", "0-3,8"),
            ("8,3,0-2\n", "0-3,8"),
            ("1,2", "1-2"),
        ] {
            let cpus: CpuSet = text.parse().unwrap();
            assert_eq!(cpus.to_string(), printed, "{text:?}");
        }
        for text in ["a", "1-", "3-1", "1,,2", "-1", "0-4000000000", "0 1"] {
            assert!(text.parse::<CpuSet>().is_err(), "{text:?}");
        }
    }
}
