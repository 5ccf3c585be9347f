//! Requests and redirects.

use serde_json::{Value, json};

use super::*;

fn container() -> Container {
    serde_json::from_value(json!({"name": "c", "ports": [
        {"name": "web", "containerPort": 8080},
        {"name": "zero", "containerPort": 0},
        {"containerPort": 9090},
    ]}))
    .expect("container")
}

fn target(action: Value) -> Result<HttpTarget, String> {
    let action: HTTPGetAction = serde_json::from_value(action).expect("action");
    HttpTarget::new(
        &action,
        &container(),
        "10.0.0.7".parse().ok(),
        Purpose::Probe,
    )
}

fn line(target: Result<HttpTarget, String>) -> String {
    match target {
        Ok(target) => target.url(),
        Err(error) => format!("error: {error}"),
    }
}

fn check(action: Value, expected: &str) {
    assert_eq!(line(target(action.clone())), expected, "{action}");
}

#[test]
fn port_is_number_or_container_port_name() {
    check(json!({"port": 80}), "http://10.0.0.7:80/");
    check(json!({"port": "web"}), "http://10.0.0.7:8080/");
    check(json!({"port": "81"}), "http://10.0.0.7:81/");
    check(json!({"port": 0}), "error: invalid port number: 0");
    check(json!({"port": -1}), "error: invalid port number: -1");
    check(json!({"port": 65536}), "error: invalid port number: 65536");
    check(json!({"port": "zero"}), "error: invalid port number: 0");
    check(
        json!({"port": "70000"}),
        "error: invalid port number: 70000",
    );
    check(
        json!({"port": "none"}),
        r#"error: strconv.Atoi: parsing "none": invalid syntax"#,
    );
}

#[test]
fn configured_host_and_scheme_are_used() {
    check(
        json!({"port": 80, "scheme": "HTTPS"}),
        "https://10.0.0.7:80/",
    );
    check(json!({"port": 80, "scheme": "http"}), "http://10.0.0.7:80/");
    check(
        json!({"port": 80, "host": "web.local"}),
        "http://web.local:80/",
    );
    check(
        json!({"port": 80, "host": "fd00::1"}),
        "http://[fd00::1]:80/",
    );
    check(json!({"port": 80, "host": ""}), "http://10.0.0.7:80/");
    check(
        json!({"port": 80, "scheme": "FTP"}),
        r#"error: unsupported protocol scheme "ftp""#,
    );
    check(
        json!({"port": 80, "host": "a b"}),
        r#"error: invalid host name "a b""#,
    );
    check(
        json!({"port": 80, "host": "x\r\nEvil: 1"}),
        r#"error: invalid host name "x\r\nEvil: 1""#,
    );
}

#[test]
fn target_requires_pod_address() {
    let action = HTTPGetAction {
        port: IntOrString::Int(80),
        ..HTTPGetAction::default()
    };
    let found = HttpTarget::new(&action, &container(), None, Purpose::Hook);
    assert_eq!(
        line(found),
        "error: failed to find networking container: the pod has no address"
    );
}

#[test]
fn path_is_parsed_as_url_reference() {
    for (path, expected) in [
        ("", "/"),
        ("/", "/"),
        ("/healthz", "/healthz"),
        ("healthz", "/healthz"),
        ("/a?b=c&d", "/a?b=c&d"),
        ("/a?", "/a?"),
        ("?b", "/?b"),
        ("/a#fragment", "/a"),
        ("/a?b#f?c", "/a?b"),
        ("/a?b?c", "/a?b?c"),
        ("/a b", "/a%20b"),
        ("/a%20b", "/a%20b"),
        ("/a%2fb", "/a%2fb"),
        ("/a%2fb c", "/a/b%20c"),
        ("/ä", "/%C3%A4"),
        ("/(a)!*'", "/(a)!*'"),
        ("/(a) b", "/%28a%29%20b"),
        ("/a;b,c:d@e", "/a;b,c:d@e"),
        ("/a/../b", "/a/../b"),
        ("*", "/*"),
        // not a URL: a literal path
        ("/%zz?a#b", "/%25zz%3Fa%23b"),
        ("a:b/%", "/a:b/%25"),
        ("/a\nb", "/a%0Ab"),
        ("1:2", "/1:2"),
        // another host or scheme is ignored
        ("http://other:1/x?y", "/x?y"),
        ("//other/x", "/x"),
        ("//other", "/"),
        ("///x", "///x"),
        ("/a?x y", "/a?x y"),
    ] {
        assert_eq!(url::request_path(path).as_deref(), Ok(expected), "{path}");
    }
    check(
        json!({"port": 80, "path": "a:b"}),
        "error: http: no Host in request URL",
    );
}

