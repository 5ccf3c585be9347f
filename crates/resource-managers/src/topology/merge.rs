//! Merging of hints without visiting each combination of them.
//!
//! Upstream visits the product of all lists. The result depends only on the sets of nodes that the
//! combinations have in common, of which there are at most as many as sets of nodes.

use std::collections::BTreeSet;

use windlass_topology::NumaSet;

use crate::hints::{Hint, ProviderHints, ResourceHints};

/// Largest table of all sets of nodes.
const MAX_TABLE: usize = 1 << 16;

/// Returns one list of hints for each resource (upstream `filterProvidersHints`).
pub(super) fn hint_lists(providers: &[ProviderHints]) -> Vec<Vec<Hint>> {
    let any = |preferred| {
        let nodes = None;
        vec![Hint { nodes, preferred }]
    };
    let mut lists = Vec::new();
    for provider in providers {
        if provider.is_empty() {
            lists.push(any(true));
        }
        lists.extend(provider.values().map(|hints| match hints {
            ResourceHints::Any => any(true),
            ResourceHints::Of(hints) if hints.is_empty() => any(false),
            ResourceHints::Of(hints) => hints.clone(),
        }));
    }
    lists
}

/// Keeps the preferred hints of one node or any node (upstream `filterSingleNumaHints`).
pub(super) fn keep_single_node(list: &mut Vec<Hint>) {
    list.retain(|hint| hint.preferred && hint.nodes.is_none_or(|nodes| nodes.len() == 1));
}

/// Returns the sets of the preferred combinations: in each list the same nodes or any, preferred.
pub(super) fn preferred_sets(lists: &[Vec<Hint>], all: NumaSet) -> BTreeSet<NumaSet> {
    let preferred: Vec<BTreeSet<Option<NumaSet>>> = lists
        .iter()
        .map(|list| list.iter().filter(|hint| hint.preferred))
        .map(|list| list.map(|hint| hint.nodes).collect())
        .collect();
    let candidates: BTreeSet<_> = preferred.iter().flatten().copied().chain([None]).collect();
    let is_common = |nodes: &Option<NumaSet>| {
        let mut lists = preferred.iter();
        lists.all(|list| list.contains(nodes) || list.contains(&None))
    };
    let common = candidates.into_iter().filter(is_common);
    let sets = common.map(|nodes| nodes.unwrap_or(all).and(all));
    sets.filter(|set| !set.is_empty()).collect()
}

/// Returns the sets of nodes that the combinations of one hint of each list have in common.
pub(super) fn reachable_sets(lists: &[Vec<Hint>], all: NumaSet) -> Vec<NumaSet> {
    let mut reached = vec![all];
    for list in lists {
        let sets = list.iter().map(|hint| hint.nodes.unwrap_or(all).and(all));
        let sets = distinct(sets, all);
        let pairs = reached
            .iter()
            .flat_map(|set| sets.iter().map(|other| set.and(*other)));
        reached = distinct(pairs, all);
    }
    reached
}

/// Returns each nonempty set once; they have only nodes of `all`.
fn distinct(sets: impl Iterator<Item = NumaSet>, all: NumaSet) -> Vec<NumaSet> {
    let sets = sets.filter(|set| !set.is_empty());
    let index = |set: NumaSet| usize::try_from(set.bits()).unwrap_or(usize::MAX);
    if index(all) < MAX_TABLE {
        // sorting 65,000 pairs takes longer than all the rest of an admission
        let mut seen = vec![false; index(all) + 1];
        let mut is_new = |set: &NumaSet| {
            let seen = seen.get_mut(index(*set));
            seen.is_some_and(|seen| !std::mem::replace(seen, true))
        };
        return sets.filter(|set| is_new(set)).collect();
    }
    let mut sets: Vec<NumaSet> = sets.collect();
    sets.sort_unstable();
    sets.dedup();
    sets
}

/// Returns how many nodes the resource with the largest need takes at least (upstream
/// `BestNonPreferredAffinityCount`).
pub(super) fn wanted_nodes(lists: &[Vec<Hint>]) -> usize {
    let least = |list: &Vec<Hint>| {
        let sets = list.iter().filter_map(|hint| hint.nodes);
        sets.map(NumaSet::len).min()
    };
    lists.iter().filter_map(least).max().unwrap_or(0)
}

/// Returns the rank of a combination that is not preferred by its number of nodes, lowest first: the
/// wanted number, then fewer, from most to fewest, then more, from fewest to most.
pub(super) fn rank_by_size(size: usize, wanted: usize) -> (u8, usize) {
    match size {
        size if size == wanted => (0, 0),
        size if size < wanted => (1, wanted - size),
        size => (2, size),
    }
}
