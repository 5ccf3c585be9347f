//! Policies, records and the decision.

use windlass_types::cri::{ImageAuth, ImageInfo};

use super::*;
use crate::credentials::ObjectCoordinates;

fn name(image: &str) -> ImageName {
    ImageName::parse(image).expect("name")
}

fn credentials(secret: Option<&str>, password: &str) -> TrackedAuth {
    TrackedAuth {
        auth: ImageAuth {
            username: "ann".to_owned(),
            password: password.to_owned(),
            ..ImageAuth::default()
        },
        source: secret.map(|name| CredentialSource::Secret(coordinates(name))),
    }
}

fn coordinates(name: &str) -> ObjectCoordinates {
    ObjectCoordinates {
        uid: format!("uid-{name}"),
        namespace: "team".to_owned(),
        name: name.to_owned(),
    }
}

/// Credentials that a plugin returned for a service account.
fn of_account(name: &str, password: &str) -> TrackedAuth {
    TrackedAuth {
        source: Some(CredentialSource::ServiceAccount(coordinates(name))),
        ..credentials(None, password)
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("time")
}

fn record(image: &str, used: Option<&TrackedAuth>) -> ImagePulledRecord {
    let credentials = Some(ImagePullCredentials::for_pull(used));
    ImagePulledRecord::after_pull(None, &name(image), "sha256:1", credentials, at(1)).expect("new")
}

#[test]
fn image_access_by_history_and_credentials() {
    let policy = VerificationPolicy::default();
    let own = credentials(Some("own"), "p");
    let pulled = |image, used| PullHistory::Pulled(record(image, used));
    let unknown = ImagePulledRecord::after_pull(None, &name("r.io/a"), "sha256:1", None, at(1));
    let unknown = PullHistory::Pulled(unknown.expect("new"));
    let by_own = || pulled("r.io/a:1", Some(&own));
    let robot = of_account("robot", "p");
    let by_account = || pulled("r.io/a:1", Some(&robot));
    let anonymous = pulled("r.io/a:1", None);
    let node_credentials = credentials(None, "p");
    let by_node = pulled("r.io/a:1", Some(&node_credentials));
    let found = "credentialRecordFound";
    let must = "mustAuthenticate";
    for (case, history, pod, expected, adds) in [
        (
            "preloaded",
            PullHistory::None,
            vec![],
            "credentialPolicyAllowed",
            None,
        ),
        (
            "a pull that may have ended",
            PullHistory::Intent,
            vec![own.clone()],
            must,
            None,
        ),
        (
            "unreadable",
            PullHistory::Unreadable,
            vec![own.clone()],
            "error",
            None,
        ),
        (
            "unknown credentials",
            unknown,
            vec![own.clone()],
            must,
            None,
        ),
        ("anonymous", anonymous, vec![], found, None),
        ("the node's credentials", by_node, vec![], found, None),
        (
            "the same service account with a new password",
            by_account(),
            vec![of_account("robot", "q")],
            found,
            None,
        ),
        (
            "another service account with the same password",
            by_account(),
            vec![of_account("x", "p")],
            must,
            None,
        ),
        (
            "a secret with the password of a service account",
            by_account(),
            vec![own.clone()],
            must,
            None,
        ),
        (
            "a service account with the password of a secret",
            by_own(),
            vec![of_account("own", "p")],
            must,
            None,
        ),
        ("the same secret", by_own(), vec![own.clone()], found, None),
        ("no secret", by_own(), vec![], must, None),
        (
            "node credentials are not the pod's",
            by_own(),
            vec![credentials(None, "p")],
            must,
            None,
        ),
        (
            "another secret",
            by_own(),
            vec![credentials(Some("x"), "q")],
            must,
            None,
        ),
        (
            "its copy",
            by_own(),
            vec![credentials(Some("x"), "p")],
            found,
            Some("x"),
        ),
        (
            "a new password",
            by_own(),
            vec![credentials(Some("own"), "q")],
            found,
            Some("own"),
        ),
        (
            "another repository",
            pulled("r.io/b:1", None),
            vec![],
            must,
            None,
        ),
        (
            "another tag",
            pulled("r.io/a:2", Some(&own)),
            vec![own.clone()],
            found,
            None,
        ),
    ] {
        let access = image_access(&policy, &name("r.io/a:1"), &history, &pod);
        assert_eq!(access.to_string(), expected, "{case}");
        let added = match access {
            ImageAccess::Recorded { add } => add.map(|secret| secret.name),
            _ => None,
        };
        assert_eq!(added.as_deref(), adds, "{case}");
    }
}

#[test]
fn verification_policy_decides_which_images_are_verified() {
    let list = ["r.io/a".to_owned(), "r.io/team/*".to_owned()];
    for (policy, image, preloaded, pulled) in [
        ("NeverVerify", "r.io/a", true, true),
        ("NeverVerifyPreloadedImages", "r.io/a", true, false),
        ("AlwaysVerify", "r.io/a", false, false),
        ("NeverVerifyAllowlistedImages", "r.io/a:7", true, true),
        ("NeverVerifyAllowlistedImages", "r.io/team/x/y", true, true),
        ("NeverVerifyAllowlistedImages", "r.io/teams", false, false),
        ("NeverVerifyAllowlistedImages", "a", false, false),
    ] {
        let parsed = VerificationPolicy::from_config(policy, &list).expect("valid");
        for (history, allowed) in [
            (PullHistory::None, preloaded),
            (PullHistory::Intent, pulled),
        ] {
            let access = image_access(&parsed, &name(image), &history, &[]);
            assert_eq!(access.is_allowed(), allowed, "{policy} {image} {history:?}");
        }
    }
}

#[test]
fn allowlist_pattern_invalid_has_upstreams_text() {
    for (text, expected) in [
        ("docker.io/library/web", ""),
        ("r.io:5000/a", ""),
        ("r.io/*", ""),
        (
            " r.io/a",
            "leading/trailing spaces are not allowed:  r.io/a",
        ),
        ("", "the supplied pattern is too short: "),
        (
            "r.io/*/a",
            "not a valid wildcard pattern, only patterns ending with '/*' are allowed: r.io/*/a",
        ),
        (
            "r.io/a*",
            "not a valid wildcard pattern, only patterns ending with '/*' are allowed: r.io/a*",
        ),
        ("/*", "at least registry hostname is required"),
        (
            "r.io/a:1",
            "neither tag nor digest is accepted in an image reference: r.io/a:1",
        ),
        (
            "web",
            "neither tag nor digest is accepted in an image reference: web",
        ),
        (
            "r.io/A",
            "failed to parse as an image name: invalid reference format: repository name must be lowercase",
        ),
    ] {
        let error = AllowlistPattern::parse(text).err();
        let error = error.map_or(String::new(), |error| error.to_string());
        assert_eq!(error, expected, "{text:?}");
    }
}

#[test]
fn record_serialized_has_upstreams_form() {
    let secret = credentials(Some("s"), "p");
    let hash = credential_hash(&secret.auth);
    let json = serde_json::to_string(&record("web:1", Some(&secret))).expect("json");
    let expected = format!(
        "{{\"lastUpdatedTime\":\"1970-01-01T00:00:01Z\",\"imageRef\":\"sha256:1\",\
         \"credentialMapping\":{{\"docker.io/library/web\":{{\"kubernetesSecrets\":[{{\
         \"uid\":\"uid-s\",\"namespace\":\"team\",\"name\":\"s\",\"credentialHash\":\"{hash}\"}}]}}}}}}"
    );
    assert_eq!(json, expected);
    let json = serde_json::to_string(&record("web:1", None)).expect("json");
    assert!(json.ends_with("{\"nodePodsAccessible\":true}}}"), "{json}");
    let account = of_account("robot", "p");
    let json = serde_json::to_string(&record("web:1", Some(&account))).expect("json");
    let expected = "{\"kubernetesServiceAccounts\":[{\"uid\":\"uid-robot\",\"namespace\":\"team\",\
                    \"name\":\"robot\"}]}}}";
    assert!(json.ends_with(expected), "{json}");
}

#[test]
fn credential_hash_is_of_gos_json() {
    // printf '{"username":"ann","password":"a\\u0026b"}' | sha256sum
    let auth = credentials(None, "a&b").auth;
    let expected = "acf018c874e2deb8ef1e76c8ec18d8ac285bbf6e36f599336f9bd9f5cbe17353";
    assert_eq!(credential_hash(&auth), expected);
}

#[test]
fn record_merge_keeps_one_entry_per_secret() {
    let image = name("r.io/a");
    let merge = |before: ImagePulledRecord, used: Option<&TrackedAuth>| {
        let credentials = Some(ImagePullCredentials::for_pull(used));
        ImagePulledRecord::after_pull(Some(before), &image, "sha256:1", credentials, at(2))
    };
    let first = record("r.io/a", Some(&credentials(Some("b"), "p")));
    assert_eq!(
        merge(first.clone(), Some(&credentials(Some("b"), "p"))),
        None
    );
    let changed = merge(first.clone(), Some(&credentials(Some("b"), "q"))).expect("changed");
    assert_eq!(
        changed.credential_mapping["r.io/a"]
            .kubernetes_secrets
            .len(),
        1
    );
    assert_eq!(changed.last_updated_time, Some(at(2)));
    let both = merge(changed, Some(&credentials(Some("a"), "p"))).expect("changed");
    let names: Vec<_> = both.credential_mapping["r.io/a"]
        .kubernetes_secrets
        .iter()
        .map(|s| s.name.clone())
        .collect();
    assert_eq!(names, ["a", "b"]);
    let account = of_account("robot", "p");
    let all = merge(both, Some(&account)).expect("changed");
    assert_eq!(merge(all.clone(), Some(&account)), None);
    let all = merge(all, Some(&of_account("ape", "p"))).expect("changed");
    let known = &all.credential_mapping["r.io/a"];
    let accounts = known.kubernetes_service_accounts.iter();
    let names: Vec<_> = accounts.map(|account| account.name.as_str()).collect();
    assert_eq!(
        (names, known.kubernetes_secrets.len()),
        (vec!["ape", "robot"], 2)
    );
    let open = merge(all, None).expect("changed");
    assert_eq!(
        open.credential_mapping["r.io/a"],
        ImagePullCredentials::for_pull(None)
    );
    assert_eq!(merge(open, Some(&credentials(Some("a"), "p"))), None);
}

#[test]
fn record_is_stale_when_its_image_is_gone() {
    let image = |id: &str| ImageInfo {
        id: id.to_owned(),
        ..ImageInfo::default()
    };
    let record = record("r.io/a", None);
    assert!(record.is_stale(&[image("sha256:2")], at(2)));
    assert!(!record.is_stale(&[image("sha256:1")], at(2)));
    assert!(
        !record.is_stale(&[], at(1)),
        "written while the list was made"
    );
}

#[test]
fn intent_matches_complete_names_of_the_image() {
    let digest = format!("sha256:{}", "0".repeat(64));
    let image = ImageInfo {
        repo_tags: vec!["docker.io/library/web:latest".to_owned()],
        repo_digests: vec![format!("docker.io/library/web@{digest}")],
        ..ImageInfo::default()
    };
    for (intent, expected) in [
        ("web", true),
        ("docker.io/library/web:latest", true),
        (&format!("web@{digest}"), true),
        (&format!("web:3@{digest}"), true),
        ("web:2", false),
        ("r.io/web", false),
        ("Web", false),
    ] {
        let image_name = intent.to_owned();
        let found = intent_is_for(&ImagePullIntent { image: image_name }, &image);
        assert_eq!(found, expected, "{intent}");
    }
}
