//! Watch events by what they make the source say.

use windlass_types::{Pod, names};

use super::state::{ApiPods, Say};

/// `a` is a pod, `m*` a mirror pod, `a!` another version of it.
fn pod(word: &str) -> Pod {
    let uid = word.trim_end_matches('!');
    let mut pod = Pod::default();
    pod.metadata.uid = Some(uid.to_owned());
    if word.ends_with('!') {
        pod.metadata.resource_version = Some("2".to_owned());
    }
    if uid.starts_with('m') {
        let mirror = (names::ANN_CONFIG_MIRROR.to_owned(), "hash".to_owned());
        pod.metadata.annotations = Some([mirror].into());
    }
    pod
}

fn check(script: &[(&str, &str, &str)]) {
    let mut pods = ApiPods::default();
    for (event, words, expected) in script {
        let all: Vec<Pod> = words.split_whitespace().map(pod).collect();
        let say = match *event {
            "synced" => pods.synced(all),
            "applied" => all.into_iter().flat_map(|p| pods.applied(p)).collect(),
            _ => all.into_iter().flat_map(|p| pods.deleted(p)).collect(),
        };
        let line: Vec<_> = say.iter().map(Say::to_string).collect();
        assert_eq!(line.join(" "), *expected, "{event} {words}");
    }
}

#[test]
fn storage_hears_of_pods_and_the_status_manager_of_mirror_pods_too() {
    check(&[
        ("synced", "a m1", "seen(a) seen(m1) SET[a]"),
        ("applied", "b", "seen(b) UPDATE[b]"),
        ("applied", "m2", "seen(m2)"),
        ("deleted", "m2", "gone(m2)"),
        ("deleted", "a", "gone(a) REMOVE[a]"),
    ]);
}

#[test]
fn a_relist_says_only_what_changed_and_the_whole_set() {
    check(&[
        ("synced", "", "SET[]"),
        ("synced", "a b", "seen(a) seen(b) SET[a b]"),
        ("synced", "a b! c", "seen(b) seen(c) SET[a b c]"),
        ("synced", "c", "gone(a) gone(b) SET[c]"),
    ]);
}

#[test]
fn a_deletion_that_is_repeated_says_nothing() {
    check(&[
        ("synced", "a", "seen(a) SET[a]"),
        ("deleted", "a", "gone(a) REMOVE[a]"),
        ("deleted", "a", ""),
    ]);
}
