//! Tables of paths.

use super::*;

fn pod(name: &str) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = Some(name.to_owned());
    pod.metadata.namespace = Some("default".to_owned());
    pod.metadata.uid = Some("u-1".to_owned());
    pod
}

fn check(path: PathBuf, expected: &str) {
    assert_eq!(path.display().to_string(), expected);
}

#[test]
fn paths_match_upstream() {
    let paths = NodePaths::default();
    let uid = PodUid::from("u-1");
    check(paths.pod_dir(&uid), "/var/lib/kubelet/pods/u-1");
    check(
        paths.pod_volume_dir(&uid, "kubernetes.io/empty-dir", "data"),
        "/var/lib/kubelet/pods/u-1/volumes/kubernetes.io~empty-dir/data",
    );
    check(paths.etc_hosts(&uid), "/var/lib/kubelet/pods/u-1/etc-hosts");
    check(
        paths.termination_log(&uid, "web", 0xbeef),
        "/var/lib/kubelet/pods/u-1/containers/web/0000beef",
    );
    check(paths.pod_log_dir(&pod("p")), "/var/log/pods/default_p_u-1");
    check(
        paths.container_log(&pod("p"), "web", 3),
        "/var/log/pods/default_p_u-1/web/3.log",
    );
}

#[test]
fn log_symlink_is_truncated_to_max_file_name() {
    let id = ContainerId::from("0123");
    check(
        log_symlink(&pod("p"), "web", &id),
        "/var/log/containers/p_default_web-0123.log",
    );
    let long = log_symlink(&pod(&"x".repeat(300)), "web", &id);
    let name = long
        .file_name()
        .expect("name")
        .to_string_lossy()
        .into_owned();
    assert_eq!(name.len(), 255);
    assert!(name.ends_with("x.log"), "{name}");
}

#[test]
fn restart_count_is_one_more_than_the_highest_log() {
    let check = |names: &[&str], expected| {
        assert_eq!(
            restart_count_from_logs(names.iter().copied()),
            expected,
            "{names:?}"
        );
    };
    check(&[], 0);
    check(&["0.log"], 1);
    check(&["0.log", "12.log", "3.log"], 13);
    check(&["1.log", "4.log.20261121-030000.gz"], 5);
    check(
        &["notes.txt", "x.log", ".log", "+7.log", "5.logs", "9.log2"],
        0,
    );
}

#[test]
fn restart_count_is_recoverable_without_its_own_log() {
    let check = |names: &[&str], count, expected| {
        let names = names.iter().copied();
        let recoverable = is_recoverable_without_log(names.clone(), count);
        assert_eq!(recoverable, expected, "{names:?} {count}");
    };
    check(&[], 0, true);
    check(&["0.log", "0.log.20261121-030000.gz"], 0, true);
    check(&["2.log", "3.log"], 3, true);
    check(&["2.log.20261121-030000", "3.log"], 3, true);
    // it would go back
    check(&["3.log"], 3, false);
    check(&["1.log", "3.log"], 3, false);
    // it would still be higher
    check(&["3.log", "4.log"], 3, false);
}

#[test]
fn names_with_path_separators_are_rejected() {
    for name in ["", ".", "..", "a/b", "../x", "a\0b"] {
        assert!(check_component("container name", name).is_err(), "{name:?}");
    }
    let mut bad = pod("p");
    bad.metadata.uid = Some("../../etc".to_owned());
    assert_eq!(
        check_pod_names(&bad).expect_err("unsafe").to_string(),
        "metadata.uid \"../../etc\" cannot be used as a file name"
    );
    assert!(check_pod_names(&pod("p")).is_ok());
}
