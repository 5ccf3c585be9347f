//! Parsing of command lines.

use std::ffi::OsString;

use windlass_eviction::MemoryRule;

use super::KubeletFlags;
use super::mirror::MIRRORS;
use crate::fields;

/// Settings of a command line, or the first line of the error.
fn check(args: &[&str], expected: &str) {
    let args = std::iter::once("windlass").chain(args.iter().copied());
    let line = match KubeletFlags::from_args(args.map(OsString::from)) {
        Ok(flags) => flags
            .config
            .0
            .iter()
            .map(|setting| format!("{}={}", setting.path, setting.value))
            .collect::<Vec<_>>()
            .join(" "),
        Err(error) => error
            .to_string()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned(),
    };
    assert_eq!(line, expected);
}

#[test]
fn pflag_spellings_are_accepted() {
    check(&["--max-pods=20"], "maxPods=20");
    check(&["--max-pods", "20"], "maxPods=20");
    check(&["--max_pods=20"], "maxPods=20");
    check(&["--max-pods=20", "--max-pods=30"], "maxPods=30");
    check(&["--oom-score-adj", "-500"], "oomScoreAdj=-500");
    check(&["--fail-swap-on"], "failSwapOn=true");
    check(&["--fail-swap-on=false"], "failSwapOn=false");
    check(&["--fail-swap-on=F"], "failSwapOn=false");
    check(&["-v4"], "logging.verbosity=4");
    check(&["-v=4"], "logging.verbosity=4");
    check(&["-v", "4"], "logging.verbosity=4");
    check(&["--v=4"], "logging.verbosity=4");
    check(&["--pod-manifest-path="], "staticPodPath=\"\"");
    check(&["--resolv-conf", ""], "resolvConf=\"\"");
}

#[test]
fn flag_values_are_converted_to_field_types() {
    check(&["--sync-frequency=90s"], "syncFrequency=\"1m30s\"");
    check(
        &[
            "--cluster-dns=10.96.0.10,10.96.0.11",
            "--cluster-dns=fd00::a",
        ],
        "clusterDNS=[\"10.96.0.10\",\"10.96.0.11\",\"fd00::a\"]",
    );
    check(
        &[
            "--feature-gates=EventedPLEG=true",
            "--feature-gates",
            "PodsAPI=0",
        ],
        "featureGates={\"EventedPLEG\":true,\"PodsAPI\":false}",
    );
    check(
        &["--eviction-hard=memory.available<200Mi,nodefs.available<5%"],
        "evictionHard={\"memory.available\":\"200Mi\",\"nodefs.available\":\"5%\"}",
    );
    check(
        &["--manifest-url-header=a:hello,b:again,a:world"],
        "staticPodURLHeader={\"a\":[\"hello\",\"world\"],\"b\":[\"again\"]}",
    );
    check(
        &["--register-with-taints=dedicated=web:NoSchedule,gone:NoExecute"],
        "registerWithTaints=[{\"effect\":\"NoSchedule\",\"key\":\"dedicated\",\"value\":\"web\"},\
         {\"effect\":\"NoExecute\",\"key\":\"gone\",\"value\":\"\"}]",
    );
    check(
        &["--reserved-memory=0:memory=1Gi,hugepages-2Mi=4Mi;1:memory=2Gi"],
        "reservedMemory=[{\"limits\":{\"hugepages-2Mi\":\"4Mi\",\"memory\":\"1Gi\"},\"numaNode\":0},\
         {\"limits\":{\"memory\":\"2Gi\"},\"numaNode\":1}]",
    );
    check(
        &["--vmodule=cri*=6"],
        "logging.vmodule=[{\"filePattern\":\"cri*\",\"verbosity\":6}]",
    );
}

#[test]
fn invalid_flag_or_value_is_reported() {
    check(
        &["--sync-frequency=10"],
        "error: invalid value '10' for '--sync-frequency <DURATION>': \"10\" is not a duration: \
         write a number with a unit, for example 10s, 1m30s or 500ms",
    );
    check(
        &["--fail-swap-on=maybe"],
        "error: invalid value 'maybe' for '--fail-swap-on[=<BOOL>]': must be true or false",
    );
    check(
        &["--no-such-flag"],
        "error: unexpected argument '--no-such-flag' found",
    );
    check(&["run"], "error: unexpected argument 'run' found");
}

#[test]
fn flags_without_field_are_parsed() {
    let args = [
        "kubelet",
        "--root-dir=/tmp/x",
        "--node-labels=a=b,c=d",
        "--start_concurrency=4",
        "--exec-needs-create=false",
        "--memory-eviction-rule=upstream",
        "--start-pods-offline",
        "--maximum-dead-containers=-1",
        "--minimum-container-ttl-duration=1m",
        "--exit-on-lock-contention",
        "--version=raw",
        "--pod-infra-container-image=pause:3",
        "--log-cadvisor-usage",
        "--storage-driver-db=x",
    ];
    let flags = KubeletFlags::from_args(args.map(OsString::from)).expect("valid");
    assert_eq!(flags.root_dir.to_str(), Some("/tmp/x"));
    assert_eq!(flags.node_labels.map(|l| l.0.len()), Some(2));
    assert_eq!(flags.start_concurrency, 4);
    assert!(!flags.exec_needs_create);
    assert!(KubeletFlags::default().exec_needs_create);
    assert_eq!(flags.memory_eviction_rule, MemoryRule::Upstream);
    let rule = KubeletFlags::default().memory_eviction_rule;
    assert_eq!(rule, MemoryRule::ReclaimableAware);
    assert!(flags.start_pods_offline);
    assert!(!KubeletFlags::default().start_pods_offline);
    assert_eq!(flags.minimum_container_ttl_duration.to_string(), "1m0s");
    assert!(flags.exit_on_lock_contention);
    assert_eq!(flags.version.as_deref(), Some("raw"));
    assert_eq!(
        flags.ignored.0,
        [
            "log-cadvisor-usage",
            "pod-infra-container-image",
            "storage-driver-db"
        ]
    );
}

#[test]
fn every_mirrored_field_exists() {
    for mirror in MIRRORS {
        assert!(fields::find(mirror.path).is_some(), "{}", mirror.path);
    }
}
