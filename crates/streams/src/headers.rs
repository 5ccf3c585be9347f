//! The head of a request as it is passed on.

use std::net::IpAddr;

use http::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, HOST, TRANSFER_ENCODING};
use http::header::{PROXY_AUTHORIZATION, TE, TRAILER, UPGRADE};
use http::header::{SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY};
use http::header::{SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};
use http_body_util::Empty;

use crate::StreamError;

/// What a subprotocol that carries a token begins with.
const TOKEN_PROTOCOL: &[u8] = b"base64url.bearer.authorization.k8s.io.";
/// The protocol of a SPDY connection.
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
        || !asks_for_upgrade(headers)
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

/// Whether `Connection` names an upgrade.
pub(crate) fn asks_for_upgrade(headers: &HeaderMap) -> bool {
    headers.get_all(CONNECTION).iter().any(|value| {
        let tokens = value.as_bytes().split(|byte| *byte == b',');
        tokens
            .map(<[u8]>::trim_ascii)
            .any(|token| token.eq_ignore_ascii_case(b"upgrade"))
    })
}

/// The request for the runtime: method and headers of the client's, to `target`.
///
/// Not passed on are what the client proves itself with or says of whom it speaks for (it is meant
/// for us), and what concerns a body, as there is none. `Connection` and `Upgrade` are what this is
/// about.
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

/// A request of our own for a SPDY connection, with nothing of the client's.
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

/// Makes the replayed request of a WebSocket one for a SPDY connection.
pub(crate) fn ask_for_spdy<B>(
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

/// The protocol of streams that the runtime has chosen.
pub(crate) fn stream_protocol(headers: &HeaderMap) -> Option<&str> {
    let chosen = headers.get(STREAM_PROTOCOL)?.to_str().ok()?;
    Some(chosen.trim())
}

/// Whether an answer is an upgrade to SPDY.
pub(crate) fn is_spdy(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(UPGRADE).map(HeaderValue::as_bytes);
    upgrade.is_some_and(|it| it.eq_ignore_ascii_case(SPDY.as_bytes())) && asks_for_upgrade(headers)
}

/// Takes out impersonation (`Impersonate-User` and its like) and what an authenticating proxy says
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

/// Takes tokens out of the subprotocols of a WebSocket, whether or not one of them was what let
/// the request in.
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
        // bytes of a header between its commas are those of a header
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

/// Headers of an answer that is passed on with another body or none.
pub(crate) fn without_framing(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    for name in [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
    headers
}
