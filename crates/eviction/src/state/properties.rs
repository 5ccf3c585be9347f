//! What holds for all observations and pods.

use proptest::prelude::*;

use super::{Decision, EvictionState};
use crate::memory_rule::MemoryRule;
use crate::pod::PodFigures;
use crate::rank::rank;
use crate::signal::Signal;
use crate::state::EvictionSettings;
use crate::test_figures::{now, observations, pod, settings};

const CONFIG: &str = "hard memory.available=100; soft memory.available=200; \
                      grace memory.available=5s; reclaim memory.available=50; \
                      hard nodefs.available=10%; hard pid.available=100; pods";

fn figures() -> impl Strategy<Value = PodFigures> {
    let flag = prop_oneof![
        Just(""),
        Just("critical"),
        Just("evicted"),
        Just("unmeasured")
    ];
    (0..50u32, 0..5000u64, 1..5000u64, -2..3i32, flag).prop_map(
        |(name, used, requested, priority, flag)| {
            pod(&format!(
                "p{name} memory={used}/{requested} processes={used} layer={used}:{used} \
                 priority={priority} {flag}"
            ))
        },
    )
}

fn line(memory: u64, disk: u64, pids: u64, cache: u64) -> String {
    format!(
        "memory.available={memory}/1000 allocatableMemory.available={memory}/1000 \
         nodefs.available={disk}/1000 pid.available={pids}/1000 cache={cache}"
    )
}

proptest! {
    #[test]
    fn ranking_is_a_total_order_of_evictable_pods(
        pods in prop::collection::vec(figures(), 0..12),
        signal in prop::sample::select(Signal::ALL.to_vec()),
    ) {
        let settings = settings(CONFIG);
        let ranked = rank(signal, settings.file_systems, &pods);
        let evictable = pods.iter().filter(|pod| !pod.is_critical && !pod.is_evicted);
        prop_assert_eq!(ranked.len(), evictable.count());
        let names = |pods: &[PodFigures]| -> Vec<PodFigures> {
            let ranked = rank(signal, settings.file_systems, pods);
            ranked.into_iter().map(|(pod, _)| pod.clone()).collect()
        };
        let reversed: Vec<PodFigures> = pods.iter().rev().cloned().collect();
        let (first, second) = (names(&pods), names(&reversed));
        // pods of one name have one UID here and may change places
        let name = |pods: Vec<PodFigures>| -> Vec<String> {
            pods.into_iter().map(|pod| pod.name).collect()
        };
        prop_assert_eq!(name(first), name(second));
    }

    #[test]
    fn passes_evict_only_what_is_short(
        passes in prop::collection::vec((0..400u64, 0..400u64, 0..400u64, 0..300u64), 1..12),
        upstream in any::<bool>(),
    ) {
        let rule = if upstream { MemoryRule::Upstream } else { MemoryRule::ReclaimableAware };
        let settings = EvictionSettings { memory_rule: rule, ..settings(CONFIG) };
        let mut state = EvictionState::default();
        for (second, (memory, disk, pids, cache)) in passes.into_iter().enumerate() {
            let second = second as u64;
            let observed = observations(&line(memory, disk, pids, cache), second);
            let pass = state.pass(now(second), &observed, &settings);
            for met in pass.due.iter().chain(pass.waiting.iter().map(|(met, _)| met)) {
                let resolved = met.threshold.resolved_at(met.observed.capacity);
                prop_assert!(met.available() < resolved, "{}", pass);
                prop_assert!(pass.pressure.has(met.signal().condition()), "{}", pass);
            }
            let hard_memory = memory < 100 && (upstream || memory + cache < 100);
            prop_assert!(!hard_memory || pass.due[0].signal().is_memory(), "{}", pass);
            match pass.decision {
                Decision::Idle => prop_assert!(pass.due.is_empty(), "{}", pass),
                Decision::Evict(met) | Decision::Reclaim(met, _) => {
                    prop_assert_eq!(Some(&met), pass.due.first());
                }
            }
        }
    }
}
