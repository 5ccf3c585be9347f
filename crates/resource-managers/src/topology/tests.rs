//! Policies, options, and the equality with visiting all combinations.

use std::collections::BTreeMap;

use proptest::prelude::*;
use windlass_topology::{Machine, NumaNode, NumaSet};

use super::{MergedHint, TopologyConfig, TopologyManager, TopologyPolicy, TopologyScope};
use crate::hints::{Hint, ProviderHints, ResourceHints};

/// A machine whose distances grow with the difference of the numbers, but 0 and 2 are close.
fn machine(nodes: u32) -> Machine {
    let distance = |a: u32, b: u32| match (a.min(b), a.max(b)) {
        (a, b) if a == b => 10,
        (0, 2) => 11,
        (a, b) => 20 + b - a,
    };
    let node = |a: u32| NumaNode {
        distances: (0..nodes).map(|b| (b, distance(a, b))).collect(),
        ..NumaNode::default()
    };
    Machine {
        nodes: (0..nodes).map(|number| (number, node(number))).collect(),
        ..Machine::default()
    }
}

fn config(policy: TopologyPolicy, prefer_closest: bool) -> TopologyConfig {
    TopologyConfig {
        policy,
        prefer_closest,
        ..TopologyConfig::default()
    }
}

/// Parses hints: providers separated by `;`, resources by `/`, hints by spaces. A hint is a list of
/// nodes or `any`, preferred with `!`. A resource is `nil` without preference, `none` if no
/// placement is possible.
fn hints(text: &str) -> Vec<ProviderHints> {
    let hint = |text: &str| {
        let nodes = text.trim_end_matches('!');
        let numbers = || nodes.split(',').map(|node| node.parse().unwrap());
        Hint {
            nodes: (nodes != "any").then(|| numbers().collect()),
            preferred: text.ends_with('!'),
        }
    };
    let resource = |text: &str| match text.trim() {
        "nil" => ResourceHints::Any,
        "none" => ResourceHints::Of(Vec::new()),
        text => ResourceHints::Of(text.split_whitespace().map(hint).collect()),
    };
    let provider = |text: &str| {
        let resources = text.split('/').filter(|it| !it.trim().is_empty());
        let named = resources.enumerate();
        let named = named.map(|(index, text)| (format!("example.com/{index}"), resource(text)));
        named.collect()
    };
    text.split(';').map(provider).collect()
}

fn check(policy: &str, nodes: u32, text: &str, expected: &str) {
    let (name, closest) = match policy.strip_suffix("+closest") {
        Some(name) => (name, true),
        None => (policy, false),
    };
    let config = config(name.parse().unwrap(), closest);
    let manager = TopologyManager::new(config, &machine(nodes)).unwrap();
    let merged = manager.merge(&hints(text));
    assert_eq!(
        merged.to_string(),
        expected,
        "{policy}, {nodes} nodes: {text}"
    );
}

#[test]
fn policies_select_documented_placements() {
    let best = |text, expected| check("best-effort", 2, text, expected);
    // no preference
    best("", "admit nodes 0,1, preferred");
    best(";", "admit nodes 0,1, preferred");
    best("nil", "admit nodes 0,1, preferred");
    // no placement is possible
    best("none", "admit nodes 0,1");
    best("none; 0!", "admit nodes 0");
    // one provider
    best("0! 1! 0,1", "admit nodes 0, preferred");
    best("0,1! 1", "admit nodes 0,1, preferred");
    // two providers agree, or not
    best("0! 1! 0,1; 1! 0,1", "admit nodes 1, preferred");
    best("0!; 1!", "admit nodes 0,1");
    best("0!; 0,1!", "admit nodes 0");
    best("0! 1!; 0,1!", "admit nodes 0");
    best("0!; ; 0,1", "admit nodes 0");
    best("0!/ 0! 1!; nil", "admit nodes 0, preferred");
    // nodes beyond the machine do not count
    best("2!", "admit nodes 0,1");

    check("restricted", 2, "0!; 0,1!", "reject nodes 0");
    check("restricted", 2, "0! 1!; 1! 0,1", "admit nodes 1, preferred");
    check("restricted", 2, "0,1!; 0,1!", "admit nodes 0,1, preferred");
    check("restricted", 2, "none", "reject nodes 0,1");

    let single = |text, expected| check("single-numa-node", 2, text, expected);
    single("", "admit any node, preferred");
    single("nil; nil", "admit any node, preferred");
    single("0,1!", "reject any node");
    single("0! 0,1; 0,1! 0!", "admit nodes 0, preferred");
    single("0!; 1!", "reject any node");
    single("0; 0!", "reject any node");
    single("any!; 1!", "admit nodes 1, preferred");
    check("single-numa-node", 1, "0!; 0!", "admit any node, preferred");

    check("none", 2, "0!; 1!", "admit any node");
}

