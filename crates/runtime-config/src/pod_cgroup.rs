//! Settings of the cgroups of pods, QoS classes and all pods, as cgroup files or systemd properties
//! (upstream `ResourceConfigForPod`, `setCPUCgroupConfig`, `getCgroupConfig`).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use windlass_types::corev1::ResourceRequirements;
use windlass_types::{Phase, Pod, PodExt};

use windlass_pod_inputs::node_facts::NodeFacts;
use windlass_pod_inputs::resources::{
    self, QosClass, cpu_quota, cpu_shares, huge_page_resource, huge_page_unit, pod_limit,
    pod_request, qos_class, with_overhead,
};
use windlass_units::quantity::{Quantity, lookup};

/// Resolution of a systemd quota: microseconds of CPU time per second.
const SYSTEMD_QUOTA_STEP: u64 = 10_000;
/// Default quota period of systemd, in microseconds.
const SYSTEMD_QUOTA_PERIOD: u64 = 100_000;

/// Page sizes in [`HugePageLimits`]; no architecture has more.
const MAX_PAGE_SIZES: usize = 4;
/// The kernel of cgroup v1 reports an unset memory limit as a number of about this size.
const NO_LIMIT: i64 = 1 << 62;

/// Settings of one cgroup; `None` keeps the kernel's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CgroupValues {
    /// CPU weight, in shares of cgroup v1.
    pub cpu_shares: Option<i64>,
    /// CPU quota and period, in microseconds; a quota of -1 means unlimited.
    pub cpu_quota: Option<(i64, i64)>,
    /// Memory limit in bytes.
    pub memory_limit: Option<i64>,
    /// Limit of processes and threads.
    pub pids_limit: Option<i64>,
    /// Memory in bytes that is never reclaimed; only on cgroup v2.
    pub memory_min: Option<i64>,
    /// Memory in bytes that is reclaimed last; only on cgroup v2.
    pub memory_low: Option<i64>,
    /// Limits of huge pages.
    pub huge_pages: HugePageLimits,
}

/// Limits of huge pages in bytes, by page size in bytes; other sizes keep the kernel's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HugePageLimits([(u64, i64); MAX_PAGE_SIZES]);

impl HugePageLimits {
    /// Returns the limits by page size as in `2MB`.
    fn by_unit(&self) -> impl Iterator<Item = (String, i64)> {
        let limits = self.0.iter().filter(|(size, _)| *size > 0);
        limits.map(|(size, limit)| (huge_page_unit(*size), *limit))
    }
}

impl FromIterator<(u64, i64)> for HugePageLimits {
    fn from_iter<T: IntoIterator<Item = (u64, i64)>>(limits: T) -> Self {
        let mut all = Self::default();
        for (slot, limit) in all.0.iter_mut().zip(limits) {
            *slot = limit;
        }
        all
    }
}

impl fmt::Display for CgroupValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shares = self.cpu_shares.map(|v| format!("shares={v}"));
        let quota = self.cpu_quota.map(|(q, p)| format!("quota={q}/{p}"));
        let memory = self.memory_limit.map(|v| format!("memory={v}"));
        let pids = self.pids_limit.map(|v| format!("pids={v}"));
        let min = self.memory_min.map(|v| format!("min={v}"));
        let low = self.memory_low.map(|v| format!("low={v}"));
        let words = [shares, quota, memory, pids, min, low]
            .into_iter()
            .flatten();
        let huge_pages = self.huge_pages.by_unit();
        let huge_pages = huge_pages.map(|(unit, limit)| format!("{unit}={limit}"));
        let words: Vec<String> = words.chain(huge_pages).collect();
        if words.is_empty() {
            return f.write_str("nothing");
        }
        f.write_str(&words.join(" "))
    }
}

/// One file of a cgroup and its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupFile {
    /// The controller.
    pub controller: &'static str,
    /// Name of the file.
    pub name: Cow<'static, str>,
    /// Content.
    pub content: String,
}

impl fmt::Display for CgroupFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.content)
    }
}

impl CgroupValues {
    /// Removes the CPU quota: the pod has exclusive CPUs.
    #[must_use]
    pub fn without_quota(self) -> Self {
        Self {
            cpu_quota: self.cpu_quota.map(|(_, period)| (-1, period)),
            ..self
        }
    }

