//! Prints what happens on a node whose memory runs short, by both memory rules.
//!
//! `cargo run -p windlass-eviction --example rank_pods`

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use windlass_eviction::{
    EvictionSettings, EvictionState, MemoryFacts, MemoryRule, Observation, Observations,
    PodFigures, PodUsage, Signal, ThresholdFields, Thresholds,
};
use windlass_types::{ClockReading, Pod, Timestamp};

const MIB: u64 = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let hard = BTreeMap::from([("memory.available".to_owned(), "100Mi".to_owned())]);
    let none = BTreeMap::new();
    let fields = ThresholdFields {
        hard: &hard,
        soft: &none,
        soft_grace_period: &none,
        minimum_reclaim: &none,
        enforces_pods: false,
    };
    let thresholds = Thresholds::parse(fields).map_err(|errors| format!("{errors:?}"))?;
    let pods = [("web", 300, 0), ("batch", 200, -10), ("cache", 40, 5)].map(figures);

    let at = Timestamp::UNIX_EPOCH;
    let now = ClockReading {
        wall: at,
        monotonic: Duration::ZERO,
    };
    for rule in [MemoryRule::Upstream, MemoryRule::ReclaimableAware] {
        let settings = EvictionSettings {
            thresholds: thresholds.clone(),
            memory_rule: rule,
            ..EvictionSettings::default()
        };
        for page_cache in [0, 500 * MIB] {
            let pass = EvictionState::default().pass(now, &observations(at, page_cache), &settings);
            println!("{rule}, {} Mi of page cache: {pass}", page_cache / MIB);
            for met in &pass.due {
                if let Some(victim) = settings.choose_victim(met, &pods) {
                    println!("  {victim}: {}", victim.explanation);
                }
            }
        }
    }
    Ok(())
}

fn observations(at: Timestamp, page_cache: u64) -> Observations {
    let memory = Observation {
        available: 60 * MIB,
        capacity: 1024 * MIB,
        at,
    };
    Observations {
        signals: BTreeMap::from([(Signal::MemoryAvailable, memory)]),
        node_memory: MemoryFacts {
            active_file: page_cache,
            ..MemoryFacts::default()
        },
        ..Observations::default()
    }
}

fn figures((name, mebibytes, priority): (&str, u64, i32)) -> PodFigures {
    let mut pod = Pod::default();
    pod.metadata.namespace = Some("shop".to_owned());
    pod.metadata.name = Some(name.to_owned());
    pod.metadata.uid = Some(name.to_owned());
    pod.spec.get_or_insert_default().priority = Some(priority);
    let usage = PodUsage {
        memory: Some(mebibytes * MIB),
        ..PodUsage::default()
    };
    PodFigures {
        usage: Some(usage),
        ..PodFigures::from_pod(&pod)
    }
}
