//! Copies between SPDY in the binary messages of a WebSocket and a SPDY connection of the runtime.

#[cfg(test)]
mod tests;

use std::time::Duration;

use futures::SinkExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message;

use crate::copy::{Activity, BUFFER_BYTES, End};
use crate::websocket::{self, FromClient, Received, ToClient};

/// Copies both ways until either side ends or fails, or both are idle for `idle`.
pub(crate) async fn serve<C, R>(client: C, runtime: R, idle: Duration) -> End
where
    C: AsyncRead + AsyncWrite + Unpin,
    R: AsyncRead + AsyncWrite,
{
    let activity = Activity::new();
    let (mut to_client, mut from_client) = websocket::serve(client).await;
    let (mut from_runtime, mut to_runtime) = tokio::io::split(runtime);
    let end = tokio::select! {
        biased;
        // first: the runtime's last output reaches the client even if the client has closed its
        // side
        () = wrap(&mut from_runtime, &mut to_client, &activity) => End::Runtime,
        () = unwrap(&mut from_client, &mut to_runtime, &activity) => End::Client,
        () = activity.idle(idle) => End::Idle,
    };
    websocket::close(to_client, from_client).await;
    end
}

/// Copies until the runtime ends or the client does not read any more.
async fn wrap<C>(from: &mut (impl AsyncRead + Unpin), to: &mut ToClient<C>, activity: &Activity)
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        let Some(bytes) = buffer.get(..read).filter(|bytes| !bytes.is_empty()) else {
            return;
        };
        activity.touch();
        if to.send(Message::binary(bytes.to_vec())).await.is_err() {
            return;
        }
        activity.touch();
    }
}

/// Copies until the client ends or sends text, or the runtime does not read any more.
async fn unwrap<C>(
    from: &mut FromClient<C>,
    to: &mut (impl AsyncWrite + Unpin),
    activity: &Activity,
) where
    C: AsyncRead + AsyncWrite + Unpin,
{
    while let Received::Bytes(bytes) = websocket::receive(from).await {
        activity.touch();
        if to.write_all(&bytes).await.is_err() || to.flush().await.is_err() {
            return;
        }
        activity.touch();
    }
}
