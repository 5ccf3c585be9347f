//! Authentication, and the permissions of a path.

use http::header::{AUTHORIZATION, CONNECTION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, HeaderValue};
use windlass_auth::access::{self, AccessSettings};
use windlass_auth::{token_from_authorization, token_from_websocket, user_from_certificate};

/// `METHOD path`. An accepted path is unambiguous, and executing needs the create permission.
pub(crate) fn rights(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (method, path) = text.split_once(' ').unwrap_or(("GET", &text));
    let settings = AccessSettings::default();
    let Ok(rights) = access::required_permissions(method, path, settings) else {
        return;
    };
    assert!(!rights.is_empty());
    let mut parts = path.split('/').skip_while(|part| part.is_empty());
    let executes = matches!(
        parts.next(),
        Some("exec" | "attach" | "run" | "portForward")
    );
    let wanted = |right: &windlass_types::NodePermission| right.verb == "create";
    assert!(!executes || rights.iter().all(wanted));
    assert!(!parts.any(|part| part == ".."));
}

/// A header value, as `Authorization` and as a subprotocol.
pub(crate) fn bearer(data: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(data) else {
        return;
    };
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, value.clone());
    headers.insert(SEC_WEBSOCKET_PROTOCOL, value);
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(Some(token)) = token_from_authorization(&headers) {
        assert!(!token.is_empty());
    }
    if let Ok(Some((token, others))) = token_from_websocket(&headers) {
        assert!(!token.is_empty() && !others.is_empty());
    }
}

/// A DER certificate.
pub(crate) fn certificate(data: &[u8]) {
    if let Ok(certificate) = user_from_certificate(data)
        && let Some(user) = certificate.user
    {
        assert!(!user.name.is_empty());
    }
}
