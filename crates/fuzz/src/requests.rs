//! Requests and responses.

use std::net::Ipv4Addr;

use http::Uri;
use windlass_grpc_sockets::any_authority::Rewriter;
use windlass_node_api::queries::{NodeQuery, PodLogOptions, StreamQuery};
use windlass_pod_lifecycle::http_target::{HttpTarget, Redirect, Scheme};
use windlass_types::Timestamp;

/// A query of `/containerLogs`, which may contain raw bytes.
pub(crate) fn log_options(data: &[u8]) {
    let query = String::from_utf8_lossy(data);
    if let Ok(options) = PodLogOptions::decode(&query)
        && let Ok(options) = options.resolve(Timestamp::UNIX_EPOCH)
    {
        assert!(options.limit_bytes != Some(0));
    }
}

/// A query of `/logs/`.
pub(crate) fn node_query(data: &[u8]) {
    let query = String::from_utf8_lossy(data);
    if let Ok(Some(query)) = NodeQuery::decode(&query) {
        let _ = query.check();
    }
}

/// A query of `/exec` and of `/portForward`, as hyper lets it through.
pub(crate) fn stream_query(data: &[u8]) {
    let uri = [b"/?", data].concat();
    let Ok(uri) = Uri::try_from(uri) else {
        return;
    };
    let Ok(query) = StreamQuery::new(&uri) else {
        return;
    };
    if let Ok(streams) = query.streams() {
        assert!(!(streams.tty && streams.stderr));
    }
    if let Ok(ports) = query.ports() {
        assert!(!ports.is_empty() && !ports.contains(&0));
    }
}

/// The `Location` of a probe response: the probe follows it only to the container itself, with
/// one request.
pub(crate) fn redirect(data: &[u8]) {
    let target = HttpTarget {
        scheme: Scheme::Http,
        host: Ipv4Addr::LOCALHOST.to_string(),
        port: 8080,
        path: "/a/b?c".to_owned(),
        headers: vec![("Accept".to_owned(), "*/*".to_owned())],
    };
    let location = String::from_utf8_lossy(data);
    let Ok(Redirect::Follow(next)) = target.redirected(&location) else {
        return;
    };
    assert_eq!(next.host, target.host);
    if let Ok(request) = next.request() {
        let text = String::from_utf8_lossy(&request);
        // one request line, one end of headers
        assert_eq!(text.matches("\r\n\r\n").count(), 1, "{text:?}");
        let lines = text.lines().filter(|line| line.ends_with("HTTP/1.1"));
        assert_eq!(lines.count(), 1, "{text:?}");
    }
}

/// The bytes of a gRPC client, in pieces: the output is not larger and does not depend on the
/// pieces.
pub(crate) fn authority(data: &[u8]) {
    let (Some((size, bytes)), mut whole) = (data.split_first(), Rewriter::default()) else {
        return;
    };
    whole.push(bytes);
    assert!(whole.rewritten().len() <= bytes.len());
    let mut pieces = Rewriter::default();
    for piece in bytes.chunks(usize::from(*size).max(1)) {
        pieces.push(piece);
    }
    assert_eq!(pieces.rewritten(), whole.rewritten());
}
