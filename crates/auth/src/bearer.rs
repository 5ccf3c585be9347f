//! Bearer tokens in the headers of a request.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, CONNECTION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, HeaderValue};

/// Prefix of a subprotocol that carries a token.
const PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";
/// Maximum size of a token; tokens of service accounts have some 1 KiB, large OIDC tokens 16 KiB.
const MAX_TOKEN_BYTES: usize = 64 << 10;

/// Headers that carry something else than one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// No text, or too long.
    #[error("invalid bearer token")]
    Token,
    /// Two of them among the subprotocols.
    #[error("multiple base64.bearer.authorization tokens specified")]
    Several,
    /// No base64 in a subprotocol.
    #[error("invalid base64.bearer.authorization token encoding")]
    Encoding,
    /// Nothing is left to be answered.
    #[error("missing additional subprotocol")]
    NoOtherProtocol,
}

/// Returns the bearer token of `Authorization`; `None` without one, or with credentials of another
/// kind.
///
/// # Errors
/// [`HeaderError::Token`].
pub fn token_from_authorization(headers: &HeaderMap) -> Result<Option<String>, HeaderError> {
    let Some(value) = headers.get(AUTHORIZATION) else {
        return Ok(None);
    };
    let value = value.to_str().map_err(|_| HeaderError::Token)?;
    let mut parts = value.trim().splitn(3, ' ');
    match (parts.next(), parts.next()) {
        (Some(kind), Some(token)) if kind.eq_ignore_ascii_case("bearer") && !token.is_empty() => {
            bounded(token.to_owned()).map(Some)
        }
        _ => Ok(None),
    }
}

/// Removes the token from the request.
pub(crate) fn drop_authorization(headers: &mut HeaderMap) {
    headers.remove(AUTHORIZATION);
}

/// Returns the token and the other subprotocols of a WebSocket request: a browser can set no other
/// header.
///
/// # Errors
/// Any of [`HeaderError`].
pub fn token_from_websocket(
    headers: &HeaderMap,
) -> Result<Option<(String, Vec<String>)>, HeaderError> {
    if !is_websocket_upgrade(headers) {
        return Ok(None);
    }
    let mut token = None;
    let mut others = Vec::new();
    for value in headers.get_all(SEC_WEBSOCKET_PROTOCOL) {
        let value = value.to_str().map_err(|_| HeaderError::Encoding)?;
        for protocol in value.split(',').map(str::trim) {
            let Some(encoded) = protocol.strip_prefix(PROTOCOL) else {
                others.push(protocol.to_owned());
                continue;
            };
            if token.is_some() {
                return Err(HeaderError::Several);
            }
            let decoded = URL_SAFE_NO_PAD
                .decode(encoded)
                .map_err(|_| HeaderError::Encoding)?;
            token = Some(String::from_utf8(decoded).map_err(|_| HeaderError::Encoding)?);
        }
    }
    let Some(token) = token.filter(|token| !token.is_empty()) else {
        return Ok(None);
    };
    // the response must select another subprotocol
    if others.is_empty() {
        return Err(HeaderError::NoOtherProtocol);
    }
    Ok(Some((bounded(token)?, others)))
}

/// Removes the token from the request and keeps the other subprotocols.
pub(crate) fn drop_protocol(headers: &mut HeaderMap, others: &[String]) {
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    if let Ok(value) = HeaderValue::from_str(&others.join(",")) {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, value);
    }
}

fn bounded(token: String) -> Result<String, HeaderError> {
    match token.len() <= MAX_TOKEN_BYTES {
        true => Ok(token),
        false => Err(HeaderError::Token),
    }
}

fn is_websocket_upgrade(headers: &HeaderMap) -> bool {
    let lists = |name, word: &str| {
        let values = headers.get_all(name).into_iter();
        let mut words = values
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','));
        words.any(|it| it.trim().eq_ignore_ascii_case(word))
    };
    lists(CONNECTION, "upgrade") && lists(UPGRADE, "websocket")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().expect("a header"));
        }
        headers
    }

    #[track_caller]
    fn check(value: &str, expected: Result<Option<&str>, HeaderError>) {
        let found = token_from_authorization(&headers(&[("authorization", value)]));
        assert_eq!(found, expected.map(|it| it.map(str::to_owned)), "{value:?}");
    }

    #[test]
    fn token_is_the_word_after_bearer() {
        check("Bearer abc", Ok(Some("abc")));
        check("bearer abc", Ok(Some("abc")));
        check("  Bearer abc  ", Ok(Some("abc")));
        check("Bearer abc def", Ok(Some("abc")));
        check("Bearer  abc", Ok(None));
        check("Bearer", Ok(None));
        check("Basic YTpi", Ok(None));
        check("", Ok(None));
        check("Bearer \u{fc}", Err(HeaderError::Token));
        let long = format!("Bearer {}", "x".repeat(MAX_TOKEN_BYTES + 1));
        check(&long, Err(HeaderError::Token));
        assert_eq!(token_from_authorization(&HeaderMap::new()), Ok(None));
    }

    /// Subprotocols of a WebSocket, and the token with what is left.
    #[track_caller]
    fn check_protocols(protocols: &str, expected: Result<Option<(&str, &str)>, HeaderError>) {
        let mut headers = headers(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-protocol", protocols),
        ]);
        let found = token_from_websocket(&headers).map(|found| {
            found.map(|(token, others)| {
                drop_protocol(&mut headers, &others);
                let left = headers[SEC_WEBSOCKET_PROTOCOL].to_str().expect("ASCII");
                (token, left.to_owned())
            })
        });
        let expected =
            expected.map(|it| it.map(|(token, left)| (token.to_owned(), left.to_owned())));
        assert_eq!(found, expected, "{protocols}");
    }

    #[test]
    fn websocket_token_is_read_from_a_subprotocol() {
        let with = |token: &str| format!("{PROTOCOL}{}", URL_SAFE_NO_PAD.encode(token));
        let token = with("abc");
        check_protocols(
            &format!("v4.channel.k8s.io, {token}, x"),
            Ok(Some(("abc", "v4.channel.k8s.io,x"))),
        );
        check_protocols("v4.channel.k8s.io", Ok(None));
        check_protocols(&token, Err(HeaderError::NoOtherProtocol));
        check_protocols(&format!("x,{token},{token}"), Err(HeaderError::Several));
        check_protocols(&format!("x,{PROTOCOL}!"), Err(HeaderError::Encoding));
        check_protocols(&format!("x,{}", with("")), Ok(None));
        let plain = headers(&[("sec-websocket-protocol", &format!("x,{token}"))]);
        assert_eq!(token_from_websocket(&plain), Ok(None));
    }
}