#[test]
fn unpreferred_placement_has_as_many_nodes_as_needed() {
    // the resource with the largest need takes two nodes
    check("best-effort", 4, "0 1; 0,1 2,3", "admit nodes 0");
    check(
        "best-effort",
        4,
        "0,1 0,1,2,3; 0,1,2 0,1,2,3",
        "admit nodes 0,1,2",
    );
    check("best-effort", 4, "0,1,2,3; 1,2 2,3", "admit nodes 1,2");
    check("best-effort", 4, "0,1,2; 0,1,3; 0,1,2,3", "admit nodes 0,1");
}

#[test]
fn closest_nodes_win_with_the_option() {
    let text = "0,1! 0,2! 1,2!; 0,1! 0,2! 1,2!";
    check("best-effort", 3, text, "admit nodes 0,1, preferred");
    check("best-effort+closest", 3, text, "admit nodes 0,2, preferred");
    check("restricted+closest", 3, "0,1 0,2", "reject nodes 0,2");
    check(
        "restricted+closest",
        3,
        "1! 0,2!",
        "admit nodes 1, preferred",
    );
    check(
        "single-numa-node+closest",
        3,
        "2! 1!",
        "admit nodes 1, preferred",
    );
}

#[test]
fn long_hint_lists_are_merged_without_combinations() {
    // 255 to the power of 12 combinations
    let all: NumaSet = (0..8).collect();
    let sets = all.subsets();
    let list = |preferred: bool| {
        let hint = |nodes| Hint {
            nodes: Some(nodes),
            preferred: preferred && nodes.len() == 8,
        };
        ResourceHints::Of(sets.map(hint).collect())
    };
    let list = list(false);
    let provider = || (0..4).map(|index| (index.to_string(), list.clone()));
    let providers: Vec<ProviderHints> = (0..3).map(|_| provider().collect()).collect();
    let config = config(TopologyPolicy::Restricted, true);
    let manager = TopologyManager::new(config, &machine(8)).unwrap();
    assert_eq!(manager.merge(&providers).to_string(), "reject nodes 0");
}

#[test]
fn rejection_has_upstream_reason_and_text() {
    let text = |scope, pod_level| {
        let mut config = config(TopologyPolicy::Restricted, false);
        config.scope = scope;
        let manager = TopologyManager::new(config, &machine(2)).unwrap();
        let error = manager.place(&hints("0!; 1!"), pod_level).unwrap_err();
        assert_eq!(error.reason, "TopologyAffinityError");
        error.message
    };
    assert_eq!(
        text(TopologyScope::Pod, false),
        "Resources cannot be allocated with Topology locality"
    );
    assert_eq!(
        text(TopologyScope::Pod, true),
        "Pod Scope pod with pod-level resources failed admission under pod-scope topology manager"
    );
    assert_eq!(
        text(TopologyScope::Container, true),
        "Pod Scope pod with pod-level resources failed admission with a container-level topology \
         manager"
    );
}

