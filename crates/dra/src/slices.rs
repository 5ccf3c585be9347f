//! Removal of the ResourceSlices of drivers that cannot be called, so that no pod is scheduled for
//! them.
//!
//! At the start no driver has registered, so all slices of the node go; those of a driver 30 s after
//! its last plugin disconnected, both as upstream. Failures are retried with back-off.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use windlass_actors::NodeUpdate;
use windlass_client::{ApiClient, ApiErrorKind, Selector};
use windlass_types::resourcev1::ResourceSlice;

use crate::drivers::DraDrivers;

/// Time that a driver has to come back (upstream `defaultWipingDelay`).
const WIPING_DELAY: Duration = Duration::from_secs(30);
/// Back-off after a failed request; doubles to the maximum.
const BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(5 * 60);

/// Due removals: by driver, or of all drivers with an empty name.
#[derive(Debug, Default)]
struct WipePlan(BTreeMap<String, Removal>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Removal {
    due: Instant,
    failures: u32,
}

impl WipePlan {
    /// The plan of a new agent run.
    fn at_start(now: Instant) -> Self {
        let removal = Removal {
            due: now,
            failures: 0,
        };
        Self(BTreeMap::from([(String::new(), removal)]))
    }

    /// Takes in which drivers were known and which are usable now.
    fn update(
        &mut self,
        known: &BTreeMap<String, bool>,
        now: &BTreeMap<String, bool>,
        at: Instant,
    ) {
        let usable = |name: &String| now.get(name) == Some(&true);
        self.0.retain(|name, _| !usable(name));
        for name in known.keys().chain(now.keys()).filter(|name| !usable(name)) {
            // one whose slices were removed has not been usable since
            if known.get(name) == Some(&false) && !self.0.contains_key(name) {
                continue;
            }
            self.0.entry(name.clone()).or_insert(Removal {
                due: at + WIPING_DELAY,
                failures: 0,
            });
        }
    }

    /// The next removal.
    fn next(&self) -> Option<(String, Instant)> {
        let all = self.0.iter().map(|(name, removal)| (removal.due, name));
        all.min().map(|(due, name)| (name.clone(), due))
    }

    fn ended(&mut self, name: &str, succeeded: bool, now: Instant) {
        if succeeded {
            self.0.remove(name);
        } else if let Some(removal) = self.0.get_mut(name) {
            let factor = 1_u32.checked_shl(removal.failures).unwrap_or(u32::MAX);
            removal.due = now + BACKOFF.saturating_mul(factor).min(MAX_BACKOFF);
            removal.failures = (removal.failures + 1).min(16);
        }
    }
}

/// Removes ResourceSlices of this node until the agent stops, once the API server has the node.
pub async fn run_slice_cleanup(
    drivers: DraDrivers,
    client: ApiClient,
    mut node: watch::Receiver<NodeUpdate>,
) {
    let mut changes = drivers.subscribe();
    let mut plan = WipePlan::at_start(Instant::now());
    let node_name = match node.wait_for(|node| node.0.is_some()).await {
        Ok(node) => node.0.as_ref().and_then(|node| node.metadata.name.clone()),
        // the agent stops
        Err(_) => return,
    };
    let node_name = node_name.unwrap_or_default();
    let mut known = BTreeMap::new();
    loop {
        let usable = drivers.usable();
        plan.update(&known, &usable, Instant::now());
        known = usable;
        let Some((name, due)) = plan.next() else {
            match changes.changed().await {
                Ok(()) => continue,
                Err(_) => return,
            }
        };
        tokio::select! {
            biased;
            changed = changes.changed() => if changed.is_err() { return },
            () = sleep_until(due) => {
                let succeeded = wipe(&client, &node_name, &name).await;
                plan.ended(&name, succeeded, Instant::now());
            }
        }
    }
}

async fn wipe(client: &ApiClient, node: &str, driver: &str) -> bool {
    let fields = match driver {
        "" => format!("spec.nodeName={node}"),
        driver => format!("spec.driver={driver},spec.nodeName={node}"),
    };
    let selector = Selector {
        fields: Some(fields),
        ..Selector::default()
    };
    match client.delete_set::<ResourceSlice>(&selector).await {
        Ok(()) => {
            tracing::info!(driver, "resource slices of the node removed");
            true
        }
        Err(error) if error.kind == ApiErrorKind::NotFound => true,
        Err(error) => {
            tracing::debug!(driver, %error, "resource slices not removed");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_removed_30_seconds_after_the_last_plugin() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let drivers = |list: &[(&str, bool)]| -> BTreeMap<String, bool> {
            list.iter()
                .map(|(name, usable)| ((*name).to_owned(), *usable))
                .collect()
        };
        let line = |plan: &WipePlan| match plan.next() {
            Some((name, due)) => format!("{name}@{}", (due - start).as_secs()),
            None => String::new(),
        };
        let mut plan = WipePlan::at_start(start);
        assert_eq!(line(&plan), "@0");
        plan.ended("", false, at(0));
        assert_eq!(line(&plan), "@1");
        plan.ended("", false, at(1));
        assert_eq!(line(&plan), "@3");
        plan.ended("", true, at(3));
        let mut known = BTreeMap::new();
        let mut update = |plan: &mut WipePlan, list: &[(&str, bool)], seconds| {
            let now = drivers(list);
            plan.update(&known, &now, at(seconds));
            known = now;
            line(plan)
        };
        assert_eq!(update(&mut plan, &[("a", true)], 4), "");
        assert_eq!(update(&mut plan, &[("a", false)], 10), "a@40");
        assert_eq!(update(&mut plan, &[], 20), "a@40", "the first time counts");
        assert_eq!(update(&mut plan, &[("a", false)], 30), "a@40");
        assert_eq!(update(&mut plan, &[("a", true)], 39), "", "it came back");
        assert_eq!(
            update(&mut plan, &[("b", false)], 50),
            "a@80",
            "a has gone, b never came"
        );
        plan.ended("a", true, at(80));
        assert_eq!(line(&plan), "b@80");
        plan.ended("b", true, at(80));
        assert_eq!(update(&mut plan, &[("b", false), ("c", true)], 90), "");
    }
}
