//! Heads of requests and responses.

use std::net::IpAddr;

use http::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, HOST, TRANSFER_ENCODING};
use http::header::{PROXY_AUTHORIZATION, TE, TRAILER, UPGRADE};
use http::header::{SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY};
use http::header::{SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};
use http_body_util::Empty;

use crate::StreamError;

/// Prefix of a subprotocol that carries a token.
const TOKEN_PROTOCOL: &[u8] = b"base64url.bearer.authorization.k8s.io.";
/// Header with the stream protocol of a SPDY connection.
const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
const SPDY: &str = "SPDY/3.1";
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Checks that a request can become a stream.
pub(crate) fn check<B>(request: &Request<B>) -> Result<(), StreamError> {
    if request.version() == Version::HTTP_2 {
        return Err(StreamError::WrongVersion);
    }
    let headers = request.headers();
    if request.version() != Version::HTTP_11
        || !requests_upgrade(headers)
        || !headers.contains_key(UPGRADE)
    {
        return Err(StreamError::NoUpgrade);
    }
    let length = headers.get(CONTENT_LENGTH);
    let has_body = length.is_some_and(|length| length.as_bytes() != b"0");
    match has_body || headers.contains_key(TRANSFER_ENCODING) {
        true => Err(StreamError::HasBody),
        false => Ok(()),
    }
}

/// Returns whether `Connection` contains `Upgrade`.
pub(crate) fn requests_upgrade(headers: &HeaderMap) -> bool {
    headers.get_all(CONNECTION).iter().any(|value| {
        let tokens = value.as_bytes().split(|byte| *byte == b',');
        tokens
            .map(<[u8]>::trim_ascii)
            .any(|token| token.eq_ignore_ascii_case(b"upgrade"))
    })
}

/// Returns the client's request for the runtime: its method and headers, to `target`.
///
/// Credentials, impersonation and headers of a body are removed. `Connection` and `Upgrade` stay.
pub(crate) fn replay<B>(
    request: &Request<B>,
    target: &Uri,
    client: Option<IpAddr>,
) -> Result<Request<Empty<bytes::Bytes>>, http::Error> {
    let path = target.path_and_query().map_or("/", |it| it.as_str());
    let mut replayed = Request::builder()
        .method(request.method().clone())
        .uri(path)
        .body(Empty::new())?;
    let headers = replayed.headers_mut();
    *headers = request.headers().clone();
    for name in [
        AUTHORIZATION,
        COOKIE,
        PROXY_AUTHORIZATION,
        CONTENT_LENGTH,
        TE,
        TRAILER,
    ] {
        headers.remove(name);
    }
    remove_identities(headers);
    remove_token_protocols(headers);
    if request.method() == Method::POST {
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    if !headers.contains_key(HOST)
        && let Some(authority) = target.authority()
    {
        headers.insert(HOST, HeaderValue::from_str(authority.as_str())?);
    }
    if let Some(client) = client {
        headers.append(FORWARDED_FOR, HeaderValue::from_str(&client.to_string())?);
    }
    Ok(replayed)
}

/// Returns a new request for a SPDY connection, without headers of the client.
pub(crate) fn spdy_request(
    target: &Uri,
    protocol: &'static str,
) -> Result<Request<Empty<bytes::Bytes>>, http::Error> {
    let path = target.path_and_query().map_or("/", |it| it.as_str());
    let authority = target.authority().map_or("", |it| it.as_str());
    Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(HOST, authority)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, SPDY)
        .header(STREAM_PROTOCOL, protocol)
        .header(CONTENT_LENGTH, 0)
        .body(Empty::new())
}

/// Converts a replayed WebSocket request to one for a SPDY connection.
pub(crate) fn request_spdy<B>(
    request: &mut Request<B>,
    protocols: &[&str],
) -> Result<(), http::Error> {
    *request.method_mut() = Method::POST;
    let headers = request.headers_mut();
    for name in [
        SEC_WEBSOCKET_PROTOCOL,
        SEC_WEBSOCKET_KEY,
        SEC_WEBSOCKET_VERSION,
        SEC_WEBSOCKET_EXTENSIONS,
        STREAM_PROTOCOL,
    ] {
        headers.remove(name);
    }
    headers.insert(UPGRADE, HeaderValue::from_static(SPDY));
    headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    for protocol in protocols {
        headers.append(STREAM_PROTOCOL, HeaderValue::from_str(protocol)?);
    }
    Ok(())
}

/// Returns the stream protocol that the runtime chose.
pub(crate) fn stream_protocol(headers: &HeaderMap) -> Option<&str> {
    let chosen = headers.get(STREAM_PROTOCOL)?.to_str().ok()?;
    Some(chosen.trim())
}

/// Returns whether a response is an upgrade to SPDY.
pub(crate) fn is_spdy(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(UPGRADE).map(HeaderValue::as_bytes);
    upgrade.is_some_and(|it| it.eq_ignore_ascii_case(SPDY.as_bytes())) && requests_upgrade(headers)
}

/// Removes impersonation headers (`Impersonate-User` etc.) and those of an authenticating proxy
/// (`X-Remote-User`).
fn remove_identities(headers: &mut HeaderMap) {
    let names = headers.keys().filter(|name| {
        let name = name.as_str();
        name.starts_with("impersonate-") || name.starts_with("x-remote-")
    });
    for name in names.cloned().collect::<Vec<_>>() {
        headers.remove(name);
    }
}

/// Removes tokens from the subprotocols of a WebSocket, whether or not they authenticated the
/// request.
fn remove_token_protocols(headers: &mut HeaderMap) {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL);
    let carries = |value: &HeaderValue| protocols(value).any(is_token);
    if !values.iter().any(carries) {
        return;
    }
    let values: Vec<_> = values.iter().cloned().collect();
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    for value in values {
        let others: Vec<_> = protocols(&value).filter(|it| !is_token(it)).collect();
        // a part of a valid header value is valid
        if !others.is_empty()
            && let Ok(value) = HeaderValue::from_bytes(&others.join(&b", "[..]))
        {
            headers.append(SEC_WEBSOCKET_PROTOCOL, value);
        }
    }
}

fn protocols(value: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    let protocols = value.as_bytes().split(|byte| *byte == b',');
    protocols.map(<[u8]>::trim_ascii)
}

fn is_token(protocol: &[u8]) -> bool {
    protocol
        .get(..TOKEN_PROTOCOL.len())
        .is_some_and(|begins| begins.eq_ignore_ascii_case(TOKEN_PROTOCOL))
}

/// Returns the headers of a response without those of its body.
pub(crate) fn without_framing(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    for name in [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
    headers
}