    /// Returns the properties of the systemd slice, on cgroup v1 or v2. systemd has a resolution of
    /// 1/100 CPU: quotas are rounded up.
    pub fn slice_properties(&self, v2: bool) -> Vec<(&'static str, u64)> {
        let amount = |value: i64| u64::try_from(value).unwrap_or(0);
        let shares = self.cpu_shares.map(|shares| match v2 {
            true => ("CPUWeight", amount(cpu_weight(shares))),
            false => ("CPUShares", amount(shares)),
        });
        let quota = self.cpu_quota.map(|(quota, period)| {
            let per_second = match quota {
                1.. => amount(quota).saturating_mul(1_000_000) / amount(period).max(1),
                _ => u64::MAX,
            };
            let per_second = per_second.checked_next_multiple_of(SYSTEMD_QUOTA_STEP);
            ("CPUQuotaPerSecUSec", per_second.unwrap_or(u64::MAX))
        });
        // the default is omitted: systemd before 242 does not have the property
        let period = self.cpu_quota.map(|(_, period)| amount(period));
        let period = period.filter(|period| *period != SYSTEMD_QUOTA_PERIOD);
        let memory = self.memory_limit.map(|bytes| match v2 {
            true => ("MemoryMax", amount(bytes)),
            false => ("MemoryLimit", amount(bytes)),
        });
        let pids = self.pids_limit.map(|pids| ("TasksMax", amount(pids)));
        let period = period.map(|period| ("CPUQuotaPeriodUSec", period));
        let protected = |name, bytes: Option<i64>| bytes.filter(|_| v2).map(|b| (name, amount(b)));
        let min = protected("MemoryMin", self.memory_min);
        let low = protected("MemoryLow", self.memory_low);
        let properties = [shares, quota, period, memory, min, low, pids];
        properties.into_iter().flatten().collect()
    }

    /// Returns the files of cgroup v1 or v2, in write order.
    pub fn files(&self, v2: bool) -> Vec<CgroupFile> {
        let mut files = Vec::new();
        let mut file = |controller, name: &'static str, content: String| {
            files.push(CgroupFile {
                controller,
                name: name.into(),
                content,
            });
        };
        match self.cpu_shares {
            Some(shares) if v2 => file("cpu", "cpu.weight", cpu_weight(shares).to_string()),
            Some(shares) => file("cpu", "cpu.shares", shares.to_string()),
            None => {}
        }
        match self.cpu_quota {
            Some((quota, period)) if v2 => {
                let quota = Some(quota).filter(|quota| *quota > 0);
                let quota = quota.map_or_else(|| "max".to_owned(), |quota| quota.to_string());
                file("cpu", "cpu.max", format!("{quota} {period}"));
            }
            Some((quota, period)) => {
                file("cpu", "cpu.cfs_period_us", period.to_string());
                file("cpu", "cpu.cfs_quota_us", quota.to_string());
            }
            None => {}
        }
        let memory = if v2 {
            "memory.max"
        } else {
            "memory.limit_in_bytes"
        };
        if let Some(bytes) = self.memory_limit {
            file("memory", memory, bytes.to_string());
        }
        let protection = [
            ("memory.min", self.memory_min),
            ("memory.low", self.memory_low),
        ];
        for (name, bytes) in protection {
            if let Some(bytes) = bytes.filter(|_| v2) {
                file("memory", name, bytes.to_string());
            }
        }
        if let Some(pids) = self.pids_limit {
            file("pids", "pids.max", pids.to_string());
        }
        files.extend(self.huge_page_files(v2));
        files
    }

    /// Returns the limits of usage and of reservations for each page size.
    fn huge_page_files(&self, v2: bool) -> impl Iterator<Item = CgroupFile> {
        let kinds = match v2 {
            true => ["max", "rsvd.max"],
            false => ["limit_in_bytes", "rsvd.limit_in_bytes"],
        };
        self.huge_pages.by_unit().flat_map(move |(unit, limit)| {
            kinds.map(|kind| CgroupFile {
                controller: "hugetlb",
                name: format!("hugetlb.{unit}.{kind}").into(),
                content: limit.to_string(),
            })
        })
    }
}

