//! The three gRPC services: record the call, then apply its fault and effect.

use std::path::PathBuf;
use std::sync::Arc;

use tonic::{Request, Response, Status, async_trait};
use windlass_plugin_proto::csi_v1::identity_server::Identity;
use windlass_plugin_proto::csi_v1::node_server::Node;
use windlass_plugin_proto::csi_v1::node_service_capability::{Rpc, Type};
use windlass_plugin_proto::csi_v1::volume_capability::AccessType;
use windlass_plugin_proto::csi_v1::volume_capability::access_mode::Mode;
use windlass_plugin_proto::csi_v1::{self as pb, VolumeCapability};
use windlass_plugin_proto::pluginregistration_v1 as registration;
use windlass_plugin_proto::pluginregistration_v1::registration_server::Registration;

use super::state::Shared;
use super::{Call, FaultKind, FaultTiming, Method};

type RpcResult<T> = Result<Response<T>, Status>;

#[derive(Clone, Debug)]
pub(super) struct Service(pub(super) Arc<Shared>);

impl Service {
    async fn respond<T>(
        &self,
        call: Call,
        act: impl FnOnce(&Shared, &Call) -> Result<T, Status>,
    ) -> RpcResult<T> {
        let fault = self.0.record_call(&call);
        if let Some(fault) = fault
            .as_ref()
            .filter(|fault| fault.timing == FaultTiming::Before)
        {
            self.apply_fault(&fault.kind).await?;
        }
        let done = act(&self.0, &call)?;
        if let Some(fault) = fault.filter(|fault| fault.timing == FaultTiming::After) {
            self.apply_fault(&fault.kind).await?;
        }
        Ok(Response::new(done))
    }

    async fn apply_fault(&self, kind: &FaultKind) -> Result<(), Status> {
        match kind {
            FaultKind::Reject(code, message) => Err(Status::new(*code, message)),
            FaultKind::Slow(time) => {
                tokio::time::sleep(*time).await;
                Ok(())
            }
            FaultKind::Hang => std::future::pending().await,
            FaultKind::Exit => {
                self.0.die();
                std::future::pending().await
            }
        }
    }
}

impl Call {
    fn new(method: Method) -> Self {
        Self {
            method,
            volume: String::new(),
            path: PathBuf::new(),
            staging: PathBuf::new(),
            block: false,
            read_only: false,
            access_mode: String::new(),
            fs_type: String::new(),
            mount_flags: Vec::new(),
            mount_group: String::new(),
            context: Default::default(),
            publish_context: Default::default(),
            secrets: Default::default(),
            wanted_bytes: 0,
        }
    }

    fn for_volume(method: Method, volume: String, path: String) -> Self {
        Self {
            volume,
            path: PathBuf::from(path),
            ..Self::new(method)
        }
    }

    fn with(mut self, capability: Option<VolumeCapability>) -> Self {
        let Some(capability) = capability else {
            return self;
        };
        if let Some(mode) = capability.access_mode {
            let mode = Mode::try_from(mode.mode).unwrap_or(Mode::Unknown);
            self.access_mode = mode.as_str_name().to_owned();
        }
        match capability.access_type {
            Some(AccessType::Block(_)) => self.block = true,
            Some(AccessType::Mount(mount)) => {
                self.fs_type = mount.fs_type;
                self.mount_flags = mount.mount_flags;
                self.mount_group = mount.volume_mount_group;
            }
            None => {}
        }
        self
    }
}

#[async_trait]
impl Registration for Service {
    async fn get_info(
        &self,
        _: Request<registration::InfoRequest>,
    ) -> RpcResult<registration::PluginInfo> {
        let call = Call::new(Method::GetInfo);
        self.respond(call, |driver, _| {
            let options = &driver.options;
            Ok(registration::PluginInfo {
                r#type: "CSIPlugin".to_owned(),
                name: options
                    .registered_name
                    .as_ref()
                    .unwrap_or(&options.name)
                    .clone(),
                endpoint: options.socket().display().to_string(),
                supported_versions: options.versions.clone(),
            })
        })
        .await
    }

    async fn notify_registration_status(
        &self,
        request: Request<registration::RegistrationStatus>,
    ) -> RpcResult<registration::RegistrationStatusResponse> {
        let status = request.into_inner();
        let call = Call::new(Method::NotifyRegistrationStatus);
        self.respond(call, |driver, _| {
            driver.record_registration(match status.plugin_registered {
                true => Ok(()),
                false => Err(status.error),
            });
            Ok(registration::RegistrationStatusResponse {})
        })
        .await
    }
}

#[async_trait]
impl Identity for Service {
    async fn get_plugin_info(
        &self,
        _: Request<pb::GetPluginInfoRequest>,
    ) -> RpcResult<pb::GetPluginInfoResponse> {
        Ok(Response::new(pb::GetPluginInfoResponse {
            name: self.0.options.name.clone(),
            vendor_version: "test".to_owned(),
            ..Default::default()
        }))
    }

