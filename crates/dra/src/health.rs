//! Health of devices, as their drivers report it.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use windlass_plugin_proto::drahealth_v1alpha1::{DeviceHealth, HealthStatus};
use windlass_types::corev1::ResourceHealth;

use crate::port::ClaimDevice;

/// Age at which a report counts as unknown, unless the driver sets another.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// Max bytes of a message (upstream `ResourceHealthMessageMaxLength`).
const MAX_MESSAGE_BYTES: usize = 1024;
/// Max age that a driver can set: a day.
const MAX_TIMEOUT_SECONDS: u64 = 86_400;

/// Pool and name of a device.
pub(crate) type DeviceKey = (String, String);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Report {
    health: &'static str,
    message: String,
    reported: Instant,
    timeout: Duration,
}

/// Reports of all drivers.
#[derive(Debug, Default)]
pub(crate) struct HealthTable {
    drivers: BTreeMap<String, BTreeMap<DeviceKey, Report>>,
    /// Gate `ResourceHealthStatusMessage`.
    pub(crate) messages: bool,
}

impl HealthTable {
    /// Takes in a list of a driver; returns the devices whose health changed.
    pub(crate) fn update(
        &mut self,
        driver: &str,
        list: Vec<DeviceHealth>,
        now: Instant,
    ) -> Vec<DeviceKey> {
        let known = self.drivers.entry(driver.to_owned()).or_default();
        let mut changed = Vec::new();
        for device in list {
            let id = device.device.unwrap_or_default();
            let key = (id.pool_name, id.device_name);
            let timeout = u64::try_from(device.health_check_timeout_seconds).unwrap_or(0);
            let report = Report {
                health: match HealthStatus::try_from(device.health) {
                    Ok(HealthStatus::Healthy) => "Healthy",
                    Ok(HealthStatus::Unhealthy) => "Unhealthy",
                    _ => "Unknown",
                },
                message: truncated(device.message),
                reported: now,
                timeout: match timeout.min(MAX_TIMEOUT_SECONDS) {
                    0 => DEFAULT_TIMEOUT,
                    seconds => Duration::from_secs(seconds),
                },
            };
            let same = |old: &Report| {
                (old.health, &old.message, old.timeout)
                    == (report.health, &report.message, report.timeout)
                    && old.reported + old.timeout >= now
            };
            if !known.get(&key).is_some_and(same) {
                changed.push(key.clone());
            }
            known.insert(key, report);
        }
        changed
    }

    /// Removes reports that are too old; returns their devices and when the next one is.
    pub(crate) fn expire(
        &mut self,
        driver: &str,
        now: Instant,
    ) -> (Vec<DeviceKey>, Option<Instant>) {
        let Some(known) = self.drivers.get_mut(driver) else {
            return (Vec::new(), None);
        };
        let is_old = |report: &Report| report.reported + report.timeout <= now;
        let old = known.iter().filter(|(_, report)| is_old(report));
        let old: Vec<_> = old.map(|(key, _)| key.clone()).collect();
        known.retain(|_, report| !is_old(report));
        let next = known.values().map(|it| it.reported + it.timeout).min();
        (old, next)
    }

    /// Removes the reports of a driver; returns their devices.
    pub(crate) fn clear(&mut self, driver: &str) -> Vec<DeviceKey> {
        let known = self.drivers.remove(driver).unwrap_or_default();
        known.into_keys().collect()
    }

    /// The health of a device under its resource ID.
    pub(crate) fn resource_health(
        &self,
        driver: &str,
        device: &ClaimDevice,
        resource_id: String,
    ) -> ResourceHealth {
        let key = (device.pool.clone(), device.device.clone());
        let report = self.drivers.get(driver).and_then(|it| it.get(&key));
        let message = report.map(|it| it.message.clone());
        ResourceHealth {
            health: Some(report.map_or("Unknown", |it| it.health).to_owned()),
            message: message.filter(|it| self.messages && !it.is_empty()),
            resource_id,
        }
    }
}

fn truncated(message: String) -> String {
    if message.len() <= MAX_MESSAGE_BYTES {
        return message;
    }
    let end = message.floor_char_boundary(MAX_MESSAGE_BYTES - 3);
    format!("{}...", &message[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_plugin_proto::drahealth_v1alpha1::DeviceIdentifier;

    fn report(health: HealthStatus, timeout: i64, message: &str) -> Vec<DeviceHealth> {
        vec![DeviceHealth {
            device: Some(DeviceIdentifier {
                pool_name: "p".to_owned(),
                device_name: "d".to_owned(),
            }),
            health: health.into(),
            last_updated_time: 0,
            health_check_timeout_seconds: timeout,
            message: message.to_owned(),
        }]
    }

    fn line(table: &HealthTable) -> String {
        let device = ClaimDevice {
            pool: "p".to_owned(),
            device: "d".to_owned(),
            ..ClaimDevice::default()
        };
        let health = table.resource_health("driver", &device, String::new());
        format!("{:?} {:?}", health.health, health.message)
    }

    #[test]
    fn reports_change_expire_and_are_cleared() {
        let mut table = HealthTable {
            messages: true,
            ..HealthTable::default()
        };
        let start = Instant::now();
        let update = |table: &mut HealthTable, list, seconds| {
            let now = start + Duration::from_secs(seconds);
            table.update("driver", list, now).len()
        };
        assert_eq!(line(&table), r#"Some("Unknown") None"#);
        let healthy = || report(HealthStatus::Healthy, 0, "");
        assert_eq!(update(&mut table, healthy(), 0), 1);
        assert_eq!(update(&mut table, healthy(), 5), 0, "the same again");
        let hot = || report(HealthStatus::Unhealthy, 7, "hot");
        assert_eq!(update(&mut table, hot(), 6), 1);
        assert_eq!(line(&table), r#"Some("Unhealthy") Some("hot")"#);
        let (old, next) = table.expire("driver", start + Duration::from_secs(12));
        assert!(old.is_empty());
        assert_eq!(next, Some(start + Duration::from_secs(13)));
        let (old, next) = table.expire("driver", start + Duration::from_secs(13));
        assert_eq!((old.len(), next), (1, None));
        assert_eq!(line(&table), r#"Some("Unknown") None"#);
        assert_eq!(update(&mut table, hot(), 14), 1);
        assert_eq!(table.clear("driver").len(), 1);
        let long = report(HealthStatus::Healthy, -1, &"x".repeat(2000));
        assert_eq!(update(&mut table, long, 15), 1);
        let shown = table.drivers["driver"].values().next().expect("one");
        assert_eq!(shown.message.len(), MAX_MESSAGE_BYTES);
        assert_eq!(shown.timeout, DEFAULT_TIMEOUT);
    }
}
