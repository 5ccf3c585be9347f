//! Tables of sockets, versions and names.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{
    PluginVersion, SocketId, check_driver_name, highest_supported_version, plan_sockets,
    retry_delay,
};

#[test]
fn socket_plan_has_new_replaced_and_removed_sockets() {
    fn check(known: &[(&str, u64)], found: &[(&str, u64)], expected: &str) {
        let sockets = |all: &[(&str, u64)]| -> BTreeMap<_, _> {
            let id = |inode| SocketId {
                inode,
                modified: (7, 0),
            };
            let all = all.iter();
            all.map(|(path, inode)| (PathBuf::from(path), id(*inode)))
                .collect()
        };
        let plan = plan_sockets(&sockets(known), &sockets(found));
        assert_eq!(plan.to_string(), expected);
    }
    check(&[], &[], "nothing");
    check(&[("/a", 1)], &[("/a", 1)], "nothing");
    check(&[], &[("/a", 1), ("/b", 2)], "+/a +/b");
    check(&[("/a", 1)], &[], "-/a");
    check(&[("/a", 1)], &[("/a", 2)], "+/a");
    check(
        &[("/a", 1), ("/b", 1)],
        &[("/b", 3), ("/c", 1)],
        "-/a +/b +/c",
    );
}

#[test]
fn socket_with_reused_inode_differs_by_time() {
    let socket = |seconds| {
        let id = SocketId {
            inode: 1,
            modified: (seconds, 0),
        };
        BTreeMap::from([(PathBuf::from("/a"), id)])
    };
    assert_eq!(plan_sockets(&socket(1), &socket(2)).to_string(), "+/a");
}

#[test]
fn retry_delays_double_up_to_maximum() {
    let pauses: Vec<_> = (1..11).map(|n| retry_delay(n).as_millis()).collect();
    assert_eq!(
        pauses,
        [
            500, 1000, 2000, 4000, 8000, 16000, 32000, 64000, 122000, 122000
        ]
    );
}

#[test]
fn highest_version_below_2_must_be_1() {
    fn check(versions: &[&str], expected: Result<&str, &str>) {
        let versions: Vec<_> = versions.iter().map(|&it| it.to_owned()).collect();
        let found = highest_supported_version(&versions).map(|version| version.to_string());
        match (&found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(found), Err(expected)) => assert!(found.contains(expected), "{found}"),
            _ => panic!("{versions:?}: {found:?}"),
        }
    }
    check(&["1.0.0"], Ok("1.0.0"));
    check(&["v1.2", "1.10.0", "1.9.7-rc1"], Ok("1.10.0"));
    check(&["0.3.0", "1.0.0", "2.0.0"], Ok("1.0.0"));
    check(&["1.2.0+build.7"], Ok("1.2.0"));
    check(&["0.3.0", "0.2.1"], Err("is 0.3.0, must be v1.x"));
    check(
        &["2.0.0"],
        Err("could not find a highest supported version"),
    );
    check(
        &["1", "banana", "1.01", "99999999999999999999.1"],
        Err("(1 banana 1.01"),
    );
    check(&[], Err("could not find"));
}

#[test]
fn versions_compare_by_number() {
    let version = |text| PluginVersion::parse(text).expect("a version");
    assert!(version("1.9") < version("1.10"));
    assert!(version("1.0") == version("v1.0.0"));
    assert!(version("1.0.1") > version("1.0"));
}

#[test]
fn driver_names_must_be_dns_subdomains() {
    for name in ["ebs.csi.aws.com", "a", "Driver-1.Example.com"] {
        assert_eq!(check_driver_name(name), Ok(()), "{name}");
    }
    let long = "a".repeat(64);
    for name in [
        "", ".", "..", "../x", "a/b", "-a", "a-", "a..b", "a_b", "ä", "a\n", &long,
    ] {
        assert!(check_driver_name(name).is_err(), "{name:?}");
    }
}
