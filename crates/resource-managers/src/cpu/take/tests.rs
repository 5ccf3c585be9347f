//! Choices of upstream's functions, which were recorded from them.

use windlass_topology::fake::{FakeMachine, Numbering};
use windlass_topology::{CpuSet, Machine};

use super::{Taking, take};

/// Parses `nodes sockets uncores cores threads numbering`.
pub(in crate::cpu) fn machine(text: &str) -> Machine {
    let numbers: Vec<u32> = text.split(' ').map(|it| it.parse().unwrap()).collect();
    let [nodes, sockets, uncores, cores, threads, numbering] = numbers[..] else {
        panic!("{text}");
    };
    let orders = [
        Numbering::BySocket,
        Numbering::Alternating,
        Numbering::ByCore,
    ];
    FakeMachine {
        nodes,
        sockets,
        uncores,
        cores,
        threads,
        numbering: orders[numbering as usize],
        ..FakeMachine::default()
    }
    .build()
}

/// Checks rows of machine, way, count, free CPUs and chosen CPUs.
fn check(rows: &str) {
    let mut wrong = Vec::new();
    for row in rows.lines().filter(|row| !row.starts_with('#')) {
        let fields: Vec<&str> = row.split('|').collect();
        let [shape, way, count, free, expected] = fields[..] else {
            panic!("{row}");
        };
        let machine = machine(shape);
        let taking = Taking {
            spread: way == "spread",
            by_uncore: way == "uncore",
            across_numa: way.starts_with("numa"),
            group: match way {
                "numa2" => machine.threads_per_core(),
                _ => 1,
            },
        };
        let free: CpuSet = free.parse().unwrap();
        let chosen = match take(&machine, &free, count.parse().unwrap(), taking) {
            Ok(chosen) => chosen.to_string(),
            Err(error) => format!("error {error}"),
        };
        if chosen != expected {
            wrong.push(format!("{row}\n  got {chosen}"));
        }
    }
    assert!(wrong.is_empty(), "{}: {}", wrong.len(), wrong.join("\n"));
}

#[test]
fn cpus_are_chosen_as_upstream_does() {
    check(include_str!("cases.txt"));
}

#[test]
fn four_of_eight_nodes_are_those_that_balance_best() {
    // upstream overwrites the last node of its best choice with one that it tries later
    check(
        "8 2 16 64 2 0|numa1|56|0-127|0-6,8-14,16-22,24-30,64-70,72-78,80-86,88-94\n\
         8 2 16 64 2 0|numa2|64|0-127|0-31,64-95",
    );
}

#[test]
fn cores_and_sockets_of_unequal_size_are_taken_whole() {
    // cores of 2 and of 1 thread: upstream takes a core of 2 threads of which one is in use
    let mut machine = machine("1 1 1 6 2 2");
    machine.cpus.remove(&9);
    machine.cpus.remove(&11);
    let taking = Taking {
        spread: false,
        by_uncore: false,
        across_numa: false,
        group: 1,
    };
    for (free, count, expected) in [
        ("1-11", 2, "8,10"),
        ("1,3-8,10", 3, "1,8,10"),
        ("1,3-8", 3, "4-5,8"),
    ] {
        let free = &free.parse::<CpuSet>().unwrap() & &machine.all_cpus();
        let chosen = take(&machine, &free, count, taking).unwrap();
        assert_eq!(chosen.to_string(), expected, "{count} of {free}");
    }
}
