//! Rules about what the node reserves, how it registers and how it shuts down.

use std::collections::BTreeSet;

use windlass_units::quantity::Quantity;

use super::Rules;
use crate::duration::GoDuration;
use crate::kubelet::KubeletConfiguration;

/// Cgroups, reserved resources and what is enforced.
pub(super) fn reservations(c: &KubeletConfiguration, rules: &mut Rules<'_>) {
    let no_root = !c.system_cgroups.is_empty() && c.cgroup_root.is_empty();
    rules.require(!no_root, "systemCgroups", || {
        "needs cgroupRoot, write for example cgroupRoot: /".to_owned()
    });

    let enforced: Vec<&str> = c
        .enforce_node_allocatable
        .iter()
        .map(String::as_str)
        .collect();
    let field = "enforceNodeAllocatable";
    let mut seen = BTreeSet::new();
    for &word in &enforced {
        rules.require(seen.insert(word), field, || format!("{word:?} comes twice"));
        match word {
            "none" => rules.require(enforced.len() == 1, field, || {
                "\"none\" must stand alone".to_owned()
            }),
            "pods" => {}
            "system-reserved" | "system-reserved-compressible" => {
                rules.require(!c.system_reserved_cgroup.is_empty(), field, || {
                    format!("{word:?} needs systemReservedCgroup")
                });
            }
            "kube-reserved" | "kube-reserved-compressible" => {
                rules.require(!c.kube_reserved_cgroup.is_empty(), field, || {
                    format!("{word:?} needs kubeReservedCgroup")
                });
            }
            _ => rules.fault(
                field,
                format!(
                    "{word:?} is not known, write none, pods, system-reserved, \
                     system-reserved-compressible, kube-reserved or kube-reserved-compressible"
                ),
            ),
        }
        rules.require(c.cgroups_per_qos || word == "none", field, || {
            format!("{word:?} needs cgroupsPerQOS: true, or write [none]")
        });
    }
    for plain in ["system-reserved", "kube-reserved"] {
        let both = seen.contains(plain) && seen.contains(format!("{plain}-compressible").as_str());
        rules.require(!both, field, || {
            format!("{plain} and {plain}-compressible exclude each other")
        });
    }

    let cpus = c.reserved_system_cpus.as_str();
    if !cpus.is_empty() {
        rules.require(is_cpu_list(cpus), "reservedSystemCPUs", || {
            format!("{cpus:?} is no CPU list, write for example 0-1,4")
        });
        let by_cgroup = !c.system_reserved_cgroup.is_empty() || !c.kube_reserved_cgroup.is_empty();
        rules.require(!by_cgroup, "reservedSystemCPUs", || {
            "excludes systemReservedCgroup and kubeReservedCgroup".to_owned()
        });
    }
    for (field, map) in [
        ("systemReserved", &c.system_reserved),
        ("kubeReserved", &c.kube_reserved),
    ] {
        for (key, amount) in map {
            let known = ["cpu", "memory", "ephemeral-storage", "pid"];
            rules.require(known.contains(&key.as_str()), field, || {
                format!("{key:?} is not known, write one of {}", known.join(", "))
            });
            let usable = amount
                .parse::<Quantity>()
                .is_ok_and(|it| it >= Quantity::ZERO);
            rules.require(usable, field, || {
                format!("{key}: {amount:?} is no amount, write for example 500m or 1Gi")
            });
        }
    }
    reserved_memory(c, rules);
}

/// What eviction can be measured by, as upstream's `signalToResource`.
const SIGNALS: [&str; 9] = [
    "memory.available",
    "allocatableMemory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "pid.available",
];

/// Thresholds of eviction and what goes with them.
pub(super) fn eviction(c: &KubeletConfiguration, rules: &mut Rules<'_>) {
    let percent = |text: &str| -> Option<f32> { text.strip_suffix('%')?.parse().ok() };
    let amount = |text: &str| text.parse::<Quantity>().ok();
    let threshold = |text: &str| {
        percent(text).is_some_and(|share| (0.0..=100.0).contains(&share))
            || amount(text).is_some_and(|it| it > Quantity::ZERO)
    };
    let reclaim = |text: &str| {
        percent(text).is_some_and(|share| share > 0.0)
            || amount(text).is_some_and(|it| it >= Quantity::ZERO)
    };
    let period = |text: &str| {
        let period = text.parse::<GoDuration>();
        period.is_ok_and(|it| it >= GoDuration::ZERO)
    };
    type Holds<'a> = &'a dyn Fn(&str) -> bool;
    let maps: [(&str, _, Holds<'_>, &str); 4] = [
        ("evictionHard", &c.eviction_hard, &threshold, "100Mi or 5%"),
        ("evictionSoft", &c.eviction_soft, &threshold, "100Mi or 5%"),
        (
            "evictionMinimumReclaim",
            &c.eviction_minimum_reclaim,
            &reclaim,
            "100Mi or 5%",
        ),
        (
            "evictionSoftGracePeriod",
            &c.eviction_soft_grace_period,
            &period,
            "90s",
        ),
    ];
    for (field, map, holds, example) in maps {
        for (signal, text) in map {
            rules.require(SIGNALS.contains(&signal.as_str()), field, || {
                format!(
                    "{signal:?} is not known, write one of {}",
                    SIGNALS.join(", ")
                )
            });
            rules.require(holds(text), field, || {
                format!("{signal}: {text:?} is not usable, write for example {example}")
            });
        }
    }
    for (signal, text) in &c.eviction_soft {
        let off = ["0%", "100%"].contains(&text.as_str());
        let has = c.eviction_soft_grace_period.contains_key(signal);
        rules.require(off || has, "evictionSoft", || {
            format!("{signal} needs a period in evictionSoftGracePeriod")
        });
    }
}

fn reserved_memory(c: &KubeletConfiguration, rules: &mut Rules<'_>) {
    let mut seen = BTreeSet::new();
    for (index, entry) in c.reserved_memory.iter().enumerate() {
        let field = format!("reservedMemory[{index}]");
        let node = entry.numa_node;
        rules.require(node >= 0, &field, || {
            format!("NUMA node {node} is negative")
        });
        for (kind, quantity) in &entry.limits {
            rules.require(seen.insert((node, kind)), &field, || {
                format!("{kind} of NUMA node {node} comes twice")
            });
            let zero = quantity
                .trim_end_matches(|letter: char| !letter.is_ascii_digit())
                .parse::<f64>()
                .is_ok_and(|number| number <= 0.0);
            rules.require(!zero, &field, || format!("{kind} must be more than 0"));
        }
    }
}

/// Numbers and ranges separated by commas.
fn is_cpu_list(text: &str) -> bool {
    text.split(',').all(|item| {
        let (from, to) = item.split_once('-').unwrap_or((item, item));
        match (from.parse::<u32>(), to.parse::<u32>()) {
            (Ok(from), Ok(to)) => from <= to,
            _ => false,
        }
    })
}

/// The taints of a new node object.
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
            || "must not be set, remove it".to_owned(),
        );
    }
}

/// Periods of a graceful node shutdown.
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
            format!("{value} is too short, write 0s or at least 1s")
        });
    }
    rules.require(critical <= total, "shutdownGracePeriodCriticalPods", || {
        format!("{critical} is more than shutdownGracePeriod, which is {total}")
    });
    let both = !c.shutdown_grace_period_by_pod_priority.is_empty()
        && (total != GoDuration::ZERO || critical != GoDuration::ZERO);
    rules.require(!both, "shutdownGracePeriodByPodPriority", || {
        "excludes shutdownGracePeriod and shutdownGracePeriodCriticalPods".to_owned()
    });
}
