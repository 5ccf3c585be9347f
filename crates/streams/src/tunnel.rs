//! SPDY in the binary messages of a WebSocket, joined to a SPDY connection of the runtime.

#[cfg(test)]
mod tests;

use std::time::Duration;

use futures::SinkExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message;

use crate::copy::{Activity, BUFFER_BYTES, End};
use crate::websocket::{self, FromClient, Received, ToClient};

/// Copies both ways until either side is done, breaks, or both are silent for `idle`.
pub(crate) async fn join<C, R>(client: C, runtime: R, idle: Duration) -> End
where
    C: AsyncRead + AsyncWrite + Unpin,
    R: AsyncRead + AsyncWrite,
{
    let activity = Activity::new();
    let (mut to_client, mut from_client) = websocket::serve(client).await;
    let (mut from_runtime, mut to_runtime) = tokio::io::split(runtime);
    let end = tokio::select! {
        biased;
        // first: what the runtime has sent reaches the client even if it has gone already
        () = wrap(&mut from_runtime, &mut to_client, &activity) => End::Runtime,
        () = unwrap(&mut from_client, &mut to_runtime, &activity) => End::Client,
        () = activity.idle(idle) => End::Idle,
    };
    websocket::close(to_client, from_client).await;
    end
}

/// Until the runtime is done or the client takes nothing.
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

/// Until the client is done, sends text, or the runtime takes nothing.
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