fn request(action: Value) -> String {
    let bytes = target(action).and_then(|target| target.request());
    match bytes {
        Ok(bytes) => String::from_utf8(bytes).expect("text").replace("\r\n", "|"),
        Err(error) => format!("error: {error}"),
    }
}

#[test]
fn request_has_user_agent_and_closes_connection() {
    assert_eq!(
        request(json!({"port": 80, "path": "/x"})),
        "GET /x HTTP/1.1|Host: 10.0.0.7:80|User-Agent: kube-probe/1.36|Accept: */*|\
         Connection: close||"
    );
    let action = HTTPGetAction {
        port: IntOrString::Int(80),
        host: Some("fd00::1".into()),
        ..HTTPGetAction::default()
    };
    let hook = HttpTarget::new(&action, &container(), None, Purpose::Hook).expect("target");
    let text = String::from_utf8(hook.request().expect("request")).expect("text");
    assert_eq!(
        text.replace("\r\n", "|"),
        "GET / HTTP/1.1|Host: [fd00::1]:80|User-Agent: kube-lifecycle/1.36|Accept: */*|\
         Connection: close||"
    );
}

#[test]
fn headers_are_canonical_and_sorted_and_custom_ones_win() {
    let with = |headers: Value| request(json!({"port": 80, "httpHeaders": headers}));
    assert_eq!(
        with(json!([
            {"name": "x-b", "value": " 2 "},
            {"name": "X-A", "value": "1"},
            {"name": "host", "value": "shop.example"},
            {"name": "user-AGENT", "value": "me"},
            {"name": "accept", "value": "text/html"},
            {"name": "x-b", "value": "1"},
            {"name": "content-length", "value": "5"},
            {"name": "transfer-encoding", "value": "chunked"},
        ])),
        "GET / HTTP/1.1|Host: shop.example|User-Agent: me|Accept: text/html|X-A: 1|X-B: 2|\
         X-B: 1|Connection: close||"
    );
    assert_eq!(
        with(json!([
            {"name": "User-Agent", "value": ""},
            {"name": "Accept", "value": ""},
            {"name": "Host", "value": ""},
        ])),
        "GET / HTTP/1.1|Host: 10.0.0.7:80|Connection: close||"
    );
}

#[test]
fn header_with_line_break_is_rejected() {
    let with = |name: &str, value: &str| {
        request(json!({"port": 80, "httpHeaders": [{"name": name, "value": value}]}))
    };
    assert_eq!(
        with("x", "a\r\nb: c"),
        r#"error: net/http: invalid header field value for "X""#
    );
    assert_eq!(
        with("a b", "c"),
        r#"error: net/http: invalid header field name "a b""#
    );
    assert_eq!(
        with("a:\r\nb", "c"),
        r#"error: net/http: invalid header field name "a:\r\nb""#
    );
}

#[test]
fn header_values_are_not_printed() {
    let secret = target(json!({"port": 80, "httpHeaders": [
        {"name": "Authorization", "value": "Bearer hidden"},
    ]}));
    let shown = format!("{secret:?}");
    assert!(
        shown.contains("Authorization") && !shown.contains("hidden"),
        "{shown}"
    );
}

