//! Order of eviction by signal.

use super::rank;
use crate::layout::FileSystems;
use crate::test_figures::pods;

fn check_on(file_systems: FileSystems, signal: &str, lines: &[&str], expected: &str) {
    let pods = pods(lines);
    let signal = signal.parse().expect("a signal");
    let ranked = rank(signal, file_systems, &pods);
    let names: Vec<&str> = ranked.iter().map(|(pod, _)| pod.name.as_str()).collect();
    assert_eq!(names.join(" "), expected, "{signal} {lines:?}");
}

fn check(signal: &str, lines: &[&str], expected: &str) {
    check_on(FileSystems::Shared, signal, lines, expected);
}

#[test]
fn memory_ranks_by_request_priority_and_overage() {
    let memory = "memory.available";
    // above the request before within it, whatever the priority
    check(
        memory,
        &[
            "within memory=1Gi/2Gi",
            "above memory=11Mi/10Mi priority=1000",
        ],
        "above within",
    );
    // exactly the request is within it
    check(
        memory,
        &["a memory=10Mi/10Mi priority=-1", "b memory=11Mi/10Mi"],
        "b a",
    );
    // then the priority
    check(
        memory,
        &[
            "high memory=4Gi priority=10",
            "low memory=1Mi priority=-10",
            "none memory=1Gi",
        ],
        "low none high",
    );
    // then what is above the request, not the usage
    check(
        memory,
        &["big memory=4Gi/3.9Gi", "small memory=1Gi/100Mi"],
        "small big",
    );
    // within the request: the one closest to it
    check(memory, &["a memory=1Gi/4Gi", "b memory=1Gi/2Gi"], "b a");
    // as upstream, a pod without memory stats uses nothing
    check(memory, &["a", "b memory=1Mi"], "b a");
    check(
        "allocatableMemory.available",
        &["a memory=1Mi", "b memory=2Mi"],
        "b a",
    );
}

#[test]
fn unmeasured_pod_ranks_first() {
    check(
        "memory.available",
        &[
            "hog memory=4Gi priority=-10",
            "b unmeasured priority=5",
            "a unmeasured priority=6",
        ],
        "b a hog",
    );
    check("pid.available", &["a processes=5", "b unmeasured"], "b a");
    // for processes the priority comes first
    check(
        "pid.available",
        &["a processes=5 priority=-1", "b unmeasured"],
        "a b",
    );
}

#[test]
fn processes_rank_by_priority_and_number() {
    check(
        "pid.available",
        &[
            "few processes=1",
            "bomb processes=30000",
            "low processes=2 priority=-5",
        ],
        "low bomb few",
    );
}

#[test]
fn inodes_rank_by_use_and_ignore_storage_request() {
    check(
        "nodefs.inodesFree",
        &[
            "bytes layer=1Gi:10",
            "files layer=1Mi:90000",
            "none layer=1Gi:0 priority=-5",
        ],
        "files bytes none",
    );
    // upstream subtracts bytes of the request from inodes here
    check(
        "nodefs.inodesFree",
        &["a storage=0/1Gi layer=1:90000", "b layer=1:10"],
        "a b",
    );
}

#[test]
fn storage_ranks_by_request_priority_and_overage() {
    check(
        "nodefs.available",
        &[
            "within storage=0/4Gi layer=3Gi",
            "above storage=0/1Gi layer=1.5Gi priority=7",
            "free volumes=100Mi priority=7",
        ],
        "above free within",
    );
}

#[test]
fn parts_of_disk_usage_follow_file_systems() {
    use FileSystems::{SeparateImages, Shared, SplitImages};
    let lines = ["layer layer=3Gi", "logs logs=2Gi", "volumes volumes=1Gi"];
    let all = "layer logs volumes";
    let without_layer = "logs volumes layer";
    let only_layer = "layer logs volumes";
    let by_name = "a z";
    for signal in [
        "nodefs.available",
        "imagefs.available",
        "containerfs.available",
    ] {
        check_on(Shared, signal, &lines, all);
    }
    check_on(SeparateImages, "nodefs.available", &lines, without_layer);
    check_on(SeparateImages, "imagefs.available", &lines, only_layer);
    check_on(SeparateImages, "containerfs.available", &lines, only_layer);
    check_on(SplitImages, "nodefs.available", &lines, all);
    check_on(SplitImages, "containerfs.available", &lines, all);
    // nothing of a pod is on the file system of images
    check_on(
        SplitImages,
        "imagefs.available",
        &["z layer=1Gi", "a logs=1"],
        by_name,
    );
    check_on(
        SeparateImages,
        "imagefs.available",
        &["z volumes=1Gi", "a logs=1"],
        by_name,
    );
}

#[test]
fn critical_and_evicted_pods_are_left_out() {
    check(
        "memory.available",
        &[
            "critical memory=4Gi critical",
            "gone memory=2Gi evicted",
            "web memory=1Mi",
        ],
        "web",
    );
}

#[test]
fn order_of_equal_pods_is_that_of_their_names() {
    let lines = ["c memory=1Mi", "a memory=1Mi", "b memory=1Mi"];
    check("memory.available", &lines, "a b c");
    let reversed = ["b memory=1Mi", "a memory=1Mi", "c memory=1Mi"];
    check("memory.available", &reversed, "a b c");
}

#[test]
fn huge_usage_does_not_overflow() {
    let max = format!("huge memory={}", i64::MAX);
    check(
        "memory.available",
        &["web memory=1Mi/1Gi", &max],
        "huge web",
    );
}

#[test]
fn ranking_is_independent_of_input_order() {
    let lines = [
        "a memory=5Mi/1Mi priority=3",
        "b memory=5Mi/9Mi priority=-3",
        "c unmeasured",
        "d memory=900Mi",
        "e memory=900Mi/800Mi",
        "f memory=1Gi/2Gi priority=100",
    ];
    for shift in 0..lines.len() {
        let mut rotated = lines;
        rotated.rotate_left(shift);
        check("memory.available", &rotated, "c d e a b f");
        rotated.reverse();
        check("memory.available", &rotated, "c d e a b f");
    }
}
