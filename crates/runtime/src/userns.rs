//! User IDs of pods with `hostUsers: false`: given out, remembered, given back.
//!
//! *owns* which IDs of the node are whose · *bound* the IDs of the node · *restart* the notes in
//! the pods' directories are read before the first ID is given out, so that what runs keeps its
//! own. What is decided is in [`windlass_runtime_config::userns`].

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::OnceCell;
use windlass_runtime_config::sandbox_config::wants_user_namespace;
use windlass_runtime_config::userns::{
    IdRange, RangeError, UserNamespaces, UsernsError, check_handler, mapping_file,
};
use windlass_types::cri::{IdMapping, RuntimeStatus, UserNamespace};
use windlass_types::{Pod, PodExt, PodUid, Retry};

use crate::PodRuntime;
use crate::files::{FilesError, PodFiles};

/// A pod cannot have user IDs of its own.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PodUsersError {
    /// There are none for it.
    #[error(transparent)]
    Userns(#[from] UsernsError),
    /// The notes of pods cannot be read or written.
    #[error("create user namespace: {0}")]
    Files(#[from] FilesError),
}

impl PodUsersError {
    /// Whatever it is, time may bring another answer: a runtime that is replaced, a pod that goes.
    pub(crate) fn retry(&self) -> Retry {
        match self {
            Self::Userns(UsernsError::File(_) | UsernsError::Range(_)) => Retry::Never,
            Self::Userns(_) => Retry::Later,
            Self::Files(error) => error.retry(),
        }
    }
}

/// Who has which IDs. Empty until somebody asks.
#[derive(Debug)]
pub(crate) struct PodUsers {
    range: Result<IdRange, RangeError>,
    /// Filled from the notes of all pods, once.
    given: OnceCell<Mutex<UserNamespaces>>,
}

impl PodUsers {
    pub(crate) fn new(range: Result<IdRange, RangeError>) -> Self {
        Self {
            range,
            given: OnceCell::new(),
        }
    }

    /// What a pod has, new or from before.
    async fn take(&self, files: &dyn PodFiles, uid: &PodUid) -> Result<IdMapping, PodUsersError> {
        let range = self.range.clone().map_err(UsernsError::Range)?;
        let given = self.given.get_or_try_init(|| restore(files, range)).await?;
        let taken = lock(given).take(uid)?;
        let ids = taken.ids;
        if taken.noted {
            return Ok(ids);
        }
        // without the note a later agent would give the same IDs to somebody else
        let note = mapping_file(ids);
        files.write_user_namespace(uid, &note).await?;
        lock(given).noted(uid);
        tracing::info!(%uid, first = ids.host_id, length = ids.length, "user IDs given to a pod");
        Ok(ids)
    }

    /// The pod's directory is gone, and with it the note.
    pub(crate) fn release(&self, uid: &PodUid) {
        if let Some(given) = self.given.get() {
            lock(given).release(uid);
        }
    }
}

impl PodRuntime {
    /// The IDs of a pod: the node's, or the pod's own if it asks for that and the runtime can.
    pub(crate) async fn pod_users(
        &self,
        pod: &Pod,
        handler: &str,
        status: &RuntimeStatus,
    ) -> Result<UserNamespace, PodUsersError> {
        if !wants_user_namespace(pod) {
            return Ok(UserNamespace::Node);
        }
        check_handler(&status.handlers, handler)?;
        let files = self.deps().files.as_ref();
        let ids = self.users().take(files, &pod.uid()).await?;
        Ok(UserNamespace::Pod(ids))
    }
}

/// What earlier lives of the agent gave out. A note that means nothing is reported and keeps its
/// own pod from starting; the others start.
async fn restore(
    files: &dyn PodFiles,
    range: IdRange,
) -> Result<Mutex<UserNamespaces>, PodUsersError> {
    let mut given = UserNamespaces::new(range);
    for (uid, text) in files.list_user_namespaces().await? {
        if let Err(error) = given.restore(&uid, &text) {
            tracing::error!(%uid, %error, "user IDs of a pod are not known");
        }
    }
    Ok(Mutex::new(given))
}

fn lock(given: &Mutex<UserNamespaces>) -> MutexGuard<'_, UserNamespaces> {
    given.lock().unwrap_or_else(PoisonError::into_inner)
}
