//! Sends the snapshots of a source to PodStorage in order.

use windlass_actors::{RejectedManifest, SourceSnapshot};
use windlass_mailboxes::MailboxSender;
use windlass_types::{PodOp, PodSource, SharedPod};

/// Result of one pass of a source.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PassOutput {
    /// All its pods; `None` while unknown, so that the source is not ready.
    pub(crate) pods: Option<Vec<SharedPod>>,
    pub(crate) rejected: Vec<RejectedManifest>,
}

impl PassOutput {
    /// Sends it; the actor waits meanwhile.
    pub(crate) async fn send(self, source: PodSource, storage: MailboxSender<SourceSnapshot>) {
        let snapshot = SourceSnapshot {
            source,
            // an empty addition carries rejections without making the source ready
            op: self.pods.as_ref().map_or(PodOp::Add, |_| PodOp::Set),
            pods: self.pods.unwrap_or_default(),
            rejected: self.rejected,
        };
        if storage.send(snapshot).await.is_err() {
            tracing::debug!(%source, "snapshot not delivered, agent is shutting down");
        }
    }
}
