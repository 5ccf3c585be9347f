//! The head of a request as it is passed on.

use std::net::IpAddr;

use http::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, HOST, TRANSFER_ENCODING};
use http::header::{PROXY_AUTHORIZATION, TE, TRAILER, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};
use http_body_util::Empty;

use crate::StreamError;

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

fn asks_for_upgrade(headers: &HeaderMap) -> bool {
    headers.get_all(CONNECTION).iter().any(|value| {
        let tokens = value.as_bytes().split(|byte| *byte == b',');
        tokens
            .map(<[u8]>::trim_ascii)
            .any(|token| token.eq_ignore_ascii_case(b"upgrade"))
    })
}

/// The request for the runtime: method and headers of the client's, to `target`.
///
/// Not passed on are what the client proves itself with (it is meant for us), and what concerns
/// a body, as there is none. `Connection` and `Upgrade` are what this is about.
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

/// Headers of an answer that is passed on with another body or none.
pub(crate) fn without_framing(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    for name in [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
    headers
}