#[test]
fn options_are_checked() {
    let parse = |policy, name: &str, value: &str| {
        let options = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        match TopologyConfig::new(policy, TopologyScope::Pod, &options) {
            Ok(config) => format!("{} {}", config.prefer_closest, config.max_nodes),
            Err(error) => error.to_string(),
        }
    };
    let restricted = TopologyPolicy::Restricted;
    for (name, value, expected) in [
        ("prefer-closest-numa-nodes", "T", "true 8"),
        ("prefer-closest-numa-nodes", "false", "false 8"),
        (
            "prefer-closest-numa-nodes",
            "yes",
            "bad value for option \"prefer-closest-numa-nodes\": \"yes\"; set \"true\" or \"false\"",
        ),
        ("max-allowable-numa-nodes", "12", "false 12"),
        (
            "max-allowable-numa-nodes",
            "7",
            "the minimum value of \"max-allowable-numa-nodes\" should not be less than 8, got 7",
        ),
        (
            "max-allowable-numa-nodes",
            "-9",
            "the minimum value of \"max-allowable-numa-nodes\" should not be less than 8, got -9",
        ),
        (
            "max-allowable-numa-nodes",
            "many",
            "unable to convert policy option to integer \"max-allowable-numa-nodes\": \"many\"; \
             set a number",
        ),
        (
            "align",
            "true",
            "unknown Topology Manager Policy option: \"align\"; the options are \
             prefer-closest-numa-nodes and max-allowable-numa-nodes",
        ),
    ] {
        assert_eq!(parse(restricted, name, value), expected);
    }
    assert_eq!(parse(TopologyPolicy::None, "align", "x"), "false 8");
}

#[test]
fn machine_must_allow_policy_and_option() {
    let error = |policy, machine: &Machine, prefer_closest, max_nodes| {
        let mut config = config(policy, prefer_closest);
        config.max_nodes = max_nodes;
        let manager = TopologyManager::new(config, machine);
        manager
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    };
    let text = error(TopologyPolicy::BestEffort, &machine(9), false, 8);
    assert_eq!(
        text,
        "topologyManagerPolicy: best-effort is unsupported on machines with more than 8 NUMA \
         Nodes, and this one has 9; set topologyManagerPolicy: none, or the option \
         max-allowable-numa-nodes in topologyManagerPolicyOptions"
    );
    assert_eq!(error(TopologyPolicy::BestEffort, &machine(9), false, 9), "");
    assert_eq!(error(TopologyPolicy::None, &machine(9), true, 8), "");
    let mut blind = machine(2);
    blind.nodes.get_mut(&1).unwrap().distances.clear();
    let text = error(TopologyPolicy::Restricted, &blind, true, 8);
    assert!(text.contains("no distances of NUMA node 1"), "{text}");
    assert_eq!(error(TopologyPolicy::Restricted, &blind, false, 8), "");
}

/// Merges by visiting each combination, with the pairwise comparison of KEP-693.
fn visit_all(manager: &TopologyManager, lists: &[Vec<Hint>]) -> Hint {
    let wanted = super::merge::wanted_nodes(lists);
    let mut best: Option<(NumaSet, bool)> = None;
    let mut combinations: Vec<Vec<Hint>> = vec![Vec::new()];
    for list in lists {
        let longer = combinations.iter().flat_map(|head| {
            let with = |hint: &Hint| head.iter().copied().chain([*hint]).collect();
            list.iter().map(with)
        });
        combinations = longer.collect();
    }
    for combination in combinations {
        let sets: Vec<NumaSet> = combination.iter().filter_map(|hint| hint.nodes).collect();
        let preferred = combination.iter().all(|hint| hint.preferred)
            && sets.iter().all(|set| Some(set) == sets.first());
        let merged = sets.iter().fold(manager.all, |all, set| all.and(*set));
        if merged.is_empty() {
            continue;
        }
        let candidate = (merged, preferred);
        best = Some(match best {
            None => candidate,
            Some(current) => better(manager, wanted, current, candidate),
        });
    }
    let (nodes, preferred) = best.unwrap_or((manager.all, false));
    let nodes = Some(nodes);
    Hint { nodes, preferred }
}

