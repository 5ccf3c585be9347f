//! Tables of image references and pull decisions.

use super::*;

/// Compares `reference registry repository tag`, or the error.
fn check(image: &str, expected: &str) {
    let line = match ImageName::parse(image) {
        Ok(n) => {
            let tag = n.tag.as_deref().unwrap_or("-");
            format!("{} {} {} {tag}", n.reference, n.registry, n.repository)
        }
        Err(error) => error.kind.to_string(),
    };
    assert_eq!(line, expected, "{image:?}");
}

#[test]
fn missing_tag_is_added() {
    check("busybox", "busybox:latest docker.io library/busybox latest");
    check(
        "busybox:1.36",
        "busybox:1.36 docker.io library/busybox 1.36",
    );
    check("foo/bar", "foo/bar:latest docker.io foo/bar latest");
    check(
        "quay.io/a/b_c/d--e:v1",
        "quay.io/a/b_c/d--e:v1 quay.io a/b_c/d--e v1",
    );
    check("localhost/x", "localhost/x:latest localhost x latest");
    check(
        "localhost:5000/x",
        "localhost:5000/x:latest localhost:5000 x latest",
    );
    check(
        "[2001:db8::1]:5000/x:1",
        "[2001:db8::1]:5000/x:1 [2001:db8::1]:5000 x 1",
    );
    check(
        "index.docker.io/busybox",
        "index.docker.io/busybox:latest docker.io library/busybox latest",
    );
    check("Registry/x", "Registry/x:latest Registry x latest");
    let digest = format!("sha256:{}", "a".repeat(64));
    check(
        &format!("x@{digest}"),
        &format!("x@{digest} docker.io library/x -"),
    );
    check(
        &format!("x:1@{digest}"),
        &format!("x:1@{digest} docker.io library/x 1"),
    );
}

#[test]
fn invalid_references_have_specific_errors() {
    let format = "invalid reference format";
    for image in [
        "",
        " ",
        "/x",
        "x/",
        "a//b",
        "x:",
        "x:-1",
        "x y",
        "-x",
        "x-",
        "a..b",
        "a___b",
        "x:y:z",
        "http://x/y",
        "x@",
        "x@sha256",
        "reg.io:port/x",
        ":tag",
        "é",
    ] {
        check(image, format);
    }
    check(&format!("x:{}", "t".repeat(129)), format);
    check(
        "Busybox",
        "invalid reference format: repository name must be lowercase",
    );
    check(
        "quay.io/Foo/bar",
        "invalid reference format: repository name must be lowercase",
    );
    check(
        &"a".repeat(64),
        "invalid repository name, cannot specify 64-byte hexadecimal strings",
    );
    check(
        &"x".repeat(256),
        "repository name must not be more than 255 characters",
    );
    check("x@sha256:abc", "invalid or unsupported digest");
    check(
        &format!("x@md5:{}", "a".repeat(32)),
        "invalid or unsupported digest",
    );
    let error = ImageName::parse("Busybox").expect_err("invalid");
    assert_eq!(error.reason(), Reason::InvalidImageName);
    assert!(
        error
            .to_string()
            .starts_with("couldn't parse image reference \"Busybox\": invalid")
    );
}

#[test]
fn pull_policy_defaults_as_in_api_server() {
    let check = |image: &str, policy: Option<&str>, expected| {
        let container = Container {
            image: Some(image.to_owned()),
            image_pull_policy: policy.map(str::to_owned),
            ..Container::default()
        };
        assert_eq!(
            PullPolicy::for_container(&container),
            expected,
            "{image} {policy:?}"
        );
    };
    check("x", None, PullPolicy::Always);
    check("x:latest", Some(""), PullPolicy::Always);
    check("x:1", None, PullPolicy::IfNotPresent);
    check(
        &format!("x@sha256:{}", "a".repeat(64)),
        None,
        PullPolicy::IfNotPresent,
    );
    check("x:1", Some("Always"), PullPolicy::Always);
    check("x", Some("Never"), PullPolicy::Never);
    check("x", Some("IfNotPresent"), PullPolicy::IfNotPresent);
}

#[test]
fn pull_decision_depends_on_policy_and_presence() {
    use PullDecision::{ErrImageNeverPull, Pull, UsePresent};
    assert_eq!(should_pull(PullPolicy::Always, true), Pull);
    assert_eq!(should_pull(PullPolicy::Always, false), Pull);
    assert_eq!(should_pull(PullPolicy::IfNotPresent, true), UsePresent);
    assert_eq!(should_pull(PullPolicy::IfNotPresent, false), Pull);
    assert_eq!(should_pull(PullPolicy::Never, true), UsePresent);
    assert_eq!(should_pull(PullPolicy::Never, false), ErrImageNeverPull);
}
