//! Parsing and errors of thresholds.

use crate::layout::FileSystems;
use crate::signal::{NodeCondition, Signal};
use crate::test_figures::parse_thresholds;

fn check(input: &str, expected: &str) {
    let line = match parse_thresholds(input) {
        Ok(thresholds) => thresholds.to_string(),
        Err(errors) => {
            let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
            errors.join(" | ")
        }
    };
    assert_eq!(line, expected, "{input}");
}

#[test]
fn thresholds_are_read_from_all_fields() {
    check("", "");
    check("hard memory.available=100Mi", "memory.available<100Mi");
    check("hard nodefs.available=10%", "nodefs.available<10%");
    check("hard nodefs.available=12.5%", "nodefs.available<12.5%");
    check(
        "hard pid.available=1k; hard memory.available=1Gi",
        "memory.available<1Gi, pid.available<1k",
    );
    check(
        "soft memory.available=1.5Gi; grace memory.available=1m30s; hard memory.available=100Mi",
        "memory.available<100Mi, memory.available<1536Mi for 1m30s",
    );
    // a period without a threshold is accepted, as upstream
    check("grace memory.available=1m", "");
    check("reclaim imagefs.available=0", "");
}

#[test]
fn zero_and_full_share_disable_threshold() {
    check("hard nodefs.available=0%; hard imagefs.available=100%", "");
    // a disabled soft threshold needs no period
    check("soft nodefs.available=0%", "");
    check("hard nodefs.available=0.0%", "nodefs.available<0%");
    check("hard nodefs.available=99.9%", "nodefs.available<99.9%");
}

#[test]
fn soft_threshold_with_zero_period_is_hard() {
    let text = "soft memory.available=1Gi; grace memory.available=0s; pods";
    check(
        text,
        "memory.available<1Gi for 0s, allocatableMemory.available<1Gi",
    );
    let thresholds = parse_thresholds(text).expect("valid");
    assert!(thresholds.iter().all(crate::Threshold::is_hard));
}

#[test]
fn allocatable_memory_follows_hard_memory_threshold() {
    check(
        "hard memory.available=5%; pods",
        "memory.available<5%, allocatableMemory.available<5%",
    );
    check(
        "soft memory.available=5%; grace memory.available=1m; pods",
        "memory.available<5% for 1m0s",
    );
    check("hard nodefs.available=5%; pods", "nodefs.available<5%");
}

#[test]
fn minimum_reclaim_belongs_to_all_thresholds_of_signal() {
    let thresholds = parse_thresholds(
        "hard memory.available=100Mi; soft memory.available=1Gi; grace memory.available=1m; \
         reclaim memory.available=50Mi; pods",
    )
    .expect("valid");
    let resolved: Vec<String> = thresholds
        .iter()
        .map(|t| t.resolved_at(1 << 30).to_string())
        .collect();
    assert_eq!(resolved, ["150Mi", "150Mi", "1074Mi"]);
}

#[test]
fn all_errors_are_reported_with_field_and_fix() {
    check(
        "hard bogus=5%",
        "evictionHard: must be one of memory.available, allocatableMemory.available, \
         nodefs.available, nodefs.inodesFree, imagefs.available, imagefs.inodesFree, \
         containerfs.available, containerfs.inodesFree, pid.available, got \"bogus\"",
    );
    check(
        "hard memory.available=lots; hard nodefs.available=-1Gi; hard pid.available=101%; \
         hard imagefs.available=0; hard imagefs.inodesFree=-1%; hard nodefs.inodesFree=NaN%",
        "evictionHard: imagefs.available: invalid value \"0\", not more than 0; set for example \
         100Mi or 5% | evictionHard: imagefs.inodesFree: invalid value \"-1%\", less than 0%; set \
         for example 100Mi or 5% | evictionHard: memory.available: invalid value \"lots\"; set for \
         example 100Mi or 5% | evictionHard: nodefs.available: invalid value \"-1Gi\", not more \
         than 0; set for example 100Mi or 5% | evictionHard: nodefs.inodesFree: invalid value \
         \"NaN%\"; set for example 100Mi or 5% | evictionHard: pid.available: invalid value \
         \"101%\", more than 100%; set for example 100Mi or 5%",
    );
    check(
        "soft memory.available=5%; grace nodefs.available=soon; grace pid.available=-1s; \
         reclaim memory.available=0%; reclaim nodefs.available=-1",
        "evictionSoftGracePeriod: nodefs.available: invalid value \"soon\"; set for example 90s | \
         evictionSoftGracePeriod: pid.available: invalid value \"-1s\", less than 0; set for \
         example 90s | evictionMinimumReclaim: memory.available: invalid value \"0%\", not more \
         than 0%; set for example 100Mi or 5% | evictionMinimumReclaim: nodefs.available: invalid \
         value \"-1\", less than 0; set for example 100Mi or 5% | evictionSoft: memory.available \
         requires a period in evictionSoftGracePeriod, for example 90s",
    );
}

