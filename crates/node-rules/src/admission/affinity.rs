//! Matches node selector and required node affinity with a node.

use windlass_types::corev1::{
    Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec,
};

use super::{OS, OS_LABEL};

/// Returns whether the node matches `nodeSelector` and one term of the required affinity, if any.
pub(super) fn matches(spec: &PodSpec, node: &Node) -> bool {
    let mut selector = spec.node_selector.iter().flatten();
    if !selector.all(|(key, value)| label(node, key) == Some(value)) {
        return false;
    }
    let affinity = spec
        .affinity
        .as_ref()
        .and_then(|a| a.node_affinity.as_ref());
    let required = affinity.and_then(|a| {
        a.required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    required.is_none_or(|required| matches_node_selector(required, node))
}

/// Returns whether one term of the selector matches the node.
pub fn matches_node_selector(selector: &NodeSelector, node: &Node) -> bool {
    selector.node_selector_terms.iter().any(|t| term(t, node))
}

/// Returns a label of the node. The OS label is always `linux`, even if the Node object is not
/// corrected yet.
fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    if key == OS_LABEL {
        return Some(OS);
    }
    let labels = node.metadata.labels.as_ref()?;
    labels.get(key).map(String::as_str)
}

/// A term without conditions, or with an invalid one, matches nothing.
fn term(term: &NodeSelectorTerm, node: &Node) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let label_matches = |r: &NodeSelectorRequirement| expression(r, label(node, &r.key));
    expressions.iter().all(label_matches) && fields.iter().all(|r| field(r, node))
}

fn expression(requirement: &NodeSelectorRequirement, actual: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = || actual.is_some_and(|a| values.iter().any(|v| v == a));
    match requirement.operator.as_str() {
        "In" => listed(),
        "NotIn" => !values.is_empty() && !listed(),
        "Exists" => values.is_empty() && actual.is_some(),
        "DoesNotExist" => values.is_empty() && actual.is_none(),
        operator @ ("Gt" | "Lt") => {
            let ([bound], Some(actual)) = (values, actual) else {
                return false;
            };
            let (Ok(actual), Ok(bound)) = (actual.parse::<i64>(), bound.parse::<i64>()) else {
                return false;
            };
            if operator == "Gt" {
                actual > bound
            } else {
                actual < bound
            }
        }
        _ => false,
    }
}

/// The only field is `metadata.name`, with exactly one value.
fn field(requirement: &NodeSelectorRequirement, node: &Node) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let ("metadata.name", [value]) = (requirement.key.as_str(), values) else {
        return false;
    };
    let same = node.metadata.name.as_ref() == Some(value);
    match requirement.operator.as_str() {
        "In" => same,
        "NotIn" => !same,
        _ => false,
    }
}