fn better(
    manager: &TopologyManager,
    wanted: usize,
    current: (NumaSet, bool),
    candidate: (NumaSet, bool),
) -> (NumaSet, bool) {
    if current.1 != candidate.1 {
        return if current.1 { current } else { candidate };
    }
    let closest = manager.config.prefer_closest
        && manager.config.policy != TopologyPolicy::SingleNumaNode
        && current.0.len() == candidate.0.len();
    let (near, far) = (manager.distance(candidate.0), manager.distance(current.0));
    let fitter = match closest && near != far {
        true if near < far => candidate,
        true => current,
        false if candidate.0.is_narrower(current.0) => candidate,
        false => current,
    };
    if current.1 {
        return fitter;
    }
    let (old, new) = (current.0.len(), candidate.0.len());
    match old.cmp(&wanted) {
        std::cmp::Ordering::Greater => fitter,
        std::cmp::Ordering::Equal if new == wanted => fitter,
        std::cmp::Ordering::Equal => current,
        std::cmp::Ordering::Less if new > wanted => current,
        std::cmp::Ordering::Less if new == wanted || new > old => candidate,
        std::cmp::Ordering::Less if new < old => current,
        std::cmp::Ordering::Less => fitter,
    }
}

fn any_hint() -> impl Strategy<Value = Hint> {
    let nodes = proptest::option::weighted(0.9, 1_u8..32);
    (nodes, any::<bool>()).prop_map(|(bits, preferred)| Hint {
        nodes: bits.map(|bits| (0..5).filter(|node| bits & (1 << node) != 0).collect()),
        preferred,
    })
}

fn any_resource() -> impl Strategy<Value = ResourceHints> {
    prop_oneof![
        1 => Just(ResourceHints::Any),
        9 => prop::collection::vec(any_hint(), 0..5).prop_map(ResourceHints::Of),
    ]
}

proptest! {
    #[test]
    fn merging_equals_visiting_all_combinations(
        resources in prop::collection::vec(prop::collection::vec(any_resource(), 0..3), 0..4),
        policy in prop::sample::select(vec![
            TopologyPolicy::BestEffort,
            TopologyPolicy::Restricted,
            TopologyPolicy::SingleNumaNode,
        ]),
        closest in any::<bool>(),
        first in prop::sample::select(vec![0, 20]),
    ) {
        let moved = |hints: ResourceHints| match hints {
            ResourceHints::Any => ResourceHints::Any,
            ResourceHints::Of(mut hints) => {
                for nodes in hints.iter_mut().filter_map(|hint| hint.nodes.as_mut()) {
                    *nodes = nodes.iter().map(|node| node + first).collect();
                }
                ResourceHints::Of(hints)
            }
        };
        let named = |list: Vec<ResourceHints>| {
            let named = list.into_iter().enumerate();
            named.map(|(index, hints)| (index.to_string(), moved(hints))).collect()
        };
        let providers: Vec<ProviderHints> = resources.into_iter().map(named).collect();
        let mut numbered = machine(24);
        numbered.nodes.retain(|node, _| (first..first + 4).contains(node));
        let manager = TopologyManager::new(config(policy, closest), &numbered).unwrap();
        let mut lists = super::merge::hint_lists(&providers);
        let single = policy == TopologyPolicy::SingleNumaNode;
        if single {
            lists.iter_mut().for_each(super::merge::keep_single_node);
        }
        let mut hint = visit_all(&manager, &lists);
        if single && hint.nodes == Some(manager.all) {
            hint.nodes = None;
        }
        let admitted = policy == TopologyPolicy::BestEffort || hint.preferred;
        prop_assert_eq!(manager.merge(&providers), MergedHint { hint, admitted });
    }
}
