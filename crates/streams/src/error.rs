//! Errors of streams.

use http::StatusCode;

/// Why a request gets no stream. Its `Display` is the text of the response.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The request is not an upgrade; upstream's text.
    #[error("Upgrade request required")]
    NoUpgrade,
    /// HTTP/2 has no upgrade.
    #[error("streams require HTTP/1.1: HTTP/2 has no upgrade")]
    WrongVersion,
    /// Bytes after the head of an upgrade belong to the stream.
    #[error("an upgrade request has no body")]
    HasBody,
    /// The WebSocket handshake is invalid.
    #[error("unable to upgrade: not a WebSocket request: {0}")]
    BadWebSocket(&'static str),
    /// The session limit is reached.
    #[error("too many open streams on this node (limit: {0}); try again later")]
    Full(usize),
    /// The agent is shutting down.
    #[error("the node agent is shutting down")]
    Shutdown,
    /// The runtime returned an unusable URL.
    #[error("unusable streaming URL from the container runtime: {0}")]
    BadUrl(String),
    /// The streaming server is unreachable.
    #[error("error dialing backend: {0}")]
    Dial(#[source] std::io::Error),
    /// Connecting or the response took too long.
    #[error("no response from the container runtime's streaming server within {0} s")]
    Timeout(u64),
    /// The connection broke, or the response is not HTTP.
    #[error("connection to the container runtime's streaming server broke: {0}")]
    Broken(#[source] hyper::Error),
    /// The streaming server rejected the request; upstream's text.
    #[error("unable to upgrade connection: {0}")]
    Rejected(String),
    /// It upgraded to another protocol than requested; upstream's text.
    #[error("unable to upgrade: missing upgrade headers in response")]
    NotSpdy,
    /// It chose another stream protocol than requested.
    #[error("unable to upgrade connection: the container runtime chose the protocol {0:?}")]
    WrongProtocol(String),
    /// It neither rejected nor upgraded; upstream's text.
    #[error("invalid upgrade response: status code {0}")]
    NotUpgraded(u16),
}

impl StreamError {
    /// Returns the status code of the response.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NoUpgrade | Self::WrongVersion | Self::HasBody | Self::BadWebSocket(_) => {
                StatusCode::BAD_REQUEST
            }
            Self::Full(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Shutdown => StatusCode::SERVICE_UNAVAILABLE,
            Self::BadUrl(_)
            | Self::Dial(_)
            | Self::Timeout(_)
            | Self::Broken(_)
            | Self::Rejected(_)
            | Self::NotSpdy
            | Self::WrongProtocol(_)
            | Self::NotUpgraded(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}
