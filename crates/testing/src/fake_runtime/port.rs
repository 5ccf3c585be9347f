//! The ports of `windlass-cri` over the model.

use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use windlass_cri::{CriCode, CriResult, ImageService, RuntimeEventStream, RuntimeService};
use windlass_types::cri::{
    ContainerConfig, ContainerDetail, ContainerSummary, ExecOutput, ImageAuth, ImageInfo,
    LinuxResources, ListFilter, RuntimeStatus, RuntimeVersion, SandboxConfig, SandboxDetail,
    SandboxSummary,
};
use windlass_types::{ContainerId, SandboxId, Timestamp};

use super::FakeRuntime;
use super::driver::SimDriver;
use super::events::EventMode;
use super::identity::{container_name, sandbox_name, sandbox_subject};
use super::model::Model;
use super::operation::Operation;

/// A name reserved while its object is created; released on failure or drop.
struct Reservation<'a> {
    driver: &'a std::sync::Arc<SimDriver>,
    name: String,
    kept: bool,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.driver.change(|state| {
                if !state.model.is_made(&self.name) {
                    state.model.unreserve(&self.name);
                }
            });
        }
    }
}

/// A call whose caller may go away: as in containerd, it then still has the effect `cut_off`.
struct CallInProgress<'a, F: Fn(&mut Model, Timestamp)> {
    driver: &'a std::sync::Arc<SimDriver>,
    cut_off: F,
    answered: bool,
}

impl<F: Fn(&mut Model, Timestamp)> Drop for CallInProgress<'_, F> {
    fn drop(&mut self) {
        // without a tokio runtime the simulation has ended
        if !self.answered && tokio::runtime::Handle::try_current().is_ok() {
            self.driver.step(|model, now| (self.cut_off)(model, now));
        }
    }
}

/// Calls with the errors of the runtime: stop and remove return `NotFound`.
impl FakeRuntime {
    pub(super) async fn stop_sandbox_raw(&self, id: &SandboxId) -> CriResult<()> {
        let subject = self.driver.change(|state| state.model.sandbox_subject(id));
        self.driver
            .call(Operation::StopPodSandbox, subject, |model, now| {
                model.stop_sandbox(id, now)
            })
            .await
    }

    pub(super) async fn remove_sandbox_raw(&self, id: &SandboxId) -> CriResult<()> {
        let subject = self.driver.change(|state| state.model.sandbox_subject(id));
        self.driver
            .call(Operation::RemovePodSandbox, subject, |model, now| {
                model.remove_sandbox(id, now)
            })
            .await
    }

    pub(super) async fn stop_container_raw(
        &self,
        id: &ContainerId,
        grace: Duration,
    ) -> CriResult<()> {
        let subject = self.container_subject(id);
        let ticket = self.driver.begin(Operation::StopContainer, subject).await?;
        self.driver.step(|model, _| model.stop_requested(id, grace));
        if !grace.is_zero() {
            // an error recurs in the kill below
            let signalled = self
                .driver
                .step(|model, now| model.signal_container(id, now));
            if signalled == Ok(true) {
                let ended = self.driver.wait_until(|state| {
                    state.model.containers.get(id).is_none_or(|c| !c.is_live())
                });
                // timeout: SIGKILL below
                drop(tokio::time::timeout(grace, ended).await);
                if self
                    .driver
                    .change(|state| !state.model.containers.contains_key(id))
                {
                    // removed while stopping
                    return self.driver.finish(&ticket, Ok(()));
                }
            }
        }
        self.driver.complete(&ticket, |model, now| {
            model.end_container(id, 137, false, now)
        })
    }

    pub(super) async fn remove_container_raw(&self, id: &ContainerId) -> CriResult<()> {
        let subject = self.container_subject(id);
        self.driver
            .call(Operation::RemoveContainer, subject, |model, now| {
                model.remove_container(id, now)
            })
            .await
    }

    pub(super) fn container_subject(&self, id: &ContainerId) -> String {
        self.driver
            .change(|state| state.model.container_subject(id))
    }

    pub(super) fn streams_lists(&self) -> bool {
        self.driver.change(|state| state.stream_lists)
    }

    pub(super) fn event_mode(&self) -> EventMode {
        self.driver.change(|state| state.events.mode())
    }
}

