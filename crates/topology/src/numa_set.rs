//! Sets of NUMA nodes.

use std::fmt;

/// NUMA nodes that a set can have, as upstream's bit mask.
const MAX_NUMA_NODES: u32 = 64;

/// Set of NUMA nodes with numbers below 64. Displays as a list, for example `0,1`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NumaSet(u64);

impl NumaSet {
    /// Number of nodes.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// True if there is no node.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The bits, one per node.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// True if a node is in the set.
    pub fn contains(self, node: u32) -> bool {
        node < MAX_NUMA_NODES && self.0 & (1 << node) != 0
    }

    /// The nodes in ascending order.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        (0..MAX_NUMA_NODES).filter(move |node| self.contains(*node))
    }

    /// The nodes of both sets.
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The nodes of either set.
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True if all nodes are in another set.
    pub fn is_subset(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// True if a set is better for alignment: fewer nodes, then lower ones (upstream
    /// `IsNarrowerThan`).
    pub fn is_narrower(self, other: Self) -> bool {
        match self.len() == other.len() {
            true => self.0 < other.0,
            false => self.len() < other.len(),
        }
    }

    /// All nonempty subsets of a set, smallest bits first.
    pub fn subsets(self) -> impl Iterator<Item = Self> {
        let all = self.0;
        let mut next = all & all.wrapping_neg();
        std::iter::from_fn(move || {
            let current = next;
            if current == 0 {
                return None;
            }
            // the next number that has only bits of `all`, zero after the last
            next = current.wrapping_sub(all) & all;
            Some(Self(current))
        })
    }
}

impl FromIterator<u32> for NumaSet {
    /// Nodes that a set cannot have are left out.
    fn from_iter<I: IntoIterator<Item = u32>>(nodes: I) -> Self {
        let nodes = nodes.into_iter().filter(|node| *node < MAX_NUMA_NODES);
        Self(nodes.fold(0, |bits, node| bits | 1 << node))
    }
}

impl fmt::Display for NumaSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<String> = self.iter().map(|node| node.to_string()).collect();
        f.write_str(&nodes.join(","))
    }
}

#[cfg(test)]
mod tests {
    //! Order and subsets.

    use super::*;

    #[test]
    fn subsets_are_complete_and_narrower_is_fewer_then_lower() {
        let set: NumaSet = [0, 2, 3].into_iter().collect();
        let all: Vec<String> = set.subsets().map(|it| it.to_string()).collect();
        assert_eq!(all, ["0", "2", "0,2", "3", "0,3", "2,3", "0,2,3"]);
        assert_eq!(NumaSet::default().subsets().count(), 0);
        let of = |nodes: &[u32]| nodes.iter().copied().collect::<NumaSet>();
        assert!(of(&[3]).is_narrower(of(&[0, 1])));
        assert!(of(&[0]).is_narrower(of(&[1])));
        assert!(!of(&[1]).is_narrower(of(&[1])));
        assert!(of(&[0, 64]).is_subset(of(&[0])), "64 is left out");
    }
}
