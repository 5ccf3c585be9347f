//! Hands a source's snapshots to PodStorage in order.

use windlass_actors::{MailboxSender, RejectedManifest, SourceSnapshot};
use windlass_types::{PodOp, PodSource, SharedPod};

/// What a source has to say after one pass.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct News {
    /// All its pods; `None` while it cannot tell, so that it does not count as seen.
    pub(crate) pods: Option<Vec<SharedPod>>,
    /// All it refuses at present.
    pub(crate) rejected: Vec<RejectedManifest>,
}

impl News {
    /// Sends it, waiting for room: the actor takes nothing else up meanwhile.
    pub(crate) async fn send(self, source: PodSource, storage: MailboxSender<SourceSnapshot>) {
        let snapshot = SourceSnapshot {
            source,
            // An addition of nothing carries refusals and leaves the source unseen.
            op: self.pods.as_ref().map_or(PodOp::Add, |_| PodOp::Set),
            pods: self.pods.unwrap_or_default(),
            rejected: self.rejected,
        };
        if storage.send(snapshot).await.is_err() {
            tracing::debug!(%source, "snapshot not delivered: the agent stops");
        }
    }
}
