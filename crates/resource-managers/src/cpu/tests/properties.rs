//! Sequences of pods on machines of any shape.

use proptest::prelude::*;
use windlass_topology::fake::{FakeMachine, Numbering};
use windlass_topology::{CpuSet, Machine};
use windlass_types::{PodExt, PodUid};

use super::{allocate, manager, pod, static_policy};
use crate::cpu::CpuManager;

fn machines() -> impl Strategy<Value = Machine> {
    let numberings = vec![
        Numbering::BySocket,
        Numbering::Alternating,
        Numbering::ByCore,
    ];
    let offline = prop::collection::btree_set(1..32_u32, 0..12);
    let shape = (1..5_u32, 1..3_u32, 1..5_u32, 1..3_u32);
    (shape, prop::sample::select(numberings), offline).prop_map(
        |((nodes, sockets, uncores, threads), numbering, offline)| {
            FakeMachine {
                nodes,
                sockets,
                uncores,
                cores: 16,
                threads,
                numbering,
                offline: offline.into_iter().collect(),
                ..FakeMachine::default()
            }
            .build()
        },
    )
}

fn options() -> impl Strategy<Value = &'static str> {
    prop::sample::select(
        &[
            "",
            "distribute-cpus-across-numa",
            "distribute-cpus-across-cores",
            "prefer-align-cpus-by-uncorecache",
            "full-pcpus-only,distribute-cpus-across-numa",
            "full-pcpus-only,prefer-align-cpus-by-uncorecache,strict-cpu-reservation",
        ][..],
    )
}

/// Each CPU is in the shared pool or has one owner, and reserved CPUs have none.
fn check(manager: &CpuManager, initial: &CpuSet) {
    let mut seen = manager.shared_pool().clone();
    for uid in manager.pods() {
        let cpus = manager.state.of_pod(uid);
        assert!(cpus.is_disjoint(&seen), "{uid} shares {cpus}");
        assert!(
            cpus.is_subset(&manager.allocatable()),
            "{uid} has reserved CPUs"
        );
        seen.extend(cpus.iter());
    }
    assert_eq!(&seen, initial, "no CPU is lost");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_cpu_has_one_owner(
        machine in machines(),
        options in options(),
        sizes in prop::collection::vec((1..9_usize, 0..3_usize, 0..4_u32), 1..12),
    ) {
        let mut manager = manager(machine, &static_policy(options, 1));
        let initial = manager.shared_pool().clone();
        for (index, (size, kind, node)) in sizes.iter().enumerate() {
            let containers = match kind {
                0 => format!("c{size}"),
                1 => format!("i{size} c{size}"),
                _ => format!("i{size} s1 c1 c{size}"),
            };
            let pod = pod(&format!("u{index}"), &containers);
            let line = allocate(&mut manager, &pod, &node.to_string());
            let last = format!("{}{}", "c", pod.init_containers().len() + pod.containers().len() - 1);
            if let Some(cpus) = manager.assigned_to(&pod.uid(), &last) {
                prop_assert_eq!(cpus.len(), *size, "{}", line);
            }
            check(&manager, &initial);
            if index % 3 == 2 {
                manager.release(&PodUid::from(format!("u{}", index - 1)));
                check(&manager, &initial);
            }
        }
        let uids: Vec<PodUid> = manager.pods().cloned().collect();
        let file = manager.state_file();
        prop_assert_eq!(manager.restore(file.as_bytes(), |_| None).to_string(), "kept");
        uids.iter().for_each(|uid| {
            manager.release(uid);
        });
        prop_assert_eq!(manager.shared_pool(), &initial);
    }
}
