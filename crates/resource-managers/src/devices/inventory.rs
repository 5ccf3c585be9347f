//! The resources: registration, lists of devices, end of a plugin, capacity and health.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use windlass_topology::NumaSet;
use windlass_types::PodUid;

use super::{Devices, PluginDevice, PluginOptions, Resource, STOP_GRACE_PERIOD};

/// State of the plugin of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// No plugin is known.
    Unknown,
    /// Known from the checkpoint; no plugin has registered in this agent run.
    Expected,
    /// Registered; its devices may not be known yet.
    Connected,
    /// Ended, within the grace period.
    Stopped,
}

/// Plugin resources of the Node object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeDevices {
    /// All devices, by resource.
    pub capacity: BTreeMap<String, u64>,
    /// Healthy devices, by resource.
    pub allocatable: BTreeMap<String, u64>,
    /// Resources whose grace period has just ended.
    pub removed: BTreeSet<String>,
}

impl Devices {
    /// A plugin registered. `registration` grows in an agent run; messages of an older registration
    /// of the resource are ignored. The devices remain until the plugin lists its own. Returns false
    /// if the registration is old.
    pub fn registered(
        &mut self,
        resource: &str,
        registration: u64,
        options: PluginOptions,
    ) -> bool {
        let entry = self.resources.entry(resource.to_owned()).or_default();
        if entry.registration > Some(registration) {
            return false;
        }
        entry.registration = Some(registration);
        entry.options = options;
        entry.stopped_at = None;
        true
    }

    /// A plugin listed its devices. Returns the pods with a device whose health changed or that is
    /// new; `None` if the registration is not the current one.
    pub fn listed(
        &mut self,
        resource: &str,
        registration: u64,
        devices: BTreeMap<String, PluginDevice>,
    ) -> Option<BTreeSet<PodUid>> {
        let entry = self.current(resource, registration)?;
        entry.available = true;
        let old = std::mem::replace(&mut entry.devices, Arc::new(devices));
        let changed: BTreeSet<String> = (entry.devices.iter())
            .filter(|(id, new)| old.get(*id).is_none_or(|old| old.healthy != new.healthy))
            .map(|(id, _)| id.clone())
            .collect();
        let uses = |containers: &BTreeMap<String, super::ContainerDevices>| {
            let assigned = containers.values().filter_map(|it| it.get(resource));
            let mut ids = assigned.flat_map(|it| it.devices.values().flatten());
            ids.any(|id| changed.contains(id))
        };
        let pods = self.pods.iter().filter(|(_, it)| uses(it));
        Some(pods.map(|(pod, _)| pod.clone()).collect())
    }

    /// A plugin ended: none of its devices is healthy, and the grace period begins. Returns false if
    /// the registration is not the current one.
    pub fn stopped(&mut self, resource: &str, registration: u64, now: Duration) -> bool {
        let Some(entry) = self.current(resource, registration) else {
            return false;
        };
        entry.available = false;
        entry.stopped_at = Some(now);
        true
    }

    /// State of the plugin of a resource.
    pub fn registration(&self, resource: &str) -> Registration {
        match self.resources.get(resource) {
            None => Registration::Unknown,
            Some(it) if it.registration.is_none() => Registration::Expected,
            Some(it) if it.stopped_at.is_some() => Registration::Stopped,
            Some(_) => Registration::Connected,
        }
    }

    /// True if a plugin offers the resource or a pod has devices of it (upstream
    /// `isDevicePluginResource`).
    pub fn is_plugin_resource(&self, resource: &str) -> bool {
        self.resources.contains_key(resource) || {
            let mut containers = self.pods.values().flat_map(|it| it.values());
            containers.any(|it| it.contains_key(resource))
        }
    }

    /// True if the plugin requires a call before each start of a container.
    pub fn pre_start_required(&self, resource: &str) -> bool {
        let entry = self.resources.get(resource);
        entry.is_some_and(|it| it.options.pre_start_required)
    }

    /// Resources of the Node object. Removes those whose grace period has ended.
    pub fn node_devices(&mut self, now: Duration) -> NodeDevices {
        let mut node = NodeDevices::default();
        self.resources.retain(|name, resource| {
            if resource.grace_ends().is_some_and(|end| now > end) {
                node.removed.insert(name.clone());
                return false;
            }
            let healthy = resource.healthy().count() as u64;
            node.capacity
                .insert(name.clone(), resource.devices.len() as u64);
            node.allocatable.insert(name.clone(), healthy);
            true
        });
        node
    }

    /// Monotonic time after which [`Self::node_devices`] removes a resource next.
    pub fn next_removal(&self) -> Option<Duration> {
        self.resources
            .values()
            .filter_map(Resource::grace_ends)
            .min()
    }

    /// Healthy devices by resource, for `GetAllocatableResources`.
    pub fn allocatable(&self) -> BTreeMap<String, BTreeMap<String, NumaSet>> {
        let of = |resource: &Resource| {
            let healthy = resource.healthy();
            healthy.map(|(id, it)| (id.clone(), it.nodes)).collect()
        };
        let all = self.resources.iter();
        all.map(|(name, resource)| (name.clone(), of(resource)))
            .collect()
    }

    /// Health of the devices of a container by resource and ID (`allocatedResourcesStatus`). A
    /// device keeps its last reported health when its plugin ends; an unknown one counts as healthy.
    pub fn health(
        &self,
        pod: &PodUid,
        container: &str,
    ) -> BTreeMap<String, BTreeMap<String, bool>> {
        let Some(resources) = self.container(pod, container) else {
            return BTreeMap::new();
        };
        let healthy = |resource: &str, id: &str| {
            let device = self
                .resources
                .get(resource)
                .and_then(|it| it.devices.get(id));
            device.is_none_or(|it| it.healthy)
        };
        let of = |resource: &str, assigned: &super::Assigned| {
            let ids = assigned.ids().into_iter();
            ids.map(|id| (id.to_owned(), healthy(resource, id)))
                .collect()
        };
        let all = resources.iter();
        all.map(|(name, assigned)| (name.clone(), of(name, assigned)))
            .collect()
    }

    fn current(&mut self, resource: &str, registration: u64) -> Option<&mut Resource> {
        let entry = self.resources.get_mut(resource)?;
        (entry.registration == Some(registration)).then_some(entry)
    }
}

impl Resource {
    /// Devices that can be assigned.
    pub(super) fn healthy(&self) -> impl Iterator<Item = (&String, &PluginDevice)> {
        let all = self.devices.iter();
        all.filter(|(_, it)| self.available && it.healthy)
    }

    fn grace_ends(&self) -> Option<Duration> {
        Some(self.stopped_at? + STOP_GRACE_PERIOD)
    }
}
