//! Which containers end before which (upstream `terminationOrdering`).
//!
//! Main containers end together. A sidecar waits for them and for the sidecars declared after it,
//! so that what a container was started with is there until its end. Unlike upstream a sidecar
//! waits for all later ones, also if the one between has ended already. Init containers that run
//! and ephemeral containers wait for nobody, and nobody waits for them.

use std::collections::BTreeMap;
use std::fmt;

use windlass_types::{Pod, PodExt};

use windlass_types::pod::is_sidecar;

/// For each container that waits, those it waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminationOrder(BTreeMap<String, Vec<String>>);

impl TerminationOrder {
    /// The order among the containers that run.
    pub fn of(pod: &Pod, running: &[&str]) -> Self {
        let runs = |name: &str| running.contains(&name);
        let mains = pod.containers().iter().map(|c| &c.name);
        let mut before: Vec<String> = mains.filter(|name| runs(name)).cloned().collect();
        let mut order = BTreeMap::new();
        for sidecar in pod.init_containers().iter().rev().filter(|c| is_sidecar(c)) {
            if runs(&sidecar.name) {
                order.insert(sidecar.name.clone(), before.clone());
                before.push(sidecar.name.clone());
            }
        }
        order.retain(|_, before| !before.is_empty());
        Self(order)
    }

    /// What ends before this container.
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

    /// `init` and `containers` are names; a name that begins with `s` is a sidecar's.
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
        assert_eq!(TerminationOrder::of(&pod, running).to_string(), expected);
    }

    #[test]
    fn sidecars_wait_for_mains_and_for_later_sidecars_that_run() {
        check(&[], &["a", "b"], &["a", "b"], "together");
        check(&["s1"], &["a", "b"], &["s1", "a", "b"], "s1 after a b");
        check(
            &["s1", "i", "s2"],
            &["a", "b"],
            &["a", "s1", "s2", "b"],
            "s1 after a b s2, s2 after a b",
        );
        // what does not run is not waited for
        check(&["s1"], &["a", "b"], &["s1", "b"], "s1 after b");
        check(&["s1"], &["a"], &["s1"], "together");
        check(&["s1", "s2", "s3"], &["a"], &["s1", "s3"], "s1 after s3");
        // an init container that runs, and one that nobody knows, end with the rest
        check(&["s1", "i"], &["a"], &["s1", "i", "debug"], "together");
    }
}
