//! The services of a device plugin.

use std::sync::Arc;

use tokio_stream::StreamExt;
use tokio_stream::wrappers::WatchStream;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};
use windlass_plugin_proto::deviceplugin_v1beta1::device_plugin_server::DevicePlugin;
use windlass_plugin_proto::deviceplugin_v1beta1::{self as pb, Empty};
use windlass_plugin_proto::pluginregistration_v1 as registration;

use super::{PluginCall, PluginFault, Shared, TestDevice};

#[derive(Clone)]
pub(super) struct Service(pub Arc<Shared>);

impl Service {
    /// Records a call and applies its fault. Returns whether the response lies.
    async fn begin(&self, call: PluginCall, ids: &[String]) -> Result<bool, Status> {
        let fault = {
            let mut state = self.0.state();
            let text = format!("{call:?} {}", ids.join(","));
            state.calls.push(text.trim_end().to_owned());
            state.faults.get(&call).cloned()
        };
        match fault {
            None => Ok(false),
            Some(PluginFault::Lie) => Ok(true),
            Some(PluginFault::Fail(code, text)) => Err(Status::new(code, text)),
            Some(PluginFault::Die) => {
                self.0.die();
                std::future::pending().await
            }
            Some(PluginFault::Hang) => std::future::pending().await,
        }
    }
}

#[tonic::async_trait]
impl DevicePlugin for Service {
    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<pb::DevicePluginOptions>, Status> {
        self.begin(PluginCall::Options, &[]).await?;
        Ok(Response::new(self.0.options()))
    }

    async fn list_and_watch(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<BoxStream<pb::ListAndWatchResponse>>, Status> {
        let lie = self.begin(PluginCall::List, &[]).await?;
        let lists = WatchStream::new(self.0.devices.subscribe());
        let lists = lists.filter_map(move |devices| {
            let mut devices = devices?;
            if lie {
                devices.push(TestDevice::healthy("", &[-7, i64::MAX]));
            }
            let devices = devices.into_iter().map(message).collect();
            Some(Ok(pb::ListAndWatchResponse { devices }))
        });
        Ok(Response::new(Box::pin(lists)))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<pb::PreferredAllocationRequest>,
    ) -> Result<Response<pb::PreferredAllocationResponse>, Status> {
        let requests = request.into_inner().container_requests;
        let available = requests.into_iter().flat_map(|it| it.available_device_i_ds);
        let available: Vec<String> = available.collect();
        let ids = match self.begin(PluginCall::Preferred, &available).await? {
            true => vec!["no-such-device".to_owned()],
            false => self.0.settings.preferred.clone(),
        };
        let response = pb::ContainerPreferredAllocationResponse { device_i_ds: ids };
        Ok(Response::new(pb::PreferredAllocationResponse {
            container_responses: vec![response],
        }))
    }

    async fn allocate(
        &self,
        request: Request<pb::AllocateRequest>,
    ) -> Result<Response<pb::AllocateResponse>, Status> {
        let requests = request.into_inner().container_requests;
        let ids: Vec<String> = requests.into_iter().flat_map(|it| it.devices_ids).collect();
        if self.begin(PluginCall::Allocate, &ids).await? {
            return Ok(Response::new(pb::AllocateResponse::default()));
        }
        let mut response = self.0.settings.response.clone();
        response
            .envs
            .insert("TEST_DEVICES".to_owned(), ids.join(","));
        Ok(Response::new(pb::AllocateResponse {
            container_responses: vec![response],
        }))
    }

    async fn pre_start_container(
        &self,
        request: Request<pb::PreStartContainerRequest>,
    ) -> Result<Response<pb::PreStartContainerResponse>, Status> {
        let ids = request.into_inner().devices_ids;
        self.begin(PluginCall::PreStart, &ids).await?;
        Ok(Response::new(pb::PreStartContainerResponse {}))
    }
}

#[tonic::async_trait]
impl registration::registration_server::Registration for Service {
    async fn get_info(
        &self,
        _: Request<registration::InfoRequest>,
    ) -> Result<Response<registration::PluginInfo>, Status> {
        let settings = &self.0.settings;
        Ok(Response::new(registration::PluginInfo {
            r#type: "DevicePlugin".to_owned(),
            name: settings.resource.clone(),
            endpoint: String::new(),
            supported_versions: vec![settings.version.clone()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<registration::RegistrationStatus>,
    ) -> Result<Response<registration::RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        let text = match status.plugin_registered {
            true => "Registered".to_owned(),
            false => format!("Rejected {}", status.error),
        };
        self.0.state().calls.push(text);
        Ok(Response::new(registration::RegistrationStatusResponse {}))
    }
}

fn message(device: TestDevice) -> pb::Device {
    let nodes: Vec<pb::NumaNode> = (device.nodes.into_iter())
        .map(|id| pb::NumaNode { id })
        .collect();
    pb::Device {
        id: device.id,
        health: device.health,
        topology: (!nodes.is_empty()).then_some(pb::TopologyInfo { nodes }),
    }
}
