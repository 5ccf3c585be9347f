//! Refreshes the attach limits of CSI drivers at the interval of their CSIDriver object
//! (`nodeAllocatableUpdatePeriodSeconds`, upstream's `csiNodeUpdater`).
//!
//! The new limit replaces the one from registration and notifies [`CsiDrivers::subscribe`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::drivers::CsiDrivers;
use crate::port::{CsiObjects, NodeInfo};

/// Interval at which the period of each CSIDriver is read, while drivers are registered.
const REFRESH_INTERVAL: Duration = Duration::from_secs(60);

/// Runs until it is dropped; without a driver it never wakes.
pub async fn run_attach_limit_refresh(drivers: CsiDrivers, objects: Arc<dyn CsiObjects>) {
    let mut registered = drivers.subscribe();
    let mut refreshed = BTreeMap::<String, Instant>::new();
    loop {
        let names: Vec<_> = registered.borrow_and_update().keys().cloned().collect();
        refreshed.retain(|name, _| names.contains(name));
        let mut next = Instant::now() + REFRESH_INTERVAL;
        for name in &names {
            // an unreadable object is read again in the next round
            let spec = objects.driver(name).await.ok().flatten();
            let period = spec.and_then(|spec| spec.allocatable_update);
            let Some(period) = period else { continue };
            let last = *refreshed.entry(name.clone()).or_insert_with(Instant::now);
            let mut due = last + period;
            if due <= Instant::now() {
                refresh_attach_limit(&drivers, name).await;
                refreshed.insert(name.clone(), Instant::now());
                due = Instant::now() + period;
            }
            next = next.min(due);
        }
        let idle = names.is_empty();
        tokio::select! {
            biased;
            // the sender lives as long as `drivers`
            _ = registered.changed() => {}
            () = tokio::time::sleep_until(next), if !idle => {}
        }
    }
}

/// Calls NodeGetInfo of one driver. A driver that does not respond keeps its limit until the next
/// period; the short deadline limits the delay of other drivers.
pub(crate) async fn refresh_attach_limit(drivers: &CsiDrivers, name: &str) {
    const DEADLINE: Duration = Duration::from_secs(10);
    let Ok(driver) = drivers.get(name) else {
        return;
    };
    let info = tokio::time::timeout(DEADLINE, driver.node.info()).await;
    match info {
        Ok(Ok(info)) if info.node_id == driver.info.node_id => {
            let max_volumes = info.max_volumes;
            if max_volumes != driver.info.max_volumes {
                tracing::info!(driver = name, max_volumes, "attach limit changed");
                // other changes take effect when the driver registers
                let info = NodeInfo {
                    max_volumes,
                    ..driver.info
                };
                drivers.update(name, &driver.node, info);
            }
        }
        Ok(Ok(NodeInfo { node_id, .. })) => {
            let before = driver.info.node_id;
            tracing::warn!(
                driver = name,
                node_id,
                before,
                "CSI driver changed its node ID"
            );
        }
        Ok(Err(error)) => tracing::debug!(driver = name, %error, "attach limit not refreshed"),
        Err(_) => tracing::debug!(
            driver = name,
            "attach limit not refreshed: NodeGetInfo timed out"
        ),
    }
}

#[cfg(test)]
mod tests;
