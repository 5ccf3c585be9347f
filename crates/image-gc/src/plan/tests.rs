//! Images to remove, by age and by disk usage.

use super::*;

const MINUTE: i64 = 60;
const MIB: u64 = 1 << 20;

fn at(minutes: i64) -> Timestamp {
    Timestamp::from_second(minutes * MINUTE).expect("in range")
}

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(minutes * 60)
}

/// `id[/pinned][:size in MiB]`
fn image(text: &str) -> ImageInfo {
    let (name, size) = text.split_once(':').unwrap_or((text, "1"));
    let (id, flag) = name.split_once('/').unwrap_or((name, ""));
    ImageInfo {
        id: id.to_owned(),
        size: size.parse::<u64>().expect("a number") * MIB,
        pinned: flag == "pinned",
        ..ImageInfo::default()
    }
}

/// `id@detected[-used]` in minutes.
fn uses(text: &str) -> ImageUses {
    let one = |text: &str| {
        let (id, times) = text.split_once('@').expect("times");
        let (detected, used) = match times.split_once('-') {
            Some((detected, used)) => (detected, Some(used)),
            None => (times, None),
        };
        let time = |text: &str| at(text.parse().expect("a number"));
        let times = ImageUse {
            first_detected: time(detected),
            last_used: used.map(time),
        };
        (id.to_owned(), times)
    };
    text.split_whitespace().map(one).collect()
}

fn lines(uses: &ImageUses) -> String {
    let one = |(id, times): (&String, &ImageUse)| {
        let minute = |at: Timestamp| at.as_second() / MINUTE;
        let used = times.last_used.map(|at| format!("-{}", minute(at)));
        let detected = minute(times.first_detected);
        format!("{id}@{detected}{}", used.unwrap_or_default())
    };
    uses.iter().map(one).collect::<Vec<_>>().join(" ")
}

#[test]
fn disk_usage_is_compared_with_thresholds() {
    let check = |(capacity, available): (u64, u64), expected: &str| {
        let disk = DiskSpace {
            capacity,
            available,
            ..DiskSpace::default()
        };
        let decision = SpaceDecision::new(disk, &ImageGcPolicy::default());
        assert_eq!(decision.to_string(), expected, "{available} of {capacity}");
    };
    check((1000, 1000), "enough (0% used)");
    check((1000, 160), "enough (84% used)");
    // 15.9 % free counts as 15 %
    check((1000, 159), "free 41 bytes (85% used)");
    check((1000, 150), "free 50 bytes (85% used)");
    check((1000, 0), "free 200 bytes (100% used)");
    check((1000, 2000), "enough (0% used)");
    check((0, 0), "no capacity");
    check((0, 10), "no capacity");
    check((u64::MAX, 0), "free 3689348814741910323 bytes (100% used)");
}

#[test]
fn hundred_percent_threshold_needs_a_full_disk() {
    let policy = ImageGcPolicy {
        high_threshold_percent: 100,
        max_age: minutes(1),
        ..ImageGcPolicy::default()
    };
    let disk = |available| DiskSpace {
        capacity: 1000,
        available,
        ..DiskSpace::default()
    };
    let line = |available| SpaceDecision::new(disk(available), &policy).to_string();
    assert_eq!(line(10), "enough (99% used)");
    assert_eq!(line(9), "free 191 bytes (100% used)");
    assert!(!policy.is_off());
    let off = ImageGcPolicy {
        max_age: Duration::ZERO,
        ..policy
    };
    assert!(off.is_off() && !ImageGcPolicy::default().is_off());
}

#[test]
fn detection_records_present_and_used_images() {
    let check = |before: &str, images: &str, used: &[&str], expected: &str| {
        let images: Vec<_> = images.split_whitespace().map(image).collect();
        let used = used.iter().map(|id| (*id).to_owned()).collect();
        let mut found = uses(before);
        detect(&mut found, &images, &used, at(10));
        assert_eq!(lines(&found), expected);
    };
    check("", "a b", &[], "a@10 b@10");
    check("", "a b", &["b"], "a@10 b@10-10");
    check("a@1-2 b@3", "a b", &["a"], "a@1-10 b@3");
    // removed by the user
    check("a@1-2 b@3", "b", &[], "b@3");
    check("a@1", "", &["a"], "");
    // the clock was set back
    check("a@30-40", "a", &[], "a@10-10");
}

