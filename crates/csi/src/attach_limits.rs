//! Asks drivers again how many volumes fit on this node, as often as their CSIDriver says
//! (`nodeAllocatableUpdatePeriodSeconds`, upstream's `csiNodeUpdater`).
//!
//! What a driver says then takes the place of what it said when it registered; whoever tells the
//! cluster hears of that ([`CsiDrivers::subscribe`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::drivers::CsiDrivers;
use crate::port::{CsiObjects, NodeInfo};

/// How often it is looked whether a CSIDriver has another period, while drivers are registered.
const LOOK: Duration = Duration::from_secs(60);

/// Keeps the limits current for as long as it runs. Without a driver nothing wakes it.
pub async fn keep_attach_limits(drivers: CsiDrivers, objects: Arc<dyn CsiObjects>) {
    let mut registered = drivers.subscribe();
    let mut asked = BTreeMap::<String, Instant>::new();
    loop {
        let names: Vec<_> = registered.borrow_and_update().keys().cloned().collect();
        asked.retain(|name, _| names.contains(name));
        let mut next = Instant::now() + LOOK;
        for name in &names {
            // what cannot be read now is read with the next look
            let spec = objects.driver(name).await.ok().flatten();
            let period = spec.and_then(|spec| spec.allocatable_update);
            let Some(period) = period else { continue };
            let last = *asked.entry(name.clone()).or_insert_with(Instant::now);
            let mut due = last + period;
            if due <= Instant::now() {
                ask_limit(&drivers, name).await;
                asked.insert(name.clone(), Instant::now());
                due = Instant::now() + period;
            }
            next = next.min(due);
        }
        let idle = names.is_empty();
        tokio::select! {
            biased;
            // the drivers live as long as this
            _ = registered.changed() => {}
            () = tokio::time::sleep_until(next), if !idle => {}
        }
    }
}

/// A driver that does not answer keeps what it said; it is asked again a period later. Its own
/// deadline is shorter than what a registration takes, so that it holds up the others little.
pub(crate) async fn ask_limit(drivers: &CsiDrivers, name: &str) {
    const DEADLINE: Duration = Duration::from_secs(10);
    let Ok(driver) = drivers.get(name) else {
        return;
    };
    let answer = tokio::time::timeout(DEADLINE, driver.node.info()).await;
    match answer {
        Ok(Ok(info)) if info.node_id == driver.info.node_id => {
            let max_volumes = info.max_volumes;
            if max_volumes != driver.info.max_volumes {
                tracing::info!(driver = name, max_volumes, "attach limit");
                // what else it says now counts when it registers
                let info = NodeInfo {
                    max_volumes,
                    ..driver.info
                };
                drivers.update(name, &driver.node, info);
            }
        }
        Ok(Ok(NodeInfo { node_id, .. })) => {
            let before = driver.info.node_id;
            tracing::warn!(driver = name, node_id, before, "a driver renamed this node");
        }
        Ok(Err(error)) => tracing::debug!(driver = name, %error, "attach limit"),
        Err(_) => tracing::debug!(driver = name, "attach limit: no answer in time"),
    }
}

#[cfg(test)]
mod tests;
