//! Why there is no stream.

use http::StatusCode;

/// Why a client gets no stream. Its `Display` is the answer's text.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The request is none for a stream; upstream's words.
    #[error("Upgrade request required")]
    NoUpgrade,
    /// HTTP/2 has no upgrades.
    #[error("streams are served over HTTP/1.1 only: HTTP/2 knows no upgrade")]
    WrongVersion,
    /// What follows an upgrade's header belongs to the stream.
    #[error("an upgrade request has no body")]
    HasBody,
    /// It begins no WebSocket, though it says so.
    #[error("unable to upgrade: not a WebSocket request: {0}")]
    BadWebSocket(&'static str),
    /// All places are taken.
    #[error("{0} streams are open on this node already, try again later")]
    Full(usize),
    /// The agent is about to end.
    #[error("the node agent is shutting down")]
    Shutdown,
    /// The runtime named an address that cannot be used.
    #[error("the container runtime answered with an unusable URL of its streaming server: {0}")]
    BadUrl(String),
    /// The streaming server was not reached.
    #[error("error dialing backend: {0}")]
    Dial(#[source] std::io::Error),
    /// It took too long to connect or answer.
    #[error("the container runtime's streaming server has not answered within {0} s")]
    NoAnswer(u64),
    /// It broke off, or said what is no HTTP.
    #[error("the container runtime's streaming server broke off: {0}")]
    Broken(#[source] hyper::Error),
    /// It refused; upstream's words.
    #[error("unable to upgrade connection: {0}")]
    Refused(String),
    /// It upgraded to something else than was asked for; upstream's words.
    #[error("unable to upgrade: missing upgrade headers in response")]
    NotSpdy,
    /// It chose another protocol of streams than was asked for.
    #[error("unable to upgrade connection: the container runtime chose the protocol {0:?}")]
    WrongProtocol(String),
    /// It neither refused nor upgraded; upstream's words.
    #[error("invalid upgrade response: status code {0}")]
    NotUpgraded(u16),
}

impl StreamError {
    /// Status code of the answer.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NoUpgrade | Self::WrongVersion | Self::HasBody | Self::BadWebSocket(_) => {
                StatusCode::BAD_REQUEST
            }
            Self::Full(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Shutdown => StatusCode::SERVICE_UNAVAILABLE,
            Self::BadUrl(_)
            | Self::Dial(_)
            | Self::NoAnswer(_)
            | Self::Broken(_)
            | Self::Refused(_)
            | Self::NotSpdy
            | Self::WrongProtocol(_)
            | Self::NotUpgraded(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}