#[test]
fn plain_request_has_no_credentials() {
    let secret = target(json!({"port": 80, "scheme": "HTTPS", "httpHeaders": [
        {"name": "authorization", "value": "Bearer hidden"},
        {"name": "x", "value": "y"},
    ]}))
    .expect("target");
    let plain = secret.plain();
    assert_eq!(plain.url(), "http://10.0.0.7:80/");
    let names: Vec<&str> = plain
        .headers
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(names, ["Accept", "User-Agent", "X"]);
}

fn redirect(from: Value, location: &str) -> String {
    match target(from).and_then(|target| target.redirected(location)) {
        Ok(Redirect::Follow(target)) => target.url(),
        Ok(Redirect::OtherHost(host)) => format!("other host {host}"),
        Err(error) => format!("error: {error}"),
    }
}

#[test]
fn redirect_location_is_resolved_relative_to_request() {
    let from = json!({"port": 81, "path": "/a/b?q"});
    for (location, expected) in [
        ("/x", "http://10.0.0.7:81/x"),
        ("x", "http://10.0.0.7:81/a/x"),
        ("../x?y", "http://10.0.0.7:81/x?y"),
        ("../../../x", "http://10.0.0.7:81/x"),
        ("./", "http://10.0.0.7:81/a/"),
        ("..", "http://10.0.0.7:81/"),
        ("?z", "http://10.0.0.7:81/a/b?z"),
        ("#f", "http://10.0.0.7:81/a/b?q"),
        ("/x y", "http://10.0.0.7:81/x%20y"),
        ("http://10.0.0.7:81/x", "http://10.0.0.7:81/x"),
        ("http://10.0.0.7/x", "http://10.0.0.7:80/x"),
        ("HTTPS://10.0.0.7/x/./y", "https://10.0.0.7:443/x/y"),
        ("//10.0.0.7:9/x", "http://10.0.0.7:9/x"),
        ("//user:pw@10.0.0.7:9", "http://10.0.0.7:9/"),
        ("http://10.0.0.8/x", "other host 10.0.0.8"),
        ("//example.com", "other host example.com"),
        ("https://[::1]:80/", "other host ::1"),
        ("ftp://example.com/", "other host example.com"),
        (
            "ftp://10.0.0.7/x",
            r#"error: unsupported protocol scheme "ftp""#,
        ),
        (
            "/%zz",
            r#"error: failed to parse Location header "/%zz": invalid URL escape"#,
        ),
        (
            "http://10.0.0.7:x/",
            r#"error: failed to parse Location header "http://10.0.0.7:x/": invalid port ":x" after host"#,
        ),
        ("a:b:c", r#"error: unsupported protocol scheme "a""#),
    ] {
        assert_eq!(redirect(from.clone(), location), expected, "{location}");
    }
}

#[test]
fn redirect_has_referer_and_host_only_if_relative() {
    let first = target(json!({"port": 81, "path": "/a", "httpHeaders": [
        {"name": "Host", "value": "shop"},
        {"name": "X", "value": "1"},
    ]}))
    .expect("target");
    let follow = |location: &str| match first.redirected(location) {
        Ok(Redirect::Follow(target)) => {
            String::from_utf8(target.request().expect("request")).expect("text")
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(
        follow("/b").replace("\r\n", "|"),
        "GET /b HTTP/1.1|Host: shop|User-Agent: kube-probe/1.36|Accept: */*|\
         Referer: http://10.0.0.7:81/a|X: 1|Connection: close||"
    );
    assert_eq!(
        follow("http://10.0.0.7:82/b").replace("\r\n", "|"),
        "GET /b HTTP/1.1|Host: 10.0.0.7:82|User-Agent: kube-probe/1.36|Accept: */*|\
         Referer: http://10.0.0.7:81/a|X: 1|Connection: close||"
    );
}

#[test]
fn https_referer_is_not_sent_over_http() {
    let first = target(json!({"port": 81, "scheme": "HTTPS", "path": "/a"})).expect("target");
    let Ok(Redirect::Follow(next)) = first.redirected("http://10.0.0.7:80/b") else {
        panic!("not followed");
    };
    assert!(
        next.headers.iter().all(|(name, _)| name != "Referer"),
        "{next:?}"
    );
}
