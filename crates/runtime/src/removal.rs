//! Removal of one container instance during a sync.

use windlass_cri::{CriCode, CriError};
use windlass_types::{ContainerId, ContainerState, ObservedContainer};

use crate::kill::ignore_missing;
use crate::sync::SyncPass;
use crate::text::pod_text;

/// Result of the removal of an instance.
pub(crate) enum Removal {
    /// It is gone.
    Done,
    /// It was cut off in its start and stays: the runtime refuses to remove it.
    Refused {
        /// Restart count of the instance. The next instance gets a higher one.
        restart_count: u32,
    },
}

impl SyncPass<'_> {
    /// Removes an instance.
    pub(crate) async fn remove_instance(
        &self,
        name: &str,
        id: &ContainerId,
    ) -> Result<Removal, CriError> {
        let runtime = &self.runtime.deps().runtime;
        let removed = ignore_missing(runtime.remove_container(id).await);
        let Err(error) = removed else {
            return Ok(Removal::Done);
        };
        let refused = self.instance(id).filter(|it| stays(it, &error));
        let restart_count = refused
            .map(|it| it.restart_count)
            .ok_or_else(|| error.clone())?;
        tracing::warn!(
            pod = %pod_text(self.pod()), container = name, %id, %error,
            "container whose start was cut off not removed; the next one replaces it",
        );
        Ok(Removal::Refused { restart_count })
    }

    pub(crate) fn instance(&self, id: &ContainerId) -> Option<&ObservedContainer> {
        let mut instances = self.req.observed.containers.iter();
        instances.find(|instance| instance.id == *id)
    }
}

/// True for an instance whose start was cut off and that the runtime refuses to remove. containerd
/// loses the task of such a start: until it restarts, the container can be neither stopped nor
/// removed, but nothing of it runs. The next instance gets the next number, garbage collection tries
/// again.
fn stays(instance: &ObservedContainer, error: &CriError) -> bool {
    let refused = matches!(error.code, CriCode::Other | CriCode::InvalidArgument)
        && !error.is_removal_in_progress();
    // without that time its start may be in progress
    let cut_off = instance.state == ContainerState::Created && instance.finished_at.is_some();
    refused && cut_off
}
