//! Termination order of containers (upstream `terminationOrdering`).
//!
//! App containers stop together. A sidecar waits for them and, unlike upstream, for all sidecars
//! declared after it. Other init containers and ephemeral containers take no part in the order.

use std::collections::BTreeMap;
use std::fmt;

use windlass_types::mutation::{Mutation, mutated};
use windlass_types::{Pod, PodExt};

use windlass_types::pod::is_sidecar;

/// The containers that each waiting container waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminationOrder(BTreeMap<String, Vec<String>>);

impl TerminationOrder {
    /// Creates the order of the running containers.
    pub fn new(pod: &Pod, running: &[&str]) -> Self {
        let runs = |name: &str| running.contains(&name);
        let apps = pod.containers().iter().map(|c| &c.name);
        let mut before: Vec<String> = apps.filter(|name| runs(name)).cloned().collect();
        let mut order = BTreeMap::new();
        for sidecar in pod.init_containers().iter().rev().filter(|c| is_sidecar(c)) {
            if runs(&sidecar.name) {
                order.insert(sidecar.name.clone(), before.clone());
                before.push(sidecar.name.clone());
            }
        }
        order.retain(|_, before| !before.is_empty() && !mutated(Mutation::SidecarsStopFirst));
        Self(order)
    }

    /// Returns the containers that stop before this one.
    pub fn before(&self, name: &str) -> &[String] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }
}

impl fmt::Display for TerminationOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("together");
        }
        let parts: Vec<_> = self
            .0
            .iter()
            .map(|(name, before)| format!("{name} after {}", before.join(" ")))
            .collect();
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Names that begin with `s` are sidecars.
    fn check(init: &[&str], containers: &[&str], running: &[&str], expected: &str) {
        let init: Vec<_> = init
            .iter()
            .map(|name| match name.starts_with('s') {
                true => json!({"name": name, "restartPolicy": "Always"}),
                false => json!({"name": name}),
            })
            .collect();
        let containers: Vec<_> = containers.iter().map(|n| json!({"name": n})).collect();
        let spec = json!({"initContainers": init, "containers": containers});
        let pod: Pod = serde_json::from_value(json!({"spec": spec})).expect("pod");
        assert_eq!(TerminationOrder::new(&pod, running).to_string(), expected);
    }

    #[test]
    fn sidecars_wait_for_app_containers_and_later_sidecars() {
        check(&[], &["a", "b"], &["a", "b"], "together");
        check(&["s1"], &["a", "b"], &["s1", "a", "b"], "s1 after a b");
        check(
            &["s1", "i", "s2"],
            &["a", "b"],
            &["a", "s1", "s2", "b"],
            "s1 after a b s2, s2 after a b",
        );
        // only running containers count
        check(&["s1"], &["a", "b"], &["s1", "b"], "s1 after b");
        check(&["s1"], &["a"], &["s1"], "together");
        check(&["s1", "s2", "s3"], &["a"], &["s1", "s3"], "s1 after s3");
        // a running init container and an unknown container are not ordered
        check(&["s1", "i"], &["a"], &["s1", "i", "debug"], "together");
    }
}