#[test]
fn removable_images_are_ordered_by_last_use() {
    let check = |images: &str, uses_text: &str, used: &[&str], expected: &str| {
        let images: Vec<_> = images.split_whitespace().map(image).collect();
        let used = used.iter().map(|id| (*id).to_owned()).collect();
        let time = PassTime {
            now: at(100),
            running: minutes(100),
        };
        let policy = ImageGcPolicy::default();
        let order = removal_order(&uses(uses_text), &images, &used, &policy, time);
        assert_eq!(order.to_string(), expected);
    };
    check("", "", &[], "expired() for-space()");
    check("a b", "a@1-50 b@1-40", &[], "expired() for-space(b a)");
    // never used first, then by detection
    check("a b c", "a@1-2 b@9 c@8", &[], "expired() for-space(c b a)");
    check("a b", "a@2-40 b@1-40", &[], "expired() for-space(b a)");
    // equal times: the larger one
    check("a:1 b:9", "a@1 b@1", &[], "expired() for-space(b a)");
    check("a b", "a@1 b@1-100", &["b"], "expired() for-space(a)");
    check("a/pinned b", "a@1 b@1", &[], "expired() for-space(b)");
    // younger than two minutes
    check("a b c", "a@99 b@98 c@100", &[], "expired() for-space(b)");
}

#[test]
fn images_expire_after_maximum_age() {
    let check = |max_age: u64, running: u64, uses_text: &str, expected: &str| {
        let found = uses(uses_text);
        let images: Vec<_> = found.keys().map(|id| image(id)).collect();
        let policy = ImageGcPolicy {
            max_age: minutes(max_age),
            ..ImageGcPolicy::default()
        };
        let time = PassTime {
            now: at(100),
            running: minutes(running),
        };
        let order = removal_order(&found, &images, &BTreeSet::new(), &policy, time);
        assert_eq!(order.to_string(), expected);
    };
    check(0, 100, "a@1-1", "expired() for-space(a)");
    check(50, 100, "a@1-50 b@1-49", "expired(b) for-space(a)");
    // never used: since it was detected
    check(50, 100, "a@50 b@49", "expired(b) for-space(a)");
    // kept times count after a restart, but not at once
    check(50, 4, "a@1-1", "expired() for-space(a)");
    check(50, 5, "a@1-1", "expired(a) for-space()");
    check(1, 1, "a@1-1", "expired(a) for-space()");
    check(1, 0, "a@1-1", "expired() for-space()");
    // the minimum age counts from the start
    check(0, 1, "a@1-1", "expired() for-space()");
    check(0, 2, "a@1-1", "expired() for-space(a)");
}

#[test]
fn used_images_are_found_by_every_kind_of_reference() {
    let images = [
        ImageInfo {
            id: "sha256:aa".into(),
            repo_tags: vec!["docker.io/library/web:1".into()],
            repo_digests: vec!["docker.io/library/web@sha256:m1".into()],
            ..ImageInfo::default()
        },
        ImageInfo {
            id: "sha256:bb".into(),
            repo_tags: vec!["quay.io/a/b:2".into()],
            ..ImageInfo::default()
        },
    ];
    let check = |reference: &str, expected: &[&str]| {
        let found = used_images(&images, [reference]);
        assert!(found.iter().eq(expected), "{reference}: {found:?}");
    };
    for reference in [
        "sha256:aa",
        "aa",
        "docker.io/library/web@sha256:m1",
        "docker.io/library/web:1",
        "web:1",
    ] {
        check(reference, &["sha256:aa"]);
    }
    check("quay.io/a/b:2", &["sha256:bb"]);
    check("b:2", &[]);
    check("web:2", &[]);
    check("", &[]);
}

#[test]
fn messages_are_those_of_upstream() {
    assert_eq!(
        insufficient_space(91, 53_687_091_200, 1024),
        "Insufficient free disk space on the node's image filesystem (91% of 50.0 GiB used). \
         Failed to free sufficient space by deleting unused images (freed 1024 bytes). \
         Investigate disk usage, as it could be used by active images, logs, volumes, or other data."
    );
    for (bytes, expected) in [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (5 << 20, "5.0 MiB"),
        (3 << 40, "3.0 TiB"),
        (3 << 50, "3072.0 TiB"),
    ] {
        assert_eq!(size_text(bytes), expected);
    }
    let errors = |texts: &[&str]| {
        texts
            .iter()
            .map(|text| (*text).to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(aggregate(&errors(&["busy", "busy"])), "busy");
    assert_eq!(aggregate(&errors(&["busy", "gone"])), "[busy, gone]");
}
