//! Which devices a container gets (upstream `devicesToAllocate`).

use std::collections::BTreeSet;

use windlass_topology::NumaSet;
use windlass_types::PodUid;

use super::affinity::by_affinity;
use super::{DeviceError, Devices};

/// Request of a container for devices of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRequest {
    /// UID of the pod.
    pub pod: PodUid,
    /// Container.
    pub container: String,
    /// Resource.
    pub resource: String,
    /// Number of devices (`resources.limits`).
    pub amount: usize,
    /// Devices of completed init containers ([`Devices::reusable`]).
    pub reusable: BTreeSet<String>,
    /// NUMA nodes that the topology manager chose.
    pub affinity: Option<NumaSet>,
    /// The pod runs: it keeps its devices whatever their plugin reports.
    pub runs: bool,
}

/// The next step of an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The container needs none, or has its devices from before.
    Kept,
    /// The plugin has a preference: repeat with its response.
    AskPlugin(PreferredQuestion),
    /// Reserve these and call Allocate.
    Take(BTreeSet<String>),
}

/// Arguments of `GetPreferredAllocation`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreferredQuestion {
    /// Devices to choose from.
    pub available: BTreeSet<String>,
    /// Devices that the choice includes.
    pub must_include: BTreeSet<String>,
    /// Number of devices to choose.
    pub size: usize,
}

impl Devices {
    /// Chooses devices for a request. `preferred` is the plugin's response to
    /// [`Choice::AskPlugin`]; devices in it that are not available are ignored.
    ///
    /// # Errors
    /// The container cannot have the devices.
    pub fn choose(
        &self,
        request: &DeviceRequest,
        preferred: Option<&BTreeSet<String>>,
    ) -> Result<Choice, DeviceError> {
        let name = &request.resource;
        let assigned = self.assigned(&request.pod, &request.container, name);
        if let Some(old) = assigned.map(|it| it.ids().len())
            && old != request.amount
        {
            return Err(DeviceError::ChangedRequest {
                pod: request.pod.to_string(),
                container: request.container.clone(),
                resource: name.clone(),
                old,
                new: request.amount,
            });
        }
        if assigned.is_some() && request.runs {
            return Ok(Choice::Kept);
        }
        let resource = self.resources.get(name);
        let resource = resource.ok_or_else(|| DeviceError::Unregistered(name.clone()))?;
        let healthy: BTreeSet<&String> = resource.healthy().map(|(id, _)| id).collect();
        if healthy.is_empty() {
            return Err(DeviceError::NoHealthyDevices(name.clone()));
        }
        if let Some(assigned) = assigned {
            let are_healthy = assigned
                .ids()
                .iter()
                .all(|id| healthy.iter().any(|it| it.as_str() == *id));
            return are_healthy
                .then_some(Choice::Kept)
                .ok_or_else(|| DeviceError::NoLongerHealthy(name.clone()));
        }
        if request.amount == 0 {
            return Ok(Choice::Kept);
        }
        let in_use = self.in_use(name);
        let free = healthy
            .into_iter()
            .filter(|id| !in_use.contains(id.as_str()));
        let mut taking = Taking::new(request.amount);
        if taking.take(&request.reusable) {
            return Ok(taking.done());
        }
        let free: BTreeSet<String> = free.cloned().collect();
        if free.len() < taking.missing() {
            return Err(DeviceError::Unavailable {
                resource: name.clone(),
                requested: taking.missing(),
                available: free.len(),
            });
        }
        let groups = by_affinity(&resource.devices, &free, request.affinity);
        // all aligned ones are needed: the plugin chooses among the others
        let choosable = match taking.missing() < groups.aligned.len() {
            true => &groups.aligned,
            false if taking.take(&groups.aligned) => return Ok(taking.done()),
            false => &free,
        };
        if resource.options.preferred_allocation {
            let Some(preferred) = preferred else {
                return Ok(Choice::AskPlugin(taking.question(choosable)));
            };
            if taking.take(&(preferred & choosable)) {
                return Ok(taking.done());
            }
        }
        let rest = [&groups.aligned, &groups.unaligned, &groups.without_topology];
        // there are enough, as counted above
        rest.into_iter().any(|devices| taking.take(devices));
        Ok(taking.done())
    }
}

/// Devices that are being chosen.
struct Taking {
    taken: BTreeSet<String>,
    amount: usize,
}

impl Taking {
    fn new(amount: usize) -> Self {
        let taken = BTreeSet::new();
        Self { taken, amount }
    }

    fn missing(&self) -> usize {
        self.amount - self.taken.len()
    }

    /// Takes devices until there are enough; returns whether there are.
    fn take(&mut self, devices: &BTreeSet<String>) -> bool {
        for device in devices {
            if self.missing() == 0 {
                break;
            }
            self.taken.insert(device.clone());
        }
        self.missing() == 0
    }

    fn question(&self, choosable: &BTreeSet<String>) -> PreferredQuestion {
        PreferredQuestion {
            available: choosable | &self.taken,
            must_include: self.taken.clone(),
            size: self.amount,
        }
    }

    fn done(self) -> Choice {
        Choice::Take(self.taken)
    }
}
