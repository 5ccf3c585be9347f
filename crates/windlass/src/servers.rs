//! The node API, the health port and the local API. All are bound before any actor starts; only the
//! health port may stay closed for now.
//!
//! Binding the socket in the root directory fails while another agent runs with the same one.

mod healthz;
mod measured;
mod node_api;

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use tokio::net::UnixListener;
use windlass::build::RuntimeClients;
use windlass::health::AgentHealth;
use windlass::wiring::Agent;
use windlass_client::ApiClient;
use windlass_config::Config;
use windlass_control::{ControlService, serve_control};
use windlass_dra::DraClaims;
use windlass_grpc_sockets::bind_socket;
use windlass_health::HealthSource;
use windlass_metrics::Metrics;
use windlass_node_api::Verbosity;
use windlass_pod_inputs::paths::NodePaths;
use windlass_pod_resources::{PodResources, Pods, Socket, serve_pod_resources, serve_pods};
use windlass_stats::StatsSource;
use windlass_status::PodExplainer;
use windlass_types::Clock;

use healthz::HealthPort;
use measured::host_stats;
use node_api::NodeApiPorts;

/// Dependencies of the servers besides the agent and its configuration.
#[derive(Debug)]
pub(crate) struct ServerContext {
    /// The container runtime.
    pub(crate) runtime: RuntimeClients,
    /// Client for token and access reviews; `None` in standalone mode.
    pub(crate) reviews: Option<ApiClient>,
    /// The node's addresses.
    pub(crate) host_ips: Vec<IpAddr>,
    /// Log verbosity.
    pub(crate) verbosity: Arc<dyn Verbosity>,
    /// The clock.
    pub(crate) clock: Arc<dyn Clock>,
    /// Metrics.
    pub(crate) metrics: Metrics,
}

/// Handles that several servers use.
#[derive(Clone, Debug)]
struct SharedHandles {
    health: Arc<dyn HealthSource>,
    stats: Arc<dyn StatsSource>,
    explainer: PodExplainer,
}

/// Bound listeners that are not served yet.
#[derive(Debug)]
pub(crate) struct Servers {
    api: NodeApiPorts,
    health: Option<HealthPort>,
    control: UnixListener,
    pod_resources: UnixListener,
    /// With the gate `PodsAPI`.
    pods: Option<UnixListener>,
    paths: NodePaths,
}

impl Servers {
    /// Binds the ports and sockets.
    pub(crate) async fn bind(config: &Config) -> anyhow::Result<Self> {
        let paths = NodePaths {
            root_dir: config.flags.root_dir.clone(),
            pod_logs_dir: PathBuf::from(&config.kubelet.pod_logs_dir),
        };
        let socket = paths.root_dir.join("windlass.sock");
        let control = bind_socket(&socket).context("local API socket")?;
        tracing::debug!(socket = %socket.display(), "local API bound");
        let open = |socket: Socket| socket.bind(&paths.root_dir);
        let pods = config.gates.enabled("PodsAPI").then(|| open(Socket::Pods));
        Ok(Self {
            api: NodeApiPorts::bind(&config.kubelet).await?,
            health: HealthPort::bind(&config.kubelet).await?,
            control,
            pod_resources: open(Socket::PodResources).context("PodResources socket")?,
            pods: pods.transpose().context("Pods API socket")?,
            paths,
        })
    }

    /// Serves until the agent's shutdown.
    ///
    /// # Errors
    /// The node API has no certificate, or a file that it needs cannot be read.
    pub(crate) async fn serve(
        self,
        agent: &Agent,
        config: &Config,
        context: ServerContext,
    ) -> anyhow::Result<()> {
        let token = agent.shutdown.token();
        let clock = Arc::clone(&context.clock);
        let health = AgentHealth::new(agent.clone(), Arc::clone(&clock), &config.kubelet);
        let health: Arc<dyn HealthSource> = Arc::new(health);
        let paths = self.paths.clone();
        let clients = &context.runtime;
        let stats = host_stats(
            agent,
            config,
            paths.clone(),
            Arc::clone(&clients.runtime),
            Arc::clone(&clients.images),
            Arc::clone(&clock),
        );
        let shared = SharedHandles {
            health: Arc::clone(&health),
            stats: Arc::new(stats),
            explainer: PodExplainer {
                status_store: agent.status_store.clone(),
                timelines: agent.timelines.clone(),
                eviction: agent.eviction.clone(),
                node_name: agent.node.name.clone(),
            },
        };
        self.api
            .serve(agent, config, paths, shared.clone(), &context)
            .await?;
        let service = PodResources::new(
            agent.status_store.clone(),
            config.gates.enabled("KubeletPodResourcesListUseActivePods"),
            context.metrics.pod_resources.clone(),
        )
        .with_claims(Arc::<DraClaims>::clone(&agent.claims))
        .with_assigned(agent.assigned.clone());
        let server = serve_pod_resources(self.pod_resources, service, token.clone());
        agent.shutdown.track(report_end("PodResources", server));
        if let Some(listener) = self.pods {
            let service = Pods::new(agent.status_store.clone(), token.clone());
            let server = serve_pods(listener, service, token.clone());
            agent.shutdown.track(report_end("Pods API", server));
        }
        if let Some(port) = self.health {
            let writes = agent.assigned.state_writes().clone();
            let server = port.serve(Arc::clone(&health), writes, token.clone());
            agent.shutdown.track(server);
        }
        let service = ControlService {
            status_store: agent.status_store.clone(),
            explainer: shared.explainer,
            stats: shared.stats,
            metrics: context.metrics,
            health,
            rejected: agent.rejected.clone(),
            node: Arc::new(agent.node.clone()),
            paths: self.paths,
            logs: agent.logs.clone(),
            clock,
            shutdown: token,
        };
        let server = serve_control(self.control, service);
        agent.shutdown.track(report_end("local API", server));
        Ok(())
    }
}

/// Returns the error of a failed bind, with its most likely cause.
fn bind_error(field: &str, address: IpAddr, port: u16, error: io::Error) -> anyhow::Error {
    let cause = match error.kind() {
        io::ErrorKind::AddrInUse => " (is another kubelet running?)",
        io::ErrorKind::AddrNotAvailable => " (no interface has this address)",
        _ => "",
    };
    let text = format!("cannot open {field} {port} on {address}{cause}");
    anyhow::Error::new(error).context(text)
}

/// Logs the error of a server that stopped before the agent's shutdown.
async fn report_end<E: std::fmt::Display>(
    name: &'static str,
    server: impl Future<Output = Result<(), E>>,
) {
    if let Err(error) = server.await {
        tracing::error!(name, %error, "server failed");
    }
}
