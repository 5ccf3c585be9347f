//! Which requests start a WebSocket that is served here.

use http::{HeaderMap, Method, Request};

use super::{accept, is_remote_command_v5, is_tunneled_spdy, tunneled_protocols};

fn offers(protocols: &[&'static str]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("connection", "keep-alive, Upgrade".parse().expect("value"));
    headers.insert("upgrade", "WebSocket".parse().expect("value"));
    for protocol in protocols {
        let protocol = protocol.parse().expect("value");
        headers.append("sec-websocket-protocol", protocol);
    }
    headers
}

#[test]
fn subprotocols_select_served_websockets() {
    let cases: [(&[&str], bool, &[&str]); 8] = [
        (&[], false, &[]),
        (&["v5.channel.k8s.io"], true, &[]),
        (&["v4.channel.k8s.io"], false, &[]),
        (&["v4.channel.k8s.io, v5.channel.k8s.io"], true, &[]),
        (
            &[
                "base64url.bearer.authorization.k8s.io.dG9r",
                "v5.channel.k8s.io",
            ],
            true,
            &[],
        ),
        (
            &["SPDY/3.1+portforward.k8s.io"],
            false,
            &["portforward.k8s.io"],
        ),
        (
            &["SPDY/3.1+v2.portforward.k8s.io,SPDY/3.1+portforward.k8s.io"],
            false,
            &["v2.portforward.k8s.io", "portforward.k8s.io"],
        ),
        (
            &["SPDY/3.1+portforward.example.com", "portforward.k8s.io"],
            false,
            &[],
        ),
    ];
    for (protocols, is_v5, tunneled) in cases {
        let headers = offers(protocols);
        assert_eq!(is_remote_command_v5(&headers), is_v5, "{protocols:?}");
        assert_eq!(tunneled_protocols(&headers), tunneled, "{protocols:?}");
        assert_eq!(is_tunneled_spdy(&headers), !tunneled.is_empty());
    }
    let mut spdy = offers(&["v5.channel.k8s.io", "SPDY/3.1+portforward.k8s.io"]);
    spdy.insert("upgrade", "SPDY/3.1".parse().expect("value"));
    assert!(!is_remote_command_v5(&spdy) && !is_tunneled_spdy(&spdy));
}

#[test]
fn handshake_returns_accept_key_of_rfc_6455() {
    let request = |method, version: &str, key: &str| {
        let request = Request::builder().method(method);
        let request = request.header("sec-websocket-version", version);
        request
            .header("sec-websocket-key", key)
            .body(())
            .expect("request")
    };
    let key = "dGhlIHNhbXBsZSBub25jZQ==";
    let answer = accept(&request(Method::GET, "13", key), Some("v5.channel.k8s.io"));
    let answer = answer.expect("accepted");
    assert_eq!(answer.status(), 101);
    let header = |name| answer.headers().get(name).and_then(|it| it.to_str().ok());
    let accepted = header("sec-websocket-accept");
    assert_eq!(accepted, Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!(header("sec-websocket-protocol"), Some("v5.channel.k8s.io"));
    for request in [
        request(Method::POST, "13", key),
        request(Method::GET, "12", key),
        request(Method::GET, "13", ""),
    ] {
        let error = accept(&request, None).expect_err("rejected");
        assert_eq!(error.status(), 400, "{error}");
    }
}
