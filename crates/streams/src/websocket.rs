//! WebSockets that are served here instead of by the runtime: handshake and close.

#[cfg(test)]
mod tests;

use std::time::Duration;

use axum::body::Body;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};

use crate::copy::{BUFFER_BYTES, CLOSE_TIMEOUT};
use crate::{StreamError, headers};

/// Maximum message size. kubectl sends 32 KiB.
pub const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// Subprotocol of exec and attach that can close a stream.
pub(crate) const REMOTE_COMMAND_V5: &str = "v5.channel.k8s.io";
/// Prefix of a tunnel's subprotocol, before the protocol of the SPDY connection.
const TUNNEL_PREFIX: &str = "SPDY/3.1+";
const KUBERNETES_SUFFIX: &str = ".k8s.io";

pub(crate) type ToClient<S> = SplitSink<WebSocketStream<S>, Message>;
pub(crate) type FromClient<S> = SplitStream<WebSocketStream<S>>;

/// Returns whether a request starts a WebSocket with the subprotocol `v5.channel.k8s.io`, which
/// [`SessionPermit::translate`](crate::SessionPermit::translate) serves.
pub fn is_remote_command_v5(headers: &HeaderMap) -> bool {
    is_websocket(headers) && protocols(headers).contains(&REMOTE_COMMAND_V5)
}

/// Returns whether a request starts a WebSocket that carries SPDY, which
/// [`SessionPermit::tunnel`](crate::SessionPermit::tunnel) serves.
pub fn is_tunneled_spdy(headers: &HeaderMap) -> bool {
    is_websocket(headers) && !tunneled_protocols(headers).is_empty()
}

fn is_websocket(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(UPGRADE).map(HeaderValue::as_bytes);
    upgrade.is_some_and(|it| it.eq_ignore_ascii_case(b"websocket"))
        && headers::requests_upgrade(headers)
}

/// Returns the offered subprotocols, in the client's order.
fn protocols(headers: &HeaderMap) -> Vec<&str> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    let values = values.filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .collect()
}

/// Returns the offered protocols of tunneled SPDY connections.
pub(crate) fn tunneled_protocols(headers: &HeaderMap) -> Vec<&str> {
    let offered = protocols(headers).into_iter();
    let tunneled = offered.filter_map(|it| it.strip_prefix(TUNNEL_PREFIX));
    tunneled
        .filter(|it| it.ends_with(KUBERNETES_SUFFIX))
        .collect()
}

/// Returns the subprotocol of a tunnel, for the protocol of the SPDY connection.
pub(crate) fn tunnel_protocol(spdy: &str) -> String {
    format!("{TUNNEL_PREFIX}{spdy}")
}

/// Returns the response that starts a WebSocket.
///
/// # Errors
/// The request violates RFC 6455.
pub(crate) fn accept<B>(
    request: &Request<B>,
    protocol: Option<&str>,
) -> Result<Response<Body>, StreamError> {
    let headers = request.headers();
    if request.method() != Method::GET {
        return Err(StreamError::BadWebSocket("its method is not GET"));
    }
    let version = headers.get(SEC_WEBSOCKET_VERSION);
    if version.map(HeaderValue::as_bytes) != Some(b"13") {
        return Err(StreamError::BadWebSocket("its version is not 13"));
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes);
    let Some(key) = key.filter(|key| !key.is_empty()) else {
        return Err(StreamError::BadWebSocket("it has no key"));
    };
    let accepted = HeaderValue::from_str(&derive_accept_key(key));
    let accepted = accepted.map_err(|_| StreamError::BadWebSocket("its key is not usable"))?;
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = answer.headers_mut();
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accepted);
    if let Some(protocol) = protocol.and_then(|it| HeaderValue::from_str(it).ok()) {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    Ok(answer)
}

/// Returns the server's end of a WebSocket after the handshake.
pub(crate) async fn serve<S>(connection: S) -> (ToClient<S>, FromClient<S>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let config = WebSocketConfig::default()
        .read_buffer_size(BUFFER_BYTES)
        .write_buffer_size(0)
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES));
    let socket = WebSocketStream::from_raw_socket(connection, Role::Server, Some(config)).await;
    socket.split()
}

/// Sends a close frame, waits for the reply with a timeout, and closes the connection. An immediate
/// close with unread bytes would reset it and lose the last message.
pub(crate) async fn close<S>(mut to_client: ToClient<S>, mut from_client: FromClient<S>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let close = async {
        let frame = CloseFrame {
            code: CloseCode::Normal,
            reason: "".into(),
        };
        if to_client.send(Message::Close(Some(frame))).await.is_err() {
            return;
        }
        while let Some(Ok(_)) = from_client.next().await {}
        if let Ok(mut socket) = to_client.reunite(from_client) {
            // a clean close, if the client still reads
            let _ = socket.get_mut().shutdown().await;
        }
    };
    if timeout(CLOSE_TIMEOUT, close).await.is_err() {
        tracing::debug!(after = ?CLOSE_TIMEOUT, "no reply to the close frame");
    }
}

/// Content of a message.
pub(crate) enum Received {
    /// Bytes for a channel or the tunnel.
    Bytes(bytes::Bytes),
    /// The same, as text.
    Text(bytes::Bytes),
    /// The client ended, disconnected, or violates the protocol.
    End,
}

/// Returns the next data message. Pings and close frames are answered.
pub(crate) async fn receive<S>(from_client: &mut FromClient<S>) -> Received
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        match from_client.next().await {
            Some(Ok(Message::Binary(bytes))) => return Received::Bytes(bytes),
            Some(Ok(Message::Text(text))) => return Received::Text(text.into()),
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                tracing::debug!(%error, "WebSocket ended");
                return Received::End;
            }
            None => return Received::End,
        }
    }
}

/// Timeout for the last message.
pub(crate) const STATUS_TIMEOUT: Duration = Duration::from_secs(10);