    async fn probe(&self, _: Request<pb::ProbeRequest>) -> RpcResult<pb::ProbeResponse> {
        Ok(Response::new(pb::ProbeResponse { ready: Some(true) }))
    }
}

#[async_trait]
impl Node for Service {
    async fn node_get_info(
        &self,
        _: Request<pb::NodeGetInfoRequest>,
    ) -> RpcResult<pb::NodeGetInfoResponse> {
        self.respond(Call::new(Method::NodeGetInfo), |driver, _| {
            let segments = driver.options.topology.clone();
            Ok(pb::NodeGetInfoResponse {
                node_id: driver.options.node_id.clone(),
                max_volumes_per_node: driver.state().max_volumes,
                accessible_topology: (!segments.is_empty()).then_some(pb::Topology { segments }),
            })
        })
        .await
    }

    async fn node_get_capabilities(
        &self,
        _: Request<pb::NodeGetCapabilitiesRequest>,
    ) -> RpcResult<pb::NodeGetCapabilitiesResponse> {
        self.respond(Call::new(Method::NodeGetCapabilities), |driver, _| {
            let capabilities = driver.options.capabilities.iter();
            let capabilities = capabilities.map(|capability| pb::NodeServiceCapability {
                r#type: Some(Type::Rpc(Rpc {
                    r#type: i32::from(*capability),
                })),
            });
            Ok(pb::NodeGetCapabilitiesResponse {
                capabilities: capabilities.collect(),
            })
        })
        .await
    }

    async fn node_stage_volume(
        &self,
        request: Request<pb::NodeStageVolumeRequest>,
    ) -> RpcResult<pb::NodeStageVolumeResponse> {
        let asked = request.into_inner();
        let (volume, path) = (asked.volume_id, asked.staging_target_path);
        let call = Call {
            context: asked.volume_context,
            publish_context: asked.publish_context,
            secrets: asked.secrets,
            ..Call::for_volume(Method::NodeStageVolume, volume, path).with(asked.volume_capability)
        };
        self.respond(call, Shared::stage)
            .await
            .map(|_| Response::new(pb::NodeStageVolumeResponse {}))
    }

    async fn node_unstage_volume(
        &self,
        request: Request<pb::NodeUnstageVolumeRequest>,
    ) -> RpcResult<pb::NodeUnstageVolumeResponse> {
        let asked = request.into_inner();
        let (volume, path) = (asked.volume_id, asked.staging_target_path);
        let call = Call::for_volume(Method::NodeUnstageVolume, volume, path);
        self.respond(call, Shared::unstage)
            .await
            .map(|_| Response::new(pb::NodeUnstageVolumeResponse {}))
    }

    async fn node_publish_volume(
        &self,
        request: Request<pb::NodePublishVolumeRequest>,
    ) -> RpcResult<pb::NodePublishVolumeResponse> {
        let asked = request.into_inner();
        let (volume, path) = (asked.volume_id, asked.target_path);
        let call = Call {
            staging: PathBuf::from(asked.staging_target_path),
            read_only: asked.readonly,
            context: asked.volume_context,
            publish_context: asked.publish_context,
            secrets: asked.secrets,
            ..Call::for_volume(Method::NodePublishVolume, volume, path)
                .with(asked.volume_capability)
        };
        self.respond(call, Shared::publish)
            .await
            .map(|_| Response::new(pb::NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<pb::NodeUnpublishVolumeRequest>,
    ) -> RpcResult<pb::NodeUnpublishVolumeResponse> {
        let asked = request.into_inner();
        let (volume, path) = (asked.volume_id, asked.target_path);
        let call = Call::for_volume(Method::NodeUnpublishVolume, volume, path);
        self.respond(call, Shared::unpublish)
            .await
            .map(|_| Response::new(pb::NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<pb::NodeGetVolumeStatsRequest>,
    ) -> RpcResult<pb::NodeGetVolumeStatsResponse> {
        let asked = request.into_inner();
        let call = Call {
            staging: PathBuf::from(asked.staging_target_path),
            ..Call::for_volume(
                Method::NodeGetVolumeStats,
                asked.volume_id,
                asked.volume_path,
            )
        };
        self.respond(call, Shared::stats).await
    }

    async fn node_expand_volume(
        &self,
        request: Request<pb::NodeExpandVolumeRequest>,
    ) -> RpcResult<pb::NodeExpandVolumeResponse> {
        let asked = request.into_inner();
        let (volume, path) = (asked.volume_id, asked.volume_path);
        let call = Call {
            staging: PathBuf::from(asked.staging_target_path),
            secrets: asked.secrets,
            wanted_bytes: asked.capacity_range.map_or(0, |range| range.required_bytes),
            ..Call::for_volume(Method::NodeExpandVolume, volume, path).with(asked.volume_capability)
        };
        self.respond(call, Shared::expand).await
    }
}
