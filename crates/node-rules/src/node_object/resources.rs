//! Capacity and allocatable.
//!
//! Allocatable is capacity minus reservations (kubeReserved, systemReserved, hard eviction), at
//! least zero. Huge pages reduce allocatable memory. Extended resources and attachable volumes are
//! not changed.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use windlass_eviction::Amount;
use windlass_types::PluginResources;
use windlass_types::corev1::NodeStatus;

use super::MachineFacts;
use windlass_units::quantity::{Quantity, QuantityFormat};

/// Settings of capacity and reservations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceSettings {
    /// `maxPods`.
    pub max_pods: u32,
    /// `podsPerCore`; 0 for no limit.
    pub pods_per_core: u32,
    /// `kubeReserved`.
    pub kube_reserved: BTreeMap<String, String>,
    /// `systemReserved`.
    pub system_reserved: BTreeMap<String, String>,
    /// `evictionHard`; empty if it does not reduce allocatable.
    pub eviction_hard: BTreeMap<String, String>,
    /// `localStorageCapacityIsolation`: ephemeral storage is a resource.
    pub local_storage: bool,
}

type ResourceList = BTreeMap<String, ApiQuantity>;

const CPU: &str = "cpu";
const MEMORY: &str = "memory";
const PODS: &str = "pods";
const STORAGE: &str = "ephemeral-storage";
const HUGE_PAGES: &str = "hugepages-";

/// Sets capacity and allocatable of a status; returns missing required resources.
pub(super) fn fill(
    status: &mut NodeStatus,
    machine: &MachineFacts,
    settings: &ResourceSettings,
    plugins: &PluginResources,
) -> Vec<&'static str> {
    let capacity = status.capacity.get_or_insert_default();
    let ours = capacity_of(machine, settings);
    capacity.retain(|name, _| !name.starts_with(HUGE_PAGES) || ours.contains_key(name));
    for (name, amount) in &ours {
        put(capacity, name, *amount);
    }
    for (name, devices) in plugin_counts(plugins, &plugins.capacity) {
        put(capacity, name, count(devices));
    }
    let allocatable = status.allocatable.get_or_insert_default();
    let gone = |name: &str| is_extended(name) || name.starts_with(HUGE_PAGES);
    allocatable.retain(|name, _| capacity.contains_key(name) || !gone(name));
    let huge: i64 = ours
        .iter()
        .filter(|(name, _)| name.starts_with(HUGE_PAGES))
        .map(|(_, amount)| amount.value())
        .sum();
    for (name, amount) in capacity.iter() {
        let Ok(total) = amount.0.parse::<Quantity>() else {
            continue;
        };
        let reserved = reserved(name, total, settings);
        let rest = match name.as_str() {
            CPU => Quantity::from_milli((total.milli_value() - reserved.milli_value()).max(0)),
            MEMORY => bytes((total.value() - reserved.value() - huge).max(0)),
            STORAGE => bytes((total.value() - reserved.value()).max(0)),
            _ => total,
        };
        put(allocatable, name, rest);
    }
    for (name, devices) in plugin_counts(plugins, &plugins.allocatable) {
        put(allocatable, name, count(devices));
    }
    let required = [CPU, MEMORY, PODS, STORAGE];
    let required = &required[..required.len() - usize::from(!settings.local_storage)];
    let missing = required
        .iter()
        .filter(|name| !capacity.contains_key(**name));
    missing.copied().collect()
}

/// Number of devices by resource; 0 without a plugin.
fn plugin_counts<'a>(
    plugins: &'a PluginResources,
    devices: &'a BTreeMap<String, u64>,
) -> impl Iterator<Item = (&'a str, u64)> {
    let removed = plugins.removed.iter().map(|name| (name.as_str(), 0));
    removed.chain(devices.iter().map(|(name, count)| (name.as_str(), *count)))
}

fn count(n: u64) -> Quantity {
    let n = i64::try_from(n).unwrap_or(i64::MAX);
    Quantity::from_units(n, QuantityFormat::DecimalSi)
}

/// Returns reservations (kubeReserved, systemReserved, hard eviction) over the capacity, with which
/// upstream does not start either.
pub fn excessive_reservations(machine: &MachineFacts, settings: &ResourceSettings) -> Vec<String> {
    let capacity = capacity_of(machine, settings);
    let reservations = capacity
        .into_iter()
        .map(|(name, total)| (reserved(&name, total, settings), name, total));
    reservations
        .filter(|(reserved, _, total)| reserved > total)
        .map(|(reserved, name, total)| format!("{name}: {reserved} of {total}"))
        .collect()
}

/// Sets extended resources to zero, until a device plugin reports them.
pub(super) fn reset_extended(status: &mut NodeStatus) {
    let lists = [status.capacity.as_mut(), status.allocatable.as_mut()];
    for list in lists.into_iter().flatten() {
        for (_, amount) in list.iter_mut().filter(|(name, _)| is_extended(name)) {
            "0".clone_into(&mut amount.0);
        }
    }
}

fn capacity_of(machine: &MachineFacts, settings: &ResourceSettings) -> BTreeMap<String, Quantity> {
    let mut list = BTreeMap::new();
    let size = |n: u64| bytes(i64::try_from(n).unwrap_or(i64::MAX));
    let mut put = |name: &str, amount: Quantity| {
        list.insert(name.to_owned(), amount);
    };
    if machine.cpus > 0 {
        put(CPU, count(machine.cpus.into()));
    }
    if machine.memory > 0 {
        put(MEMORY, size(machine.memory));
    }
    if settings.local_storage && machine.storage > 0 {
        put(STORAGE, size(machine.storage));
    }
    let pods = match settings.pods_per_core {
        0 => settings.max_pods,
        per_core => settings.max_pods.min(machine.cpus.saturating_mul(per_core)),
    };
    put(PODS, count(pods.into()));
    for (page_kib, pages) in &machine.huge_pages {
        let page = page_kib.saturating_mul(1024);
        put(
            &format!("{HUGE_PAGES}{}", size(page)),
            size(page.saturating_mul(*pages)),
        );
    }
    list
}

fn reserved(name: &str, total: Quantity, settings: &ResourceSettings) -> Quantity {
    let of = |list: &BTreeMap<String, String>| -> Quantity {
        let text = list.get(name);
        text.and_then(|text| text.parse().ok()).unwrap_or_default()
    };
    let signal = match name {
        MEMORY => "memory.available",
        STORAGE => "nodefs.available",
        _ => "",
    };
    let capacity = u64::try_from(total.value()).unwrap_or(0);
    let eviction = settings.eviction_hard.get(signal);
    let eviction = eviction.and_then(|text| Amount::parse_threshold(text).ok().flatten());
    let eviction = eviction.map_or(Quantity::ZERO, |amount| amount.resolve(capacity));
    of(&settings.system_reserved) + of(&settings.kube_reserved) + eviction
}

fn bytes(n: i64) -> Quantity {
    Quantity::from_units(n, QuantityFormat::BinarySi)
}

/// Sets a quantity; an equal one with another text is not changed.
fn put(list: &mut ResourceList, name: &str, amount: Quantity) {
    let old = list
        .get(name)
        .and_then(|old| old.0.parse::<Quantity>().ok());
    if old != Some(amount) {
        list.insert(name.to_owned(), ApiQuantity(amount.to_string()));
    }
}

/// Returns whether the domain of a resource is not `kubernetes.io`.
fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}