/// Reads values from the files of a cgroup, without huge pages. `read` returns the content of a file
/// of a controller. Limits that are not set are absent, except a quota, which is -1.
pub fn read_values(v2: bool, read: impl Fn(&str, &str) -> Option<String>) -> CgroupValues {
    let number = |controller, file| read(controller, file)?.trim().parse::<i64>().ok();
    let limit = |controller, file| {
        let limit = number(controller, file)?;
        (limit < NO_LIMIT).then_some(limit)
    };
    if v2 {
        let quota = read("cpu", "cpu.max").and_then(|text| {
            let (quota, period) = text.trim().split_once(' ')?;
            Some((quota.parse().unwrap_or(-1), period.parse().ok()?))
        });
        return CgroupValues {
            cpu_shares: number("cpu", "cpu.weight").map(shares_of_weight),
            cpu_quota: quota,
            memory_limit: limit("memory", "memory.max"),
            memory_min: limit("memory", "memory.min"),
            memory_low: limit("memory", "memory.low"),
            pids_limit: limit("pids", "pids.max"),
            ..CgroupValues::default()
        };
    }
    let quota = number("cpu", "cpu.cfs_quota_us");
    let period = number("cpu", "cpu.cfs_period_us");
    CgroupValues {
        cpu_shares: number("cpu", "cpu.shares"),
        cpu_quota: quota.zip(period),
        memory_limit: limit("memory", "memory.limit_in_bytes"),
        pids_limit: limit("pids", "pids.max"),
        ..CgroupValues::default()
    }
}

/// Returns the least shares with this weight.
fn shares_of_weight(weight: i64) -> i64 {
    let above = weight.saturating_sub(1).saturating_mul(262_142);
    2 + above.saturating_add(9998) / 9999
}

/// Converts shares of cgroup v1 (2 to 262144) to a weight of v2 (1 to 10000), linearly as upstream
/// for pods and classes.
pub(crate) fn cpu_weight(shares: i64) -> i64 {
    1 + (shares.clamp(2, 262_144) - 2) * 9999 / 262_142
}

/// Returns the settings of a pod's cgroup. A Burstable pod has a limit only if all of its
/// containers have one. `pids_limit` is `podPidsLimit`, if set.
pub fn pod_cgroup(pod: &Pod, node: &NodeFacts, pids_limit: Option<i64>) -> CgroupValues {
    let class = qos_class(pod);
    let milli = |name, amount: Option<Quantity>| {
        with_overhead(pod, name, amount).map_or(0, Quantity::milli_value)
    };
    let shares = cpu_shares(milli("cpu", pod_request(pod, "cpu")));
    let limit = |name| {
        let limits_all = class == QosClass::Guaranteed
            || (class == QosClass::Burstable && limits_all_containers(pod, name));
        let limit = pod_limit(pod, name).filter(|limit| *limit > Quantity::ZERO);
        limit.filter(|_| limits_all)
    };
    let period = node.cpu_cfs_quota_period.as_micros();
    let period = i64::try_from(period).unwrap_or(i64::MAX);
    let quota = limit("cpu").map(|cpu| match node.cpu_cfs_quota {
        true => cpu_quota(milli("cpu", Some(cpu)), period),
        false => -1,
    });
    let memory = limit("memory").and_then(|bytes| with_overhead(pod, "memory", Some(bytes)));
    CgroupValues {
        cpu_shares: Some(match class {
            QosClass::BestEffort => resources::cpu_shares(0),
            QosClass::Burstable | QosClass::Guaranteed => shares,
        }),
        cpu_quota: quota.map(|quota| (quota, period)),
        memory_limit: memory.map(Quantity::value),
        pids_limit,
        huge_pages: huge_pages(pod, node),
        ..protection(pod, class, node)
    }
}

/// Returns the limits of huge pages: the requests of the pod, for each size that the host has.
fn huge_pages(pod: &Pod, node: &NodeFacts) -> HugePageLimits {
    let sizes = node.memory.huge_page_sizes.iter();
    let limits = sizes.map(|size| {
        let name = huge_page_resource(*size);
        let request = with_overhead(pod, &name, pod_request(pod, &name));
        (*size, request.map_or(0, Quantity::value))
    });
    limits.collect()
}