#[test]
fn container_fs_thresholds_follow_file_system() {
    let config = "hard nodefs.available=10%; hard nodefs.inodesFree=5%; \
                  hard imagefs.available=15%; soft imagefs.available=20%; \
                  grace imagefs.available=1m; \
                  hard containerfs.available=50%; soft containerfs.inodesFree=50%; \
                  grace containerfs.inodesFree=1m";
    let thresholds = parse_thresholds(config).expect("valid");
    let container_fs = |file_systems| {
        let all = thresholds.with_container_fs(file_systems).to_string();
        let of_container_fs = all.split(", ").filter(|t| t.starts_with("containerfs"));
        of_container_fs.collect::<Vec<_>>().join(", ")
    };
    let of_node = "containerfs.available<10%, containerfs.inodesFree<5%";
    assert_eq!(container_fs(FileSystems::Shared), of_node);
    assert_eq!(container_fs(FileSystems::SplitImages), of_node);
    assert_eq!(
        container_fs(FileSystems::SeparateImages),
        "containerfs.available<15%, containerfs.available<20% for 1m0s"
    );
}

#[test]
fn soft_threshold_below_hard_one_is_found() {
    let check = |soft: &str, hard: &str, expected: bool| {
        let config = format!(
            "soft pid.available={soft}; grace pid.available=1m; hard pid.available={hard}; \
             hard nodefs.available=90%"
        );
        let thresholds = parse_thresholds(&config).expect("valid");
        assert_eq!(thresholds.unreachable().count() == 1, expected, "{config}");
    };
    check("50", "100", true);
    check("100", "100", true);
    check("101", "100", false);
    check("5%", "10%", true);
    check("11%", "10%", false);
    // without the capacity a share and a quantity cannot be compared
    check("5%", "100", false);
}

#[test]
fn share_is_resolved_in_single_precision() {
    let thresholds = parse_thresholds("hard nodefs.available=15%").expect("valid");
    let threshold = thresholds.iter().next().expect("one");
    // int64(float64(capacity) * float64(float32(15)/100))
    assert_eq!(threshold.quantity(100_000_000_000).value(), 15_000_000_596);
    assert_eq!(threshold.quantity(0).value(), 0);
    assert_eq!(
        threshold.quantity(u64::MAX).value(),
        2_767_011_721_007_595_520
    );
}

#[test]
fn signals_have_resource_and_condition() {
    let line = |signal: Signal| format!("{signal} {} {}", signal.resource(), signal.condition());
    let lines: Vec<String> = Signal::ALL.into_iter().map(line).collect();
    let expected = [
        "memory.available memory MemoryPressure",
        "allocatableMemory.available memory MemoryPressure",
        "nodefs.available ephemeral-storage DiskPressure",
        "nodefs.inodesFree inodes DiskPressure",
        "imagefs.available ephemeral-storage DiskPressure",
        "imagefs.inodesFree inodes DiskPressure",
        "containerfs.available ephemeral-storage DiskPressure",
        "containerfs.inodesFree inodes DiskPressure",
        "pid.available pids PIDPressure",
    ];
    assert_eq!(lines, expected);
    for signal in Signal::ALL {
        assert_eq!(signal.as_str().parse(), Ok(signal));
    }
    assert_eq!(
        NodeCondition::ALL.map(NodeCondition::as_str).join(" "),
        "MemoryPressure DiskPressure PIDPressure"
    );
}
