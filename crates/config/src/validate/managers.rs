//! Rules for the CPU, memory and topology managers.

use std::collections::BTreeSet;

use windlass_resource_managers::cpu::CpuSettingsError;
use windlass_units::quantity::Quantity;

use super::Rules;
use crate::gates::FeatureGates;
use crate::kubelet::KubeletConfiguration;
use crate::managers;

/// Checks policies, options and reservations, as far as they do not depend on the machine.
pub(super) fn managers(c: &KubeletConfiguration, gates: &FeatureGates, rules: &mut Rules<'_>) {
    if let Err(error) = managers::cpu_settings(c, gates).check() {
        let (field, fix) = cpu_fix(&error);
        rules.reject(field, format!("{error}; {fix}"));
    }
    if let Err(error) = managers::topology_config(c) {
        rules.reject("topologyManagerPolicyOptions", error.to_string());
    }
    let is_valid = reserved_memory(c, rules);
    if is_valid
        && c.memory_manager_policy == "Static"
        && let Err(error) = managers::check_reserved_memory(c)
    {
        let text = error.to_string();
        let message = text.strip_prefix("reservedMemory: ").unwrap_or(&text);
        rules.reject("reservedMemory", message);
    }
}

/// Returns the field with the error, and what to set instead.
fn cpu_fix(error: &CpuSettingsError) -> (&'static str, &'static str) {
    let options = "cpuManagerPolicyOptions";
    match error {
        CpuSettingsError::OptionsOfNone(_) => {
            (options, "remove them, or set cpuManagerPolicy: static")
        }
        CpuSettingsError::UnknownOption(_) => (options, "remove it"),
        CpuSettingsError::GatedOption { level: "Alpha", .. } => (
            options,
            "enable the feature gate CPUManagerPolicyAlphaOptions",
        ),
        CpuSettingsError::GatedOption { .. } => (
            options,
            "enable the feature gate CPUManagerPolicyBetaOptions",
        ),
        CpuSettingsError::OptionValue { .. } => (options, "set \"true\" or \"false\""),
        CpuSettingsError::Conflict(..) => (options, "remove one of them"),
        CpuSettingsError::SingleNumaNode => (
            options,
            "remove align-by-socket, or set another topologyManagerPolicy",
        ),
        CpuSettingsError::MoreSocketsThanNodes => (options, "remove align-by-socket"),
        CpuSettingsError::NothingReserved => (
            "cpuManagerPolicy",
            "set cpu in systemReserved or kubeReserved, or reservedSystemCPUs",
        ),
        CpuSettingsError::Reserved { .. } | CpuSettingsError::UnknownReserved(_) => {
            ("reservedSystemCPUs", "set CPUs that are online")
        }
    }
}

/// Checks each entry of `reservedMemory`; true if all are valid.
fn reserved_memory(c: &KubeletConfiguration, rules: &mut Rules<'_>) -> bool {
    let before = rules.invalid.len();
    let mut seen = BTreeSet::new();
    for (index, entry) in c.reserved_memory.iter().enumerate() {
        let field = format!("reservedMemory[{index}]");
        let node = entry.numa_node;
        rules.require(node >= 0, &field, || {
            format!("NUMA node {node} is negative")
        });
        for (kind, amount) in &entry.limits {
            let known = kind == "memory" || kind.starts_with("hugepages-");
            rules.require(known, &field, || {
                format!(
                    "the limit type {kind:?} for NUMA node {node} is not supported; set memory or \
                     hugepages-<size>"
                )
            });
            rules.require(seen.insert((node, kind)), &field, || {
                format!(
                    "duplicate value for NUMA node {node} and resource {kind:?}; remove one of them"
                )
            });
            match amount.parse::<Quantity>() {
                Ok(amount) => rules.require(amount > Quantity::ZERO, &field, || {
                    format!(
                        "{kind} for NUMA node {node} must be more than 0, got {amount}; remove it"
                    )
                }),
                Err(_) => rules.reject(
                    &field,
                    format!("{kind}: not a quantity: {amount:?}; set for example 1Gi"),
                ),
            }
        }
    }
    rules.invalid.len() == before
}