/// Returns the protection of the memory request for `MemoryQoS`. A value that a previous policy
/// has set is reset.
fn protection(pod: &Pod, class: QosClass, node: &NodeFacts) -> CgroupValues {
    let Some(qos) = node.memory.qos else {
        return CgroupValues::default();
    };
    let request = with_overhead(pod, "memory", pod_request(pod, "memory"));
    let request = request.map_or(0, Quantity::value);
    let (min, low) = match class {
        _ if !qos.protects_requests => (0, 0),
        QosClass::Guaranteed => (request, 0),
        QosClass::Burstable | QosClass::BestEffort => (0, request),
    };
    CgroupValues {
        memory_min: Some(min),
        memory_low: Some(low),
        ..CgroupValues::default()
    }
}

/// Returns the shares of the Burstable class: the sum of its pods without a terminal phase.
pub(crate) fn burstable_shares<'a>(pods: impl Iterator<Item = &'a Pod>) -> i64 {
    let has_ended = |pod: &Pod| pod.status.as_ref().is_some_and(Phase::is_terminal_in);
    let burstable = pods.filter(|pod| qos_class(pod) == QosClass::Burstable && !has_ended(pod));
    let requests = burstable.map(|pod| {
        let request = with_overhead(pod, "cpu", pod_request(pod, "cpu"));
        request.map_or(0, Quantity::milli_value)
    });
    cpu_shares(requests.fold(0, i64::saturating_add))
}

/// Resources for all pods of the node, in the units of the Node object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeLimits {
    /// CPU, in thousandths.
    pub milli_cpu: i64,
    /// Memory in bytes; 0 if unknown.
    pub memory: i64,
    /// Processes; 0 is unlimited.
    pub pids: i64,
}

impl NodeLimits {
    /// Returns the capacity of the node minus `reserved`: `systemReserved` and `kubeReserved`, if
    /// they are enforced. `max_tasks` is the capacity of processes, 0 if unknown. Eviction
    /// thresholds are not subtracted: eviction precedes the limit.
    pub fn new(
        capacity: &BTreeMap<String, ApiQuantity>,
        max_tasks: i64,
        reserved: &[&BTreeMap<String, String>],
    ) -> Self {
        let total = |name| lookup(Some(capacity), name).ok().flatten();
        let of = |name: &str| {
            let amounts = reserved
                .iter()
                .filter_map(|list| list.get(name)?.parse().ok());
            amounts.fold(Quantity::ZERO, |sum, amount: Quantity| sum + amount)
        };
        let left = |total: i64, reserved: i64| (total - reserved).max(0);
        Self {
            milli_cpu: left(
                total("cpu").map_or(0, Quantity::milli_value),
                of("cpu").milli_value(),
            ),
            memory: left(
                total("memory").map_or(0, Quantity::value),
                of("memory").value(),
            ),
            pids: left(max_tasks, of("pid").value()),
        }
    }

    /// Returns the settings of the cgroup of all pods.
    pub fn values(self) -> CgroupValues {
        let positive = |amount| Some(amount).filter(|amount| *amount > 0);
        CgroupValues {
            cpu_shares: Some(cpu_shares(self.milli_cpu)),
            cpu_quota: None,
            memory_limit: positive(self.memory),
            pids_limit: positive(self.pids),
            ..CgroupValues::default()
        }
    }
}

/// Returns true if all containers, or the pod itself, have a limit of the resource.
fn limits_all_containers(pod: &Pod, name: &str) -> bool {
    let limited = |resources: Option<&ResourceRequirements>| {
        let limits = resources.and_then(|resources| resources.limits.as_ref());
        let limit = lookup(limits, name).ok().flatten();
        limit.is_some_and(|limit| limit > Quantity::ZERO)
    };
    let mut all = pod.containers().iter().chain(pod.init_containers());
    limited(PodExt::spec(pod).resources.as_ref()) || all.all(|c| limited(c.resources.as_ref()))
}

#[cfg(test)]
mod tests;
