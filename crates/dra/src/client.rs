//! Client of a driver's DRAPlugin service over its socket.
//!
//! Messages of v1 are a superset of those of v1beta1 with the same numbers, so one client serves
//! both versions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::uri::PathAndQuery;
use tokio::time::{Instant, timeout};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;
use windlass_metrics::Metrics;
use windlass_plugin_proto::dra_v1 as pb;
use windlass_plugins::error_chain;

use crate::link::Link;
use crate::port::{ClaimDevice, ClaimDriver, ClaimRef, ClaimResult};

/// Timeout of a call (upstream `defaultClientCallTimeout`).
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(45);
/// Max bytes of a driver's message that are kept: it appears in events, statuses and logs.
const MAX_MESSAGE_BYTES: usize = 4096;
/// Max size of a response in bytes.
const MAX_RESPONSE_BYTES: usize = 4 << 20;

/// Version of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    V1Beta1,
}

impl Version {
    /// Versions from the newest, with the names under which plugins register them.
    pub(crate) const ALL: [(Self, &'static str); 2] = [
        (Self::V1, "v1.DRAPlugin"),
        (Self::V1Beta1, "v1beta1.DRAPlugin"),
    ];

    /// The first version of the plugin's list that is supported, as upstream.
    pub(crate) fn choose(offered: &[String]) -> Option<Self> {
        let known = |name: &String| Self::ALL.iter().find(|(_, it)| it == name);
        offered.iter().find_map(known).map(|(version, _)| *version)
    }

    fn path(self, prepare: bool) -> PathAndQuery {
        PathAndQuery::from_static(match (self, prepare) {
            (Self::V1, true) => "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
            (Self::V1, false) => "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources",
            (Self::V1Beta1, true) => {
                "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodePrepareResources"
            }
            (Self::V1Beta1, false) => {
                "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodeUnprepareResources"
            }
        })
    }
}

/// A client of one plugin of a driver.
#[derive(Clone, Debug)]
pub(crate) struct DraClient {
    driver: String,
    link: Arc<Link>,
    version: Version,
    metrics: Metrics,
}

impl DraClient {
    pub(crate) fn new(driver: &str, link: Arc<Link>, version: Version, metrics: Metrics) -> Self {
        Self {
            driver: driver.to_owned(),
            link,
            version,
            metrics,
        }
    }

    /// Makes one call and records its metric.
    async fn call<Q, A>(&self, prepare: bool, message: Q) -> Result<A, String>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let started = Instant::now();
        let path = self.version.path(prepare);
        let method = path.to_string();
        let attempt = async {
            let client = tonic::client::Grpc::new(self.link.channel().await?);
            let mut client = client.max_decoding_message_size(MAX_RESPONSE_BYTES);
            let ready = client.ready().await;
            ready.map_err(|error| Status::unavailable(error_chain(&error)))?;
            let mut request = Request::new(message);
            request.set_timeout(CALL_TIMEOUT);
            let codec = ProstCodec::<Q, A>::default();
            client.unary(request, path, codec).await
        };
        let outcome = timeout(CALL_TIMEOUT, attempt).await;
        let late = || Status::deadline_exceeded("context deadline exceeded");
        let outcome = outcome.unwrap_or_else(|_| Err(late()));
        // the transport reports its own timeout as a cancellation
        let outcome = outcome.map_err(|status| match started.elapsed() >= CALL_TIMEOUT {
            true => late(),
            false => status,
        });
        let code = outcome
            .as_ref()
            .map_or_else(|it| code_name(it.code()), |_| "OK".to_owned());
        let seconds = started.elapsed().as_secs_f64();
        let metrics = &self.metrics.dra;
        metrics.observe_call(&self.driver, &method, &code, seconds);
        outcome.map(tonic::Response::into_inner).map_err(|status| {
            let text = bounded(status.message());
            format!("rpc error: code = {code} desc = {text}")
        })
    }
}

/// Name of a code in Go.
fn code_name(code: Code) -> String {
    match code {
        Code::Ok => "OK".to_owned(),
        Code::Cancelled => "Canceled".to_owned(),
        code => format!("{code:?}"),
    }
}

fn bounded(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_MESSAGE_BYTES)]
}

fn claims(claims: &[ClaimRef]) -> Vec<pb::Claim> {
    let claim = |claim: &ClaimRef| pb::Claim {
        namespace: claim.namespace.clone(),
        uid: claim.uid.clone(),
        name: claim.name.clone(),
    };
    claims.iter().map(claim).collect()
}

fn result<T>(error: &str, value: T) -> ClaimResult<T> {
    match error {
        "" => Ok(value),
        error => Err(bounded(error).to_owned()),
    }
}

#[async_trait]
impl ClaimDriver for DraClient {
    async fn prepare(
        &self,
        of: &[ClaimRef],
    ) -> Result<BTreeMap<String, ClaimResult<Vec<ClaimDevice>>>, String> {
        let request = pb::NodePrepareResourcesRequest { claims: claims(of) };
        let response: pb::NodePrepareResourcesResponse = self.call(true, request).await?;
        let device = |device: pb::Device| ClaimDevice {
            pool: device.pool_name,
            device: device.device_name,
            share_id: device.share_id,
            requests: device.request_names,
            cdi_devices: device.cdi_device_ids,
        };
        let results = response.claims.into_iter().map(|(uid, it)| {
            let devices = it.devices.into_iter().map(device).collect();
            (uid, result(&it.error, devices))
        });
        Ok(results.collect())
    }

    async fn unprepare(
        &self,
        of: &[ClaimRef],
    ) -> Result<BTreeMap<String, ClaimResult<()>>, String> {
        let request = pb::NodeUnprepareResourcesRequest { claims: claims(of) };
        let response: pb::NodeUnprepareResourcesResponse = self.call(false, request).await?;
        let results = response.claims.into_iter();
        Ok(results
            .map(|(uid, it)| (uid, result(&it.error, ())))
            .collect())
    }
}
