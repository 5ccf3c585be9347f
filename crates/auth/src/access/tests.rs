//! Required permissions by method and path.

use std::fmt;

use proptest::prelude::*;

use super::*;

/// Permissions on one line: `get nodes/pods, or get nodes/proxy`.
#[derive(Clone, Copy, Debug)]
struct AnyOf<'a>(&'a [NodePermission]);

impl fmt::Display for AnyOf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, right) in self.0.iter().enumerate() {
            f.write_str(if index > 0 { ", or " } else { "" })?;
            right.fmt(f)?;
        }
        Ok(())
    }
}

/// Checks the permissions of a request, or the error of its path.
#[track_caller]
fn check(method: &str, path: &str, expected: &str) {
    let hardened = AccessSettings::default();
    assert_eq!(
        line(method, path, hardened),
        expected,
        "{method} {path}, default"
    );
}

/// Checks a request as upstream authorizes it.
#[track_caller]
fn check_upstream(method: &str, path: &str, expected: &str) {
    let upstream = AccessSettings {
        exec_needs_create: false,
    };
    assert_eq!(
        line(method, path, upstream),
        expected,
        "{method} {path}, as upstream"
    );
}

fn line(method: &str, path: &str, settings: AccessSettings) -> String {
    match required_permissions(method, path, settings) {
        Ok(rights) => AnyOf(&rights).to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn endpoints_require_subresource_or_proxy() {
    let table = [
        ("/pods", "get nodes/pods, or get nodes/proxy"),
        ("/pods/", "get nodes/pods, or get nodes/proxy"),
        ("/runningpods/", "get nodes/pods, or get nodes/proxy"),
        ("/runningpods", "get nodes/pods, or get nodes/proxy"),
        ("/healthz", "get nodes/healthz, or get nodes/proxy"),
        ("/healthz/syncloop", "get nodes/healthz, or get nodes/proxy"),
        ("/configz", "get nodes/configz, or get nodes/proxy"),
        ("/flagz", "get nodes/configz"),
        ("/statusz", "get nodes/statusz"),
        ("/stats/summary", "get nodes/stats"),
        ("/metrics", "get nodes/metrics"),
        ("/metrics/cadvisor", "get nodes/metrics"),
        ("/logs/", "get nodes/log"),
        ("/logs/pods/a/b.log", "get nodes/log"),
        ("/checkpoint/ns/p/c", "get nodes/checkpoint"),
        ("/containerLogs/ns/p/c", "get nodes/proxy"),
        ("/debug/pprof/heap", "get nodes/proxy"),
        ("/debug/flags/v", "get nodes/proxy"),
        ("/no-such-endpoint", "get nodes/proxy"),
        ("/", "get nodes/proxy"),
        ("", "get nodes/proxy"),
        ("*", "get nodes/proxy"),
        // names with a known prefix
        ("/podsx", "get nodes/proxy"),
        ("/metricsx/y", "get nodes/proxy"),
        ("/Pods", "get nodes/proxy"),
    ];
    for (path, expected) in table {
        check("GET", path, expected);
        check_upstream("GET", path, expected);
    }
}

#[test]
fn verb_follows_method_and_unknown_methods_have_none() {
    for (method, verb) in [
        ("GET", "get"),
        ("POST", "create"),
        ("PUT", "update"),
        ("PATCH", "patch"),
        ("DELETE", "delete"),
        ("HEAD", ""),
        ("OPTIONS", ""),
        ("get", ""),
    ] {
        check(method, "/stats/summary", &format!("{verb} nodes/stats"));
    }
}

#[test]
fn container_access_requires_create_for_every_method() {
    for path in [
        "/exec/ns/p/c",
        "/exec/ns/p/uid/c",
        "/attach/ns/p/c",
        "/run/ns/p/c",
        "/portForward/ns/p",
        "/exec",
    ] {
        for method in ["GET", "POST", "HEAD", "PUT"] {
            check(method, path, "create nodes/proxy");
        }
        check_upstream("GET", path, "get nodes/proxy");
        check_upstream("POST", path, "create nodes/proxy");
    }
}

#[test]
fn ambiguous_path_is_rejected() {
    let empty = "the path has an empty part";
    let dots = "the path has a part that is '.' or '..'";
    let separator = "the path has an encoded slash, a backslash or a NUL";
    let name = "the first part of the path is encoded";
    let table = [
        ("//exec/ns/p/c", empty),
        ("/pods//x", empty),
        ("/logs//", empty),
        ("/pods/../exec/ns/p/c", dots),
        ("/logs/..", dots),
        ("/./pods", dots),
        ("/..", dots),
        ("/logs/%2e%2e/x", dots),
        ("/logs/.%2E", dots),
        ("/logs/a%2fb", separator),
        ("/logs/a%5Cb", separator),
        ("/logs/a\\b", separator),
        ("/logs/a%00", separator),
        ("/%65xec/ns/p/c", name),
        ("/pods%2f", name),
        ("/logs/a%2", "the path has an invalid '%' escape"),
        ("/logs/a%zz", "the path has an invalid '%' escape"),
    ];
    for (path, expected) in table {
        check("GET", path, expected);
    }
    // valid names
    check("GET", "/logs/...", "get nodes/log");
    check("GET", "/logs/a%20b..c", "get nodes/log");
    check("GET", "/logs/%252e%252e", "get nodes/log");
    check("GET", "/logs/%ff", "get nodes/log");
}

/// Returns the decoded and cleaned path, as Go's `ServeMux`.
fn cleaned(path: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        let digits = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match digits.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(decoded) if byte == b'%' => {
                bytes.push(decoded);
                rest = &tail[2..];
            }
            _ => bytes.push(byte),
        }
    }
    let mut parts: Vec<&str> = Vec::new();
    let text = String::from_utf8_lossy(&bytes).replace('\\', "/");
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

proptest! {
    #[test]
    fn accepted_path_has_same_endpoint_when_cleaned(
        parts in proptest::collection::vec(
            prop_oneof![
                Just("pods"), Just("exec"), Just("run"), Just("logs"), Just("metrics"),
                Just("/"), Just("."), Just(".."), Just("%2e"), Just("%2E%2e"), Just("%2f"),
                Just("%5c"), Just("\\"), Just("%65xec"), Just("e%78ec"), Just("%"), Just("%25"),
                Just("%252e"), Just("%00"), Just("a"), Just("%20"), Just(";"), Just("%ff"),
            ],
            0..8,
        ),
        separated in any::<bool>(),
    ) {
        let path = format!("/{}", parts.join(if separated { "/" } else { "" }));
        let settings = AccessSettings::default();
        if let Ok(granted) = required_permissions("GET", &path, settings) {
            let seen = cleaned(&path);
            let name = seen.trim_start_matches('/').split('/').next().unwrap_or_default();
            let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
            prop_assert_eq!(name, first, "{} is read as {}", path, seen);
            let expected = required_permissions("GET", &format!("/{first}"), settings);
            prop_assert_eq!(Ok(granted), expected);
        }
    }
}
