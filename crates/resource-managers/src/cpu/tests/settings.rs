//! Options, their gates and conflicts, and reserved CPUs.

use std::sync::Arc;

use windlass_topology::CpuSet;

use super::static_policy;
use crate::cpu::take::tests::machine;
use crate::cpu::{CpuManager, CpuSettings};

/// Checks the reserved CPUs, or the error.
fn check(shape: &str, settings: &CpuSettings, expected: &str) {
    let machine = machine(shape);
    let all = machine.all_cpus();
    let line = match CpuManager::new(settings, Arc::new(machine)) {
        Ok(manager) => format!(
            "{} of {}",
            &all - &manager.allocatable(),
            manager.shared_pool()
        ),
        Err(error) => error.to_string(),
    };
    assert_eq!(line, expected);
}

#[test]
fn options_have_gates_and_conflicts() {
    let check = |options: &str, expected: &str| {
        let settings = CpuSettings {
            alpha_options: options.ends_with(" alpha"),
            beta_options: !options.ends_with(" stable"),
            ..static_policy(options.split(' ').next().unwrap(), 1)
        };
        check("1 1 1 4 1 0", &settings, expected);
    };
    check(
        "full-pcpus-only,prefer-align-cpus-by-uncorecache",
        "0 of 0-3",
    );
    check("strict-cpu-reservation", "0 of 1-3");
    check("distribute-cpus-across-numa", "0 of 0-3");
    check("distribute-cpus-across-cores alpha", "0 of 0-3");
    check(
        "distribute-cpus-across-numa stable",
        "CPU Manager Policy Beta-level Options not enabled, but option \
         \"distribute-cpus-across-numa\" provided",
    );
    check(
        "align-by-socket",
        "CPU Manager Policy Alpha-level Options not enabled, but option \"align-by-socket\" \
         provided",
    );
    check("fast", "unknown CPU Manager Policy option: \"fast\"");
    for (one, other) in [
        ("full-pcpus-only", "distribute-cpus-across-cores"),
        (
            "distribute-cpus-across-numa",
            "distribute-cpus-across-cores",
        ),
        (
            "prefer-align-cpus-by-uncorecache",
            "distribute-cpus-across-cores",
        ),
        (
            "prefer-align-cpus-by-uncorecache",
            "distribute-cpus-across-numa",
        ),
    ] {
        check(
            &format!("{one},{other} alpha"),
            &format!("static policy options {one} and {other} can not be used at the same time"),
        );
    }
}

#[test]
fn option_values_are_booleans_of_go() {
    let with = |value: &str| CpuSettings {
        options: [("strict-cpu-reservation".to_owned(), value.to_owned())].into(),
        ..static_policy("", 1)
    };
    for value in ["1", "t", "T", "true", "TRUE", "True"] {
        check("1 1 1 4 1 0", &with(value), "0 of 1-3");
    }
    for value in ["0", "f", "F", "false", "FALSE", "False"] {
        check("1 1 1 4 1 0", &with(value), "0 of 0-3");
    }
    check(
        "1 1 1 4 1 0",
        &with("yes"),
        "bad value for option \"strict-cpu-reservation\": strconv.ParseBool: parsing \"yes\": \
         invalid syntax",
    );
    let none = CpuSettings {
        is_static: false,
        ..with("true")
    };
    check(
        "1 1 1 4 1 0",
        &none,
        "None policy: received unsupported options=map[strict-cpu-reservation:true]",
    );
}

#[test]
fn align_by_socket_needs_nodes_in_sockets() {
    let settings = static_policy("align-by-socket", 1);
    check("2 2 2 4 1 0", &settings, "0 of 0-3");
    check(
        "1 2 2 4 1 0",
        &settings,
        "Align by socket is not compatible with hardware where number of sockets are more than \
         number of NUMA",
    );
    let single = CpuSettings {
        single_numa_node: true,
        ..settings
    };
    check(
        "2 2 2 4 1 0",
        &single,
        "Topolgy manager single-numa-node policy is incompatible with CPUManager align-by-socket \
         policy option",
    );
}

#[test]
fn reserved_cpus_are_chosen_or_given() {
    let with = |milli: i64, cpus: &str| CpuSettings {
        reserved_milli: milli,
        reserved: cpus.parse::<CpuSet>().unwrap(),
        ..static_policy("", 0)
    };
    let shape = "2 2 2 4 2 0";
    check(shape, &with(1100, ""), "0,4 of 0-7");
    check(shape, &with(3000, ""), "0-1,4 of 0-7");
    check(shape, &with(2000, "3,5"), "3,5 of 0-7");
    check(
        shape,
        &with(0, ""),
        "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be \
         greater than zero",
    );
    check(
        shape,
        &with(9000, ""),
        "[cpumanager] unable to reserve the required amount of CPUs (size of  did not equal 9)",
    );
    check(
        shape,
        &with(1000, "3,5"),
        "[cpumanager] unable to reserve the required amount of CPUs (size of 3,5 did not equal 1)",
    );
    check(
        shape,
        &with(2000, "3,8"),
        "[cpumanager] unable to build the reserved physical CPUs from the reserved set: unknown CPU \
         ID: 8",
    );
}