fn gone_is_fine(result: CriResult<()>) -> CriResult<()> {
    match result {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}

#[async_trait]
impl RuntimeService for FakeRuntime {
    async fn version(&self) -> CriResult<RuntimeVersion> {
        self.driver
            .call(Operation::Version, String::new(), |_, _| {
                Ok(RuntimeVersion {
                    name: "fake".to_owned(),
                    version: "1.0.0".to_owned(),
                    api_version: "v1".to_owned(),
                })
            })
            .await
    }

    async fn status(&self) -> CriResult<RuntimeStatus> {
        self.driver
            .call(Operation::Status, String::new(), |model, _| {
                Ok(RuntimeStatus {
                    runtime_error: None,
                    network_error: model.network_error.clone(),
                    handlers: model.handlers.clone(),
                    supplemental_groups_policy: model.strict_groups,
                })
            })
            .await
    }

    async fn update_runtime_config(&self, pod_cidr: &str) -> CriResult<()> {
        let operation = Operation::UpdateRuntimeConfig;
        let subject = pod_cidr.to_owned();
        self.driver.call(operation, subject, |_, _| Ok(())).await
    }

    async fn run_pod_sandbox(&self, config: &SandboxConfig, handler: &str) -> CriResult<SandboxId> {
        let operation = Operation::RunPodSandbox;
        let name = sandbox_name(config);
        let reserved = self
            .driver
            .change(|state| state.model.reserve("sandbox", &name));
        let mut reservation = Reservation {
            driver: &self.driver,
            name,
            kept: reserved.is_err(),
        };
        let ticket = self
            .driver
            .begin(operation, sandbox_subject(config))
            .await?;
        if !handler.is_empty() {
            let message = format!(
                "failed to get sandbox runtime: no runtime for \"{handler}\" is configured"
            );
            return self.driver.finish(&ticket, Err((CriCode::Other, message)));
        }
        let result = self.driver.complete(&ticket, |model, now| {
            let id = SandboxId::from(reserved?);
            model.make_sandbox(&id, config.clone(), now)?;
            Ok(id)
        });
        // kept if the sandbox exists, even if the reply is lost
        reservation.kept |= self
            .driver
            .change(|state| state.model.is_made(&reservation.name));
        result
    }

    async fn stop_pod_sandbox(&self, id: &SandboxId) -> CriResult<()> {
        gone_is_fine(self.stop_sandbox_raw(id).await)
    }

    async fn remove_pod_sandbox(&self, id: &SandboxId) -> CriResult<()> {
        gone_is_fine(self.remove_sandbox_raw(id).await)
    }

    async fn pod_sandbox_status(&self, id: &SandboxId) -> CriResult<SandboxDetail> {
        let subject = self.driver.change(|state| state.model.sandbox_subject(id));
        self.driver
            .call(Operation::PodSandboxStatus, subject, |model, _| {
                model.sandbox_detail(id)
            })
            .await
    }

    async fn update_pod_sandbox_resources(
        &self,
        id: &SandboxId,
        _overhead: Option<&LinuxResources>,
        resources: &LinuxResources,
    ) -> CriResult<()> {
        let subject = self.driver.change(|state| state.model.sandbox_subject(id));
        self.driver
            .call(Operation::UpdatePodSandbox, subject, |model, _| {
                model.resize_sandbox(id, resources)
            })
            .await
    }

    async fn list_pod_sandboxes(&self, filter: &ListFilter) -> CriResult<Vec<SandboxSummary>> {
        self.driver
            .call(Operation::ListPodSandboxes, String::new(), |model, _| {
                Ok(model.list_sandboxes(filter))
            })
            .await
    }

    async fn create_container(
        &self,
        sandbox: &SandboxId,
        config: &ContainerConfig,
        sandbox_config: &SandboxConfig,
    ) -> CriResult<ContainerId> {
        let pod = sandbox_subject(sandbox_config);
        let subject = format!("{pod}/{}#{}", config.name, config.attempt);
        let name = container_name(config, sandbox_config);
        let reserved = self
            .driver
            .change(|state| state.model.reserve("container", &name));
        let mut reservation = Reservation {
            driver: &self.driver,
            name,
            kept: reserved.is_err(),
        };
        // it is created although its caller goes away
        let name = reservation.name.clone();
        let mut creation = CallInProgress {
            driver: &self.driver,
            cut_off: |model: &mut Model, now| {
                if let Ok(id) = &reserved {
                    let id = ContainerId::from(id.as_str());
                    drop(model.make_container(&id, sandbox, config.clone(), &name, now));
                }
            },
            answered: false,
        };
        let begun = self.driver.begin(Operation::CreateContainer, subject).await;
        creation.answered = true;
        drop(creation);
        let ticket = begun?;
        let result = self.driver.complete(&ticket, |model, now| {
            let id = ContainerId::from(reserved?);
            let name = reservation.name.as_str();
            model.make_container(&id, sandbox, config.clone(), name, now)?;
            Ok(id)
        });
        reservation.kept |= self
            .driver
            .change(|state| state.model.is_made(&reservation.name));
        result
    }

    async fn start_container(&self, id: &ContainerId) -> CriResult<()> {
        let subject = self.container_subject(id);
        let mut start = CallInProgress {
            driver: &self.driver,
            cut_off: |model: &mut Model, now| model.cut_off_start(id, now),
            answered: false,
        };
        let call = self
            .driver
            .call(Operation::StartContainer, subject, |model, now| {
                model.start_container(id, now)
            });
        let result = call.await;
        start.answered = true;
        result
    }

    async fn stop_container(&self, id: &ContainerId, grace: Duration) -> CriResult<()> {
        gone_is_fine(self.stop_container_raw(id, grace).await)
    }

    async fn remove_container(&self, id: &ContainerId) -> CriResult<()> {
        gone_is_fine(self.remove_container_raw(id).await)
    }

    async fn list_containers(&self, filter: &ListFilter) -> CriResult<Vec<ContainerSummary>> {
        self.driver
            .call(Operation::ListContainers, String::new(), |model, _| {
                Ok(model.list_containers(filter))
            })
            .await
    }

    async fn container_status(&self, id: &ContainerId) -> CriResult<ContainerDetail> {
        let subject = self.container_subject(id);
        self.driver
            .call(Operation::ContainerStatus, subject, |model, _| {
                model.container_detail(id)
            })
            .await
    }

    async fn update_container_resources(
        &self,
        id: &ContainerId,
        resources: &LinuxResources,
    ) -> CriResult<()> {
        let subject = self.container_subject(id);
        self.driver
            .call(Operation::UpdateContainer, subject, |model, _| {
                model.resize_container(id, resources)
            })
            .await
    }

    async fn exec_sync(
        &self,
        id: &ContainerId,
        command: &[String],
        timeout: Duration,
    ) -> CriResult<ExecOutput> {
        self.exec(id, command, timeout).await
    }

    async fn reopen_container_log(&self, id: &ContainerId) -> CriResult<()> {
        let subject = self.container_subject(id);
        self.driver
            .call(Operation::ReopenContainerLog, subject, |model, _| {
                model.container_detail(id).map(drop)
            })
            .await
    }

    async fn events(&self) -> CriResult<RuntimeEventStream> {
        let ticket = self.driver.begin(Operation::Events, String::new()).await?;
        if self.event_mode() == EventMode::Off {
            let message = "method GetContainerEvents not implemented".to_owned();
            return self
                .driver
                .finish(&ticket, Err((CriCode::Unimplemented, message)));
        }
        let receiver = self.driver.change(|state| state.events.subscribe());
        self.driver
            .finish(&ticket, Ok(UnboundedReceiverStream::new(receiver).boxed()))
    }
}

#[async_trait]
impl ImageService for FakeRuntime {
    async fn list_images(&self) -> CriResult<Vec<ImageInfo>> {
        self.driver
            .call(Operation::ListImages, String::new(), |model, _| {
                Ok(model.images.list())
            })
            .await
    }

    async fn image_status(&self, image: &str) -> CriResult<Option<ImageInfo>> {
        self.driver
            .call(Operation::ImageStatus, image.to_owned(), |model, _| {
                Ok(model.images.resolve(image).cloned())
            })
            .await
    }

    async fn pull_image(
        &self,
        image: &str,
        auth: Option<&ImageAuth>,
        _sandbox_config: &SandboxConfig,
    ) -> CriResult<String> {
        let ticket = self
            .driver
            .begin(Operation::PullImage, image.to_owned())
            .await?;
        let mut pull = self.driver.change(|state| state.model.images.pull(image));
        let username = auth.map(|auth| auth.username.as_str());
        if pull.username.is_some() && pull.username.as_deref() != username {
            pull.error = Some((CriCode::Other, "authorization failed".to_owned()));
        }
        if !pull.takes.is_zero() {
            tokio::time::sleep(pull.takes).await;
        }
        self.driver.complete(&ticket, |model, _| match pull.error {
            Some(error) => Err(error),
            None => Ok(model.images.add(image)),
        })
    }

    async fn remove_image(&self, image: &str) -> CriResult<()> {
        self.driver
            .call(Operation::RemoveImage, image.to_owned(), |model, _| {
                model.images.remove(image);
                Ok(())
            })
            .await
    }
}
