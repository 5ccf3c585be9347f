//! Inputs of tests in one line of text.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use windlass_types::{ClockReading, Pod, Timestamp, later};
use windlass_units::quantity::Quantity;

use crate::observation::{MemoryFacts, Observation, Observations, Stall};
use crate::pod::{ContainerUsage, DiskUsage, PodFigures, PodUsage};
use crate::state::EvictionSettings;
use crate::threshold::{ThresholdError, ThresholdFields, Thresholds};

/// Reads `hard memory.available=100Mi; soft …; grace …; reclaim …; pods`.
pub(crate) fn parse_thresholds(text: &str) -> Result<Thresholds, Vec<ThresholdError>> {
    let mut maps: BTreeMap<&str, BTreeMap<String, String>> = BTreeMap::new();
    for item in text
        .split(';')
        .map(str::trim)
        .filter(|item| !item.is_empty())
    {
        let (map, entry) = item.split_once(' ').unwrap_or((item, ""));
        let map = maps.entry(map).or_default();
        if let Some((signal, value)) = entry.split_once('=') {
            map.insert(signal.to_owned(), value.to_owned());
        }
    }
    let none = BTreeMap::new();
    let map = |name: &str| maps.get(name).unwrap_or(&none);
    Thresholds::parse(ThresholdFields {
        hard: map("hard"),
        soft: map("soft"),
        soft_grace_period: map("grace"),
        minimum_reclaim: map("reclaim"),
        enforces_pods: maps.contains_key("pods"),
    })
}

pub(crate) fn settings(thresholds: &str) -> EvictionSettings {
    EvictionSettings {
        thresholds: parse_thresholds(thresholds).expect("valid"),
        max_pod_grace_period: Duration::from_secs(20),
        ..EvictionSettings::default()
    }
}

pub(crate) fn now(seconds: u64) -> ClockReading {
    let monotonic = Duration::from_secs(seconds);
    ClockReading {
        wall: later(Timestamp::UNIX_EPOCH, monotonic),
        monotonic,
    }
}

pub(crate) fn amount(text: &str) -> u64 {
    let quantity: Quantity = text.parse().expect("a quantity");
    u64::try_from(quantity.value()).expect("positive")
}

/// Reads `memory.available=90Mi/1Gi cache=1Gi memavail=1Gi full=20 some=50 @5`: measured at the
/// second after `@`, else at `seconds`.
pub(crate) fn observations(text: &str, seconds: u64) -> Observations {
    let mut all = Observations::default();
    let at = text.split(' ').find_map(|token| token.strip_prefix('@'));
    let at = now(at.map_or(seconds, |at| at.parse().expect("seconds"))).wall;
    let mut facts = MemoryFacts::default();
    let mut stall = None;
    let tokens = text.split_whitespace().filter_map(|t| t.split_once('='));
    for (name, value) in tokens {
        let percent = || value.parse::<f64>().expect("a number");
        match name {
            "cache" => facts.active_file = amount(value),
            "memavail" => facts.mem_available = Some(amount(value)),
            "full" => stall.get_or_insert(Stall::default()).full_avg10 = percent(),
            "some" => stall.get_or_insert(Stall::default()).some_avg10 = percent(),
            signal => {
                let (available, capacity) = value.split_once('/').expect("available/capacity");
                let observation = Observation {
                    available: amount(available),
                    capacity: amount(capacity),
                    at,
                };
                let signal = signal.parse().expect("a signal");
                all.signals.insert(signal, observation);
            }
        }
    }
    facts.stall = stall;
    all.node_memory = facts;
    all.pods_memory = facts;
    all
}

/// Reads `web memory=1Gi/100Mi storage=… processes=7 priority=5 critical evicted unmeasured`:
/// a pod of one container `c` with `used/requested`; `layer`, `logs` and `volumes` are
/// `bytes:inodes`.
pub(crate) fn pod(text: &str) -> PodFigures {
    let mut words = text.split_whitespace();
    let name = words.next().expect("a name");
    let mut requests = BTreeMap::new();
    let mut usage = PodUsage::default();
    let mut container = ContainerUsage {
        name: "c".to_owned(),
        ..ContainerUsage::default()
    };
    let (mut priority, mut grace, mut is_measured, mut is_evicted) = (None, None, true, false);
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let (used, requested) = value.split_once('/').unwrap_or((value, ""));
        if !requested.is_empty() {
            let resource = if key == "memory" {
                "memory"
            } else {
                "ephemeral-storage"
            };
            requests.insert(resource, requested);
        }
        match key {
            "memory" => {
                usage.memory = Some(amount(used));
                container.memory = usage.memory;
            }
            "storage" => {}
            "processes" => usage.processes = Some(amount(used)),
            "layer" => container.writable_layer = Some(disk(used)),
            "logs" => container.logs = Some(disk(used)),
            "volumes" => usage.local_volumes = disk(used),
            "priority" => priority = Some(value.parse::<i32>().expect("a number")),
            "critical" => priority = Some(2_000_000_000),
            "grace" => grace = Some(value.parse::<i64>().expect("seconds")),
            "evicted" => is_evicted = true,
            "unmeasured" => is_measured = false,
            other => panic!("unknown {other}"),
        }
    }
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "shop", "uid": name},
        "spec": {
            "priority": priority,
            "terminationGracePeriodSeconds": grace,
            "containers": [{"name": "c", "resources": {"requests": requests}}],
        },
    }))
    .expect("a pod");
    usage.containers.push(container);
    PodFigures {
        usage: is_measured.then_some(usage),
        is_evicted,
        ..PodFigures::from_pod(&pod)
    }
}

pub(crate) fn pods(lines: &[&str]) -> Vec<PodFigures> {
    lines.iter().map(|line| pod(line)).collect()
}

fn disk(text: &str) -> DiskUsage {
    let (bytes, inodes) = text.split_once(':').unwrap_or((text, "0"));
    DiskUsage {
        bytes: amount(bytes),
        inodes: amount(inodes),
    }
}
