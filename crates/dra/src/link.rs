//! The connection to a plugin. All calls and the health stream share it, as upstream.

use tokio::sync::{Notify, watch};
use tonic::Status;
use tonic::transport::Channel;

/// Current state of the connection, from the task that keeps it.
#[derive(Debug, Default)]
pub(crate) struct Link {
    state: watch::Sender<LinkState>,
    /// A call waits for the connection.
    wanted: Notify,
}

#[derive(Debug, Default)]
struct LinkState {
    channel: Option<Channel>,
    /// Number of failed attempts to connect.
    failures: u64,
    error: String,
}

impl Link {
    /// Returns the channel; without a connection the result of the next attempt to connect.
    pub(crate) async fn channel(&self) -> Result<Channel, Status> {
        let mut state = self.state.subscribe();
        let failures = state.borrow().failures;
        if state.borrow().channel.is_none() {
            self.wanted.notify_one();
        }
        let is_known = |state: &LinkState| state.channel.is_some() || state.failures > failures;
        let state = state.wait_for(is_known).await;
        let unavailable = |error: &str| {
            // the text of grpc-go
            Status::unavailable(format!("connection error: desc = \"transport: {error}\""))
        };
        match state {
            Ok(state) => {
                let channel = state.channel.clone();
                channel.ok_or_else(|| unavailable(&state.error))
            }
            Err(_) => Err(unavailable("closed")),
        }
    }

    /// Publishes a connection.
    pub(crate) fn connected(&self, channel: Channel) {
        self.state
            .send_modify(|state| state.channel = Some(channel));
    }

    /// Publishes that there is no connection.
    pub(crate) fn failed(&self, error: String) {
        self.state.send_modify(|state| {
            state.channel = None;
            state.failures += 1;
            state.error = error;
        });
    }

    /// Waits until a call needs the connection.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }
}
