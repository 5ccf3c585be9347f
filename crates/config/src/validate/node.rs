//! Rules for reservations, eviction, registration and node shutdown.

use std::collections::BTreeSet;

use windlass_eviction::Thresholds;
use windlass_topology::CpuSet;
use windlass_units::quantity::Quantity;

use super::Rules;
use crate::duration::GoDuration;
use crate::eviction;
use crate::kubelet::KubeletConfiguration;

/// Checks cgroups, reserved resources and enforcement.
pub(super) fn reservations(c: &KubeletConfiguration, rules: &mut Rules<'_>) {
    let no_root = !c.system_cgroups.is_empty() && c.cgroup_root.is_empty();
    rules.require(!no_root, "systemCgroups", || {
        "requires cgroupRoot, for example cgroupRoot: /".to_owned()
    });

    let enforced: Vec<&str> = c
        .enforce_node_allocatable
        .iter()
        .map(String::as_str)
        .collect();
    let field = "enforceNodeAllocatable";
    let mut seen = BTreeSet::new();
    for &word in &enforced {
        rules.require(seen.insert(word), field, || format!("duplicate {word:?}"));
        match word {
            "none" => rules.require(enforced.len() == 1, field, || {
                "\"none\" must be the only entry".to_owned()
            }),
            "pods" => {}
            "system-reserved" | "system-reserved-compressible" => {
                rules.require(!c.system_reserved_cgroup.is_empty(), field, || {
                    format!("{word:?} requires systemReservedCgroup")
                });
            }
            "kube-reserved" | "kube-reserved-compressible" => {
                rules.require(!c.kube_reserved_cgroup.is_empty(), field, || {
                    format!("{word:?} requires kubeReservedCgroup")
                });
            }
            _ => rules.reject(
                field,
                format!(
                    "must be one of none, pods, system-reserved, system-reserved-compressible, \
                     kube-reserved, kube-reserved-compressible, got {word:?}"
                ),
            ),
        }
        rules.require(c.cgroups_per_qos || word == "none", field, || {
            format!("{word:?} requires cgroupsPerQOS: true; otherwise set [none]")
        });
    }
    for plain in ["system-reserved", "kube-reserved"] {
        let both = seen.contains(plain) && seen.contains(format!("{plain}-compressible").as_str());
        rules.require(!both, field, || {
            format!("{plain} and {plain}-compressible are mutually exclusive")
        });
    }

    let cpus = c.reserved_system_cpus.as_str();
    if !cpus.is_empty() {
        rules.require(cpus.parse::<CpuSet>().is_ok(), "reservedSystemCPUs", || {
            format!("not a CPU list: {cpus:?}; set for example 0-1,4")
        });
        let by_cgroup = !c.system_reserved_cgroup.is_empty() || !c.kube_reserved_cgroup.is_empty();
        rules.require(!by_cgroup, "reservedSystemCPUs", || {
            "cannot be set together with systemReservedCgroup or kubeReservedCgroup".to_owned()
        });
    }
    for (field, map) in [
        ("systemReserved", &c.system_reserved),
        ("kubeReserved", &c.kube_reserved),
    ] {
        for (key, amount) in map {
            let known = ["cpu", "memory", "ephemeral-storage", "pid"];
            rules.require(known.contains(&key.as_str()), field, || {
                format!("must be one of {}, got {key:?}", known.join(", "))
            });
            let usable = amount
                .parse::<Quantity>()
                .is_ok_and(|it| it >= Quantity::ZERO);
            rules.require(usable, field, || {
                format!("{key}: not a quantity: {amount:?}; set for example 500m or 1Gi")
            });
        }
    }
    qos_reserved(c, rules);
}

fn qos_reserved(c: &KubeletConfiguration, rules: &mut Rules<'_>) {
    let field = "qosReserved";
    for (resource, share) in &c.qos_reserved {
        rules.require(resource == "memory", field, || {
            format!("cannot reserve {resource:?}; only memory")
        });
        rules.require(percent(share).is_some(), field, || {
            format!("{resource}: must be between 0% and 100%, got {share:?}")
        });
    }
}

/// Parses a percentage from 0 to 100, such as `50%`.
pub fn percent(text: &str) -> Option<i64> {
    let number = text.strip_suffix('%')?.parse().ok()?;
    (0..=100).contains(&number).then_some(number)
}

/// Checks eviction thresholds, reclaim amounts and grace periods.
pub(super) fn eviction(c: &KubeletConfiguration, rules: &mut Rules<'_>) {
    let errors = Thresholds::parse(eviction::threshold_fields(c)).err();
    for error in errors.into_iter().flatten() {
        rules.reject(error.field, error.message);
    }
}

/// Checks the taints of a new Node object.
pub(super) fn registration(c: &KubeletConfiguration, rules: &mut Rules<'_>) {
    for (index, taint) in c.register_with_taints.iter().enumerate() {
        let field = format!("registerWithTaints[{index}]");
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        rules.one_of(&format!("{field}.effect"), &taint.effect, &effects);
        rules.require(!taint.key.is_empty(), &format!("{field}.key"), || {
            "must not be empty".to_owned()
        });
        rules.require(
            taint.time_added.is_none(),
            &format!("{field}.timeAdded"),
            || "must not be set; remove it".to_owned(),
        );
    }
}

/// Checks the periods of a graceful node shutdown.
pub(super) fn shutdown(c: &KubeletConfiguration, rules: &mut Rules<'_>) {
    let second = GoDuration::from_secs(1);
    let (total, critical) = (
        c.shutdown_grace_period,
        c.shutdown_grace_period_critical_pods,
    );
    for (field, value) in [
        ("shutdownGracePeriod", total),
        ("shutdownGracePeriodCriticalPods", critical),
    ] {
        rules.require(value == GoDuration::ZERO || value >= second, field, || {
            format!("must be 0s or at least 1s, got {value}")
        });
    }
    rules.require(critical <= total, "shutdownGracePeriodCriticalPods", || {
        format!("must not be more than shutdownGracePeriod ({total}), got {critical}")
    });
    let both = !c.shutdown_grace_period_by_pod_priority.is_empty()
        && (total != GoDuration::ZERO || critical != GoDuration::ZERO);
    rules.require(!both, "shutdownGracePeriodByPodPriority", || {
        "cannot be set together with shutdownGracePeriod or shutdownGracePeriodCriticalPods"
            .to_owned()
    });
}
