//! Allocates user IDs for pods with `hostUsers: false`.
//!
//! *owns* the allocation of the node's IDs · *bound* the IDs of the node · *restart* the files in
//! the pods' directories are read before the first allocation, so that running pods keep their IDs.
//! The decisions are in [`windlass_runtime_config::userns`].

use parking_lot::Mutex;
use tokio::sync::OnceCell;
use windlass_runtime_config::sandbox_config::wants_user_namespace;
use windlass_runtime_config::userns::{
    IdRange, RangeError, UserNamespaces, UsernsError, check_handler, mapping_file,
};
use windlass_types::cri::{IdMapping, RuntimeStatus, UserNamespace};
use windlass_types::{Pod, PodExt, PodUid, Retry};

use crate::PodRuntime;
use crate::files::{FilesError, PodFiles};

/// User IDs could not be allocated for a pod.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PodUsersError {
    /// No IDs are available, or the handler does not support them.
    #[error(transparent)]
    Userns(#[from] UsernsError),
    /// The files of pods cannot be read or written.
    #[error("create user namespace: {0}")]
    Files(#[from] FilesError),
}

impl PodUsersError {
    /// Retry class: most errors may end when the runtime is replaced or a pod is removed.
    pub(crate) fn retry(&self) -> Retry {
        match self {
            Self::Userns(UsernsError::File(_) | UsernsError::Range(_)) => Retry::Never,
            Self::Userns(_) => Retry::Later,
            Self::Files(error) => error.retry(),
        }
    }
}

/// Allocation of IDs to pods, restored at the first use.
#[derive(Debug)]
pub(crate) struct PodUsers {
    range: Result<IdRange, RangeError>,
    /// Restored once from the files of all pods.
    given: OnceCell<Mutex<UserNamespaces>>,
}

impl PodUsers {
    pub(crate) fn new(range: Result<IdRange, RangeError>) -> Self {
        Self {
            range,
            given: OnceCell::new(),
        }
    }

    /// Returns the IDs of a pod, new or restored.
    async fn take(&self, files: &dyn PodFiles, uid: &PodUid) -> Result<IdMapping, PodUsersError> {
        let range = self.range.clone().map_err(UsernsError::Range)?;
        let given = self.given.get_or_try_init(|| restore(files, range)).await?;
        let taken = given.lock().allocate(uid)?;
        let ids = taken.ids;
        if taken.persisted {
            return Ok(ids);
        }
        // without the file the next agent run would allocate the same IDs to another pod
        let text = mapping_file(ids);
        files.write_user_namespace(uid, &text).await?;
        given.lock().mark_persisted(uid);
        tracing::info!(%uid, first = ids.host_id, length = ids.length, "user IDs allocated");
        Ok(ids)
    }

    /// Releases the IDs of a pod whose directory, with the file, was removed.
    pub(crate) fn release(&self, uid: &PodUid) {
        if let Some(given) = self.given.get() {
            given.lock().release(uid);
        }
    }
}

impl PodRuntime {
    /// IDs of a pod: the node's, or its own if it requests them.
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

/// Restores the allocations of previous agent runs. An invalid file is reported and blocks only its
/// own pod.
async fn restore(
    files: &dyn PodFiles,
    range: IdRange,
) -> Result<Mutex<UserNamespaces>, PodUsersError> {
    let mut given = UserNamespaces::new(range);
    for (uid, text) in files.list_user_namespaces().await? {
        if let Err(error) = given.restore(&uid, &text) {
            tracing::error!(%uid, %error, "restoring user IDs of pod failed");
        }
    }
    Ok(Mutex::new(given))
}
