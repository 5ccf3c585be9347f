//! The task of the kept objects.
//!
//! * owns: nothing; the state is in [`KeptObjects`]
//! * receives: the shutdown, nothing else
//! * sends: reads of the Node object until the API server responds, and before each write;
//!   `ObjectsChanged` to the SyncLoop; the file
//! * invariant: before the first response the file is not changed; afterwards it has what this agent
//!   run has read
//! * bound: one request or write at a time, at least [`CONTACT_INTERVAL`] and [`SAVE_INTERVAL`] apart
//! * restart: begins with the request

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass_actors::ObjectsChanged;
use windlass_client::{ApiClient, ApiErrorKind, ObjectKey};
use windlass_mailboxes::spawn_io;
use windlass_types::corev1::Node;

use super::table::MAX_OBJECT_BYTES;
use super::{FileState, KeptObjects, UNREACHABLE_THRESHOLD};
use crate::ObjectCache;

/// Interval between two requests until the API server responds: the copy serves at most this long
/// after the API server is back.
const CONTACT_INTERVAL: Duration = Duration::from_secs(5);
/// Interval between two comparisons of the objects with the file, and so the minimum interval between
/// two writes. Changes in between are coalesced; a power cut loses at most this much.
const SAVE_INTERVAL: Duration = Duration::from_secs(10);
/// Age at which an unchanged file is written again, because its time is that of its content.
const MAX_FILE_AGE: Duration = Duration::from_secs(3600);

/// Starts the task that keeps the objects of a cache, unless it keeps none. `client` has a short
/// timeout. The task ends with the cache or the shutdown.
pub fn keep_objects(cache: Arc<ObjectCache>, client: ApiClient, shutdown: CancellationToken) {
    let Some(kept) = cache.kept.clone() else {
        return;
    };
    drop(spawn_io("keep-objects", async move {
        let task = async {
            reach_api_server(&cache, &kept, &client).await;
            save(cache, kept, client).await;
        };
        tokio::select! {
            // a write in progress ends, because it is on a thread of its own
            () = shutdown.cancelled() => {}
            () = task => {}
        }
    }));
}

/// Returns after the first response of the API server. Lets the copy serve meanwhile, if there is no
/// response for a while.
async fn reach_api_server(cache: &ObjectCache, kept: &KeptObjects, client: &ApiClient) {
    let started = Instant::now();
    while !kept.has_reached() {
        let pods = match responds(client, &cache.node.node_name).await {
            true => kept.reached(),
            false if started.elapsed() >= UNREACHABLE_THRESHOLD => kept.unreachable(),
            false => Vec::new(),
        };
        for uid in pods {
            cache.changed.put(uid, ObjectsChanged);
        }
        if !kept.has_reached() {
            tokio::time::sleep(CONTACT_INTERVAL).await;
        }
    }
}

/// Returns whether the API server responds; a rejection is a response.
async fn responds(client: &ApiClient, node_name: &str) -> bool {
    let response = client.get::<Node>(ObjectKey::cluster(node_name)).await;
    !response.is_err_and(|error| {
        matches!(
            error.kind,
            ApiErrorKind::Connection | ApiErrorKind::Timeout | ApiErrorKind::Server
        )
    })
}

/// Writes the objects whenever they have changed.
async fn save(cache: Arc<ObjectCache>, kept: KeptObjects, client: ApiClient) {
    let clock = Arc::clone(&cache.clock);
    let node_name = cache.node.node_name.clone();
    let weak = Arc::downgrade(&cache);
    drop(cache);
    let mut reported = None;
    let mut left_out = Vec::new();
    loop {
        tokio::time::sleep(SAVE_INTERVAL).await;
        let Some(mut table) = weak.upgrade().map(|cache| cache.table_to_keep(&kept)) else {
            return;
        };
        let removed = table.shrink(MAX_OBJECT_BYTES);
        if removed != left_out && !removed.is_empty() {
            tracing::warn!(
                objects = removed.join(", "),
                max_bytes = MAX_OBJECT_BYTES,
                "objects too large to be kept; their pods do not start after a reboot without the \
                 API server"
            );
        }
        left_out = removed;
        let state = kept.next_write(&table, clock.now(), MAX_FILE_AGE);
        if state == FileState::Current {
            continue;
        }
        let responds = responds(&client, &node_name).await;
        if state == FileState::Old && !responds {
            continue;
        }
        let (kept, now) = (kept.clone(), clock.now());
        let saved = tokio::task::spawn_blocking(move || kept.save(table, now, responds));
        let Ok(saved) = saved.await else {
            return;
        };
        let error = saved.err().map(|error| {
            let cause = std::error::Error::source(&error);
            cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
        });
        match &error {
            Some(error) if reported.as_ref() != Some(error) => {
                tracing::error!(%error, "objects not kept, retrying");
            }
            None if reported.is_some() => tracing::info!("objects kept again"),
            _ => {}
        }
        reported = error;
    }
}
