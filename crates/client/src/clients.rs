//! The clients of one node, none of which can hold another up.

use std::sync::Arc;
use std::time::Duration;

use http::uri::Authority;
use kube::client::Body;
use windlass_metrics::Metrics;

use crate::api::ApiClient;
use crate::config::{ApiServerConfig, ConfigError};
use crate::credentials::Credentials;
use crate::record::Recorder;
use crate::reflect::fnv1a_64;
use crate::transport::Transport;

/// The clients of one node. Cloning shares connections, limits and credentials.
#[derive(Clone, Debug)]
pub struct ApiClients {
    /// Everything that has no client of its own.
    pub main: ApiClient,
    /// Events, which may be many and may wait.
    pub events: ApiClient,
    /// The node's lease and status: no rate limit, short deadline.
    pub heartbeat: ApiClient,
    /// Watches and the lists they begin with; never shares a connection with the others.
    pub watch: ApiClient,
    /// Who asks this node, and whether they may: strangers decide how often. No rate limit here.
    pub reviews: ApiClient,
    host: String,
}

/// Rates and deadlines of [`ApiClients`].
#[derive(Clone, Debug, PartialEq)]
pub struct ClientLimits {
    /// `kubeAPIQPS`: requests a second of `main`.
    pub main_qps: f64,
    /// `kubeAPIBurst`.
    pub main_burst: u32,
    /// `eventRecordQPS`; zero is no limit.
    pub event_qps: f64,
    /// `eventBurst`.
    pub event_burst: u32,
    /// Deadline of a heartbeat: the lesser of the status update interval and the lease duration.
    pub heartbeat_timeout: Duration,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            main_qps: 50.0,
            main_burst: 100,
            event_qps: 50.0,
            event_burst: 100,
            heartbeat_timeout: Duration::from_secs(10),
        }
    }
}

impl ApiClients {
    /// Clients of the server that `config` names, each with connections of its own, opened by
    /// the first requests. Must be called inside a tokio runtime.
    pub fn connect(config: &ApiServerConfig, limits: &ClientLimits) -> Result<Self, ConfigError> {
        let credentials = Arc::new(Credentials::new(config.source.clone()));
        // the nodes of a cluster that lost its server do not come back in step
        let seed = fnv1a_64(0, rustix::system::uname().nodename().to_bytes());
        if let Some(proxy) = &config.proxy {
            tracing::info!(server = %config.server(), %proxy, "using a proxy for the API server");
        }
        let client = |timeout| -> Result<ApiClient, ConfigError> {
            let transport = Transport::new(config, credentials.clone())?;
            Ok(ApiClient::from_service(transport, timeout).with_jitter_seed(seed))
        };
        Ok(Self {
            main: client(REQUEST_TIMEOUT)?.with_rate_limit(limits.main_qps, limits.main_burst),
            events: client(REQUEST_TIMEOUT)?.with_rate_limit(limits.event_qps, limits.event_burst),
            heartbeat: client(limits.heartbeat_timeout)?,
            watch: client(REQUEST_TIMEOUT)?,
            reviews: client(REVIEW_TIMEOUT)?,
            host: config
                .server()
                .authority()
                .map_or("", Authority::as_str)
                .to_owned(),
        })
    }

    /// Clients of a server in the same process: no rate limits, the usual deadlines.
    pub fn in_process<S, B>(service: S) -> Self
    where
        S: tower::Service<http::Request<Body>, Response = http::Response<B>>
            + Clone
            + Send
            + 'static,
        S::Future: Send + 'static,
        S::Error: Into<tower::BoxError>,
        B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
        B::Error: Into<tower::BoxError>,
    {
        let limits = ClientLimits::default();
        Self {
            main: ApiClient::from_service(service.clone(), REQUEST_TIMEOUT),
            events: ApiClient::from_service(service.clone(), REQUEST_TIMEOUT),
            heartbeat: ApiClient::from_service(service.clone(), limits.heartbeat_timeout),
            watch: ApiClient::from_service(service.clone(), REQUEST_TIMEOUT),
            reviews: ApiClient::from_service(service, REVIEW_TIMEOUT),
            host: "in-process".to_owned(),
        }
    }

    /// The same clients, which count their requests.
    #[must_use]
    pub fn with_metrics(self, metrics: &Metrics) -> Self {
        let recorder = Recorder {
            metrics: metrics.clone(),
            host: self.host.clone(),
        };
        Self {
            main: self.main.with_recorder(recorder.clone()),
            events: self.events.with_recorder(recorder.clone()),
            heartbeat: self.heartbeat.with_recorder(recorder.clone()),
            watch: self.watch.with_recorder(recorder.clone()),
            reviews: self.reviews.with_recorder(recorder),
            host: self.host,
        }
    }
}

/// Deadline of a request that is no heartbeat. The server's own limit is 60 s.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Deadline of a review, upstream's `TokenRequestTimeout`: somebody waits for it.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
