//! The clients of one node, which do not block each other.

use std::sync::Arc;
use std::time::Duration;

use http::uri::Authority;
use kube::client::Body;
use windlass_metrics::RestClientMetrics;

use crate::api::ApiClient;
use crate::config::{ApiServerConfig, ConfigError};
use crate::credentials::Credentials;
use crate::record::Recorder;
use crate::reflect::fnv1a_64;
use crate::transport::Transport;

/// The clients of one node. Cloning shares connections, limits and credentials.
#[derive(Clone, Debug)]
pub struct ApiClients {
    /// For everything without its own client.
    pub main: ApiClient,
    /// For events, which may be many and may be delayed.
    pub events: ApiClient,
    /// For the node's lease and status: no rate limit, short timeout.
    pub heartbeat: ApiClient,
    /// For watches and their initial lists; shares no connection with the others.
    pub watch: ApiClient,
    /// For token and access reviews, whose rate depends on unauthenticated clients. No rate limit
    /// here.
    pub reviews: ApiClient,
    host: String,
}

/// Rate limits and timeouts of [`ApiClients`].
#[derive(Clone, Debug, PartialEq)]
pub struct ClientLimits {
    /// `kubeAPIQPS`: requests per second of `main`.
    pub main_qps: f64,
    /// `kubeAPIBurst`.
    pub main_burst: u32,
    /// `eventRecordQPS`; zero means no limit.
    pub event_qps: f64,
    /// `eventBurst`.
    pub event_burst: u32,
    /// Timeout of a heartbeat: the minimum of the status update interval and the lease duration.
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
    /// Creates the clients of the server in `config`. Each opens its own connections with its
    /// first request. Must be called inside a tokio runtime.
    pub fn connect(config: &ApiServerConfig, limits: &ClientLimits) -> Result<Self, ConfigError> {
        let credentials = Arc::new(Credentials::new(config.source.clone()));
        // desynchronizes the nodes of a cluster after an API server outage
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

    /// Creates clients of a server in the same process: no rate limits, the default timeouts.
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

    /// Counts the requests of all clients.
    #[must_use]
    pub fn with_metrics(self, metrics: &RestClientMetrics) -> Self {
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

/// Timeout of requests except heartbeats. The server's own limit is 60 s.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of a review, upstream `TokenRequestTimeout`: a request is waiting for it.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
