//! The watcher of OOM kills.

use std::sync::Arc;

use windlass_mailboxes::spawn_io;
use windlass_oom_watcher::{OomSource, OomWatcherDeps, watch_oom_kills};

use super::links::{Links, Shared};

/// Starts the watcher.
pub(super) fn spawn_oom_watcher(source: OomSource, shared: &Shared, links: &Links) {
    let deps = OomWatcherDeps {
        source,
        kills: links.oom_kills.clone(),
        events: Arc::clone(&shared.events),
        clock: Arc::clone(&shared.clock),
    };
    spawn_io("oom-watcher", watch_oom_kills(deps));
}
