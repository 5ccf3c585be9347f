//! Choice of CPUs from several NUMA nodes in equal parts (upstream `takeByTopologyNUMADistributed`,
//! KEP-2902).

use std::collections::BTreeMap;

use windlass_topology::{CpuSet, Machine};

use super::take::{Pool, TakeError, Taking, packed};

/// Free CPUs of each NUMA node.
type Free = BTreeMap<u32, usize>;

/// Nodes that each give an equal part, and those of them that give the rest.
struct Choice {
    imbalance: f64,
    nodes: Vec<u32>,
    rest_nodes: Vec<u32>,
}

/// Chooses CPUs from the fewest NUMA nodes that can give equal parts, else packed. There are enough
/// free CPUs, and `count` is not 0.
pub(super) fn take(
    machine: &Machine,
    free: &CpuSet,
    count: usize,
    taking: Taking,
) -> Result<CpuSet, TakeError> {
    let group = taking.group;
    let fallback = Taking {
        by_uncore: false,
        ..taking
    };
    let pool = Pool::new(machine, free, count);
    if !count.is_multiple_of(group) {
        return Ok(packed(machine, free, count, fallback));
    }
    let nodes = pool.numa_order();
    let free_of_nodes: Free = nodes
        .iter()
        .map(|&node| (node, pool.free_in(|cpu| cpu.numa, node).len()))
        .collect();
    let (min, max) = node_counts(machine, nodes.len(), count, group);
    for size in min..=max {
        if let Some(choice) = best_choice(&nodes, size, &free_of_nodes, count, group) {
            return take_choice(pool, &choice, machine, fallback);
        }
    }
    Ok(packed(machine, free, count, fallback))
}

/// The least and most nodes that can be needed, in groups of CPUs (upstream
/// `rangeNUMANodesNeededToSatisfy`).
fn node_counts(
    machine: &Machine,
    nodes_with_free: usize,
    count: usize,
    group: usize,
) -> (usize, usize) {
    let groups = machine.cpus.len().div_ceil(group);
    let groups_of_node = groups.div_ceil(machine.cpu_nodes().len().max(1)).max(1);
    let needed = count.div_ceil(group);
    (needed.div_ceil(groups_of_node), needed.min(nodes_with_free))
}

fn best_choice(
    nodes: &[u32],
    size: usize,
    free: &Free,
    count: usize,
    group: usize,
) -> Option<Choice> {
    let mut best: Option<Choice> = None;
    for chosen in combinations(nodes, size) {
        let choice = choice_of(chosen, free, count, group);
        let imbalance = best.as_ref().map_or(f64::MAX, |it| it.imbalance);
        if let Some(choice) = choice.filter(|it| it.imbalance < imbalance) {
            best = Some(choice);
        }
    }
    best
}

/// The best way to take the CPUs from some nodes; `None` if they cannot give them.
fn choice_of(nodes: Vec<u32>, free: &Free, count: usize, group: usize) -> Option<Choice> {
    let part = count / nodes.len() / group * group;
    let free_of = |node: &u32| free.get(node).copied().unwrap_or(0);
    let groups: usize = nodes.iter().map(|node| free_of(node) / group).sum();
    if groups * group < count || nodes.iter().any(|node| free_of(node) < part) {
        return None;
    }
    let mut left = free.clone();
    for node in &nodes {
        left.entry(*node).and_modify(|free| *free -= part);
    }
    let rest = count - part * nodes.len();
    if rest == 0 {
        return Some(Choice {
            imbalance: deviation(&left),
            nodes,
            rest_nodes: Vec::new(),
        });
    }
    let has_group = |node: &&u32| left.get(*node).is_some_and(|free| *free >= group);
    let candidates: Vec<u32> = nodes.iter().filter(has_group).copied().collect();
    let mut best: Option<(f64, Vec<u32>)> = None;
    for size in (1..=candidates.len()).rev() {
        for subset in combinations(&candidates, size) {
            let Some(after) = without_rest(&left, &subset, rest, group) else {
                continue;
            };
            let imbalance = deviation(&after);
            if best.as_ref().is_none_or(|(least, _)| imbalance < *least) {
                best = Some((imbalance, subset));
            }
        }
    }
    best.map(|(imbalance, rest_nodes)| Choice {
        imbalance,
        nodes,
        rest_nodes,
    })
}

/// Takes the rest from some nodes in turn, group by group; `None` if they do not have it.
fn without_rest(left: &Free, nodes: &[u32], mut rest: usize, group: usize) -> Option<Free> {
    let mut left = left.clone();
    while rest > 0 {
        let before = rest;
        for node in nodes {
            if let Some(free) = left.get_mut(node).filter(|free| **free >= group)
                && rest > 0
            {
                *free -= group;
                rest -= group.min(rest);
            }
        }
        if rest == before {
            return None;
        }
    }
    Some(left)
}

fn take_choice(
    mut pool: Pool<'_>,
    choice: &Choice,
    machine: &Machine,
    taking: Taking,
) -> Result<CpuSet, TakeError> {
    let group = taking.group;
    let part = pool.needed / choice.nodes.len() / group * group;
    for node in &choice.nodes {
        let free = pool.free_in(|cpu| cpu.numa, *node);
        pool.take(packed(machine, &free, part, taking));
    }
    while pool.needed > 0 {
        let before = pool.needed;
        for node in &choice.rest_nodes {
            let free = pool.free_in(|cpu| cpu.numa, *node);
            if pool.needed > 0 && free.len() >= group {
                pool.take(packed(machine, &free, group, taking));
            }
        }
        if pool.needed == before {
            return Err(TakeError::Accounting(before));
        }
    }
    Ok(pool.taken)
}

/// Standard deviation of the free CPUs, in thousandths, as upstream rounds it.
fn deviation(free: &Free) -> f64 {
    let round = |number: f64| (number * 1000.0).round() / 1000.0;
    let count = free.len() as f64;
    let mean = round(free.values().map(|it| *it as f64).sum::<f64>() / count);
    let squares = free.values().map(|it| (*it as f64 - mean).powi(2));
    round((squares.sum::<f64>() / count).sqrt())
}

/// All ways to choose some of the items, in the order of the items.
fn combinations(items: &[u32], size: usize) -> Vec<Vec<u32>> {
    if size == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (index, item) in items.iter().enumerate() {
        for mut rest in combinations(items.get(index + 1..).unwrap_or_default(), size - 1) {
            rest.insert(0, *item);
            all.push(rest);
        }
    }
    all
}
