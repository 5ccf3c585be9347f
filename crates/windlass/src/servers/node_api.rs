//! Port 10250 and the read-only port. Both are bound before any actor starts.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use windlass::build::node::kubelet_version;
use windlass::wiring::Agent;
use windlass_auth::access::AccessSettings;
use windlass_auth::{Auth, AuthSettings, Authorization, Reviews, require_auth};
use windlass_certs::ServingNames;
use windlass_certs::self_signed::self_signed;
use windlass_config::tls::TlsNumbers;
use windlass_config::{Config, KubeletConfiguration, shown_flags};
use windlass_cri::TrackedStreams;
use windlass_https::{
    Limits, ServingCertificate, TlsChoice, TlsProfile, TlsSource, Transport, files, serve,
};
use windlass_node::MachineRoots;
use windlass_node_api::{
    Journals, NodeApi, NodeApiDeps, NodeApiSettings, RequestSpans, ServerType, router, traced,
};
use windlass_pod_inputs::paths::NodePaths;
use windlass_stats::MachineFacts;
use windlass_stats::topology::Topology;
use windlass_streams::Sessions;
use windlass_types::Clock;

use super::{ServerContext, SharedHandles, bind_error};

/// Directory behind `/logs/`.
const SYSTEM_LOGS: &str = "/var/log";
/// The kernel's directory of CPUs.
const CPU_DEVICES: &str = "/sys/bus/cpu/devices";

/// The bound ports.
#[derive(Debug)]
pub(super) struct NodeApiPorts {
    secure: Option<TcpListener>,
    read_only: Option<TcpListener>,
}

impl NodeApiPorts {
    /// Binds `port` and `readOnlyPort` on `address`, if enabled.
    pub(super) async fn bind(kubelet: &KubeletConfiguration) -> anyhow::Result<Self> {
        if !kubelet.enable_server {
            return Ok(Self {
                secure: None,
                read_only: None,
            });
        }
        Ok(Self {
            secure: listener(kubelet, "port", kubelet.port).await?,
            read_only: listener(kubelet, "readOnlyPort", kubelet.read_only_port).await?,
        })
    }

    /// Serves until the agent's shutdown.
    ///
    /// # Errors
    /// A certificate is unusable, or a configured file unreadable.
    pub(super) async fn serve(
        self,
        agent: &Agent,
        config: &Config,
        paths: NodePaths,
        shared: SharedHandles,
        context: &ServerContext,
    ) -> anyhow::Result<()> {
        let shutdown = agent.shutdown.token();
        if self.secure.is_none() && self.read_only.is_none() {
            return Ok(());
        }
        let deps = node_api(agent, config, paths, shared, context, shutdown.clone());
        let api = NodeApi::new(deps);
        let spans = request_spans(agent, &context.clock);
        if let Some(listener) = self.read_only {
            let server = ServerType::ReadOnly;
            let routes = traced(router(api.clone(), server), server, spans.clone());
            let limits = Limits::default();
            let served = serve(listener, routes, Transport::Plain, limits, shutdown.clone());
            agent.shutdown.track(served);
        }
        if let Some(listener) = self.secure {
            let tls = tls(agent, config, context).await?;
            let auth = Auth::new(
                auth_settings(agent, config),
                context.reviews.as_ref().map(Reviews::from_client),
                context.metrics.access.clone(),
                Arc::clone(&context.clock),
            );
            let server = ServerType::ReadWrite;
            let routes = require_auth(traced(router(api, server), server, spans), auth);
            let served = serve(listener, routes, tls, Limits::default(), shutdown);
            agent.shutdown.track(served);
        }
        Ok(())
    }
}

/// Returns the recorder of request spans, if traces are exported.
fn request_spans(agent: &Agent, clock: &Arc<dyn Clock>) -> Option<Arc<RequestSpans>> {
    let sink = Arc::clone(agent.spans.as_ref()?);
    let spans = RequestSpans::new(sink, Arc::clone(clock), &agent.node.name);
    Some(Arc::new(spans))
}

/// Returns `None` for port 0.
async fn listener(
    kubelet: &KubeletConfiguration,
    field: &str,
    port: i32,
) -> anyhow::Result<Option<TcpListener>> {
    let Some(port) = u16::try_from(port).ok().filter(|port| *port != 0) else {
        return Ok(None);
    };
    let address: IpAddr = kubelet.address.parse().context("address")?;
    let listener = TcpListener::bind(SocketAddr::new(address, port)).await;
    let listener = listener.map_err(|error| bind_error(field, address, port, error))?;
    Ok(Some(listener))
}

fn node_api(
    agent: &Agent,
    config: &Config,
    paths: NodePaths,
    shared: SharedHandles,
    context: &ServerContext,
    shutdown: CancellationToken,
) -> NodeApiDeps {
    let clock = Arc::clone(&context.clock);
    let client = Arc::clone(&context.runtime.runtime);
    let streams = TrackedStreams::new(client, agent.hung_calls.clone());
    NodeApiDeps {
        status_store: agent.status_store.clone(),
        cache: agent.pleg.cache.clone(),
        explainer: shared.explainer,
        runtime: Arc::clone(&agent.runtime),
        streams: Arc::new(streams),
        sessions: Sessions::new(windlass_streams::Limits::default(), shutdown.clone()),
        stats: shared.stats,
        machine: Arc::new(machine(config)),
        health: shared.health,
        metrics: context.metrics.clone(),
        paths,
        system_logs: SYSTEM_LOGS.into(),
        node_name: agent.node.name.clone(),
        configz: Arc::new(config.configz()),
        flagz: Arc::new(shown_flags(std::env::args_os())),
        verbosity: Arc::clone(&context.verbosity),
        version: kubelet_version(),
        started: clock.now(),
        settings: settings(config),
        clock,
        shutdown,
        logs: agent.logs.clone(),
        journals: Journals::new("journalctl"),
    }
}

fn settings(config: &Config) -> NodeApiSettings {
    let (kubelet, gates) = (&config.kubelet, &config.gates);
    NodeApiSettings {
        debugging: kubelet.enable_debugging_handlers,
        profiling: kubelet.enable_profiling_handler,
        debug_flags: kubelet.enable_debug_flags_handler,
        system_logs: kubelet.enable_system_log_handler,
        log_query: kubelet.enable_system_log_query && gates.enabled("NodeLogQuery"),
        log_streams: gates.enabled("PodLogsQuerySplitStreams"),
        checkpoint: gates.enabled("ContainerCheckpoint"),
        websockets: gates.enabled("ExtendWebSocketsToKubelet"),
        flagz: gates.enabled("ComponentFlagz"),
        statusz: gates.enabled("ComponentStatusz"),
    }
}

fn machine(config: &Config) -> MachineFacts {
    let facts = MachineRoots::for_host(config.flags.root_dir.clone()).read();
    let topology = Topology::read(Path::new(CPU_DEVICES));
    MachineFacts {
        cpu_cores: u64::from(facts.cpus),
        physical_cores: topology.cores,
        sockets: topology.sockets,
        memory: facts.memory,
        swap: facts.swap,
        boot_id: facts.boot_id,
        machine_id: facts.machine_id,
        system_uuid: facts.system_uuid,
        kernel: facts.kernel_version,
        os: facts.os_image,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

fn auth_settings(agent: &Agent, config: &Config) -> AuthSettings {
    let kubelet = &config.kubelet;
    let (authn, authz) = (&kubelet.authentication, &kubelet.authorization);
    AuthSettings {
        node_name: agent.node.name.clone(),
        anonymous: authn.anonymous.enabled,
        token_ttl: authn
            .webhook
            .enabled
            .then(|| authn.webhook.cache_ttl.to_std()),
        authorization: match authz.mode.as_str() {
            "AlwaysAllow" => Authorization::AlwaysAllow,
            _ => Authorization::Webhook {
                allowed: authz.webhook.cache_authorized_ttl.to_std(),
                refused: authz.webhook.cache_unauthorized_ttl.to_std(),
            },
        },
        access: AccessSettings {
            exec_needs_create: config.flags.exec_needs_create,
        },
    }
}

/// Builds the transport from the serving certificate and the client CA.
async fn tls(agent: &Agent, config: &Config, context: &ServerContext) -> anyhow::Result<Transport> {
    let kubelet = &config.kubelet;
    let client_ca = match kubelet.authentication.x509.client_ca_file.as_str() {
        "" => None,
        path => {
            let bundle = files::Bundle::new(path);
            let read = bundle.read().await;
            let (sender, current) =
                watch::channel(read.context("authentication.x509.clientCAFile")?);
            agent.shutdown.track(bundle.follow(sender));
            Some(current)
        }
    };
    Ok(Transport::Tls(TlsSource {
        certificate: serving_certificate(agent, config, context).await?,
        client_ca,
        profile: TlsProfile::new(&tls_choice(kubelet)).context("tlsCipherSuites")?,
        clock: Arc::clone(&context.clock),
    }))
}

fn tls_choice(kubelet: &KubeletConfiguration) -> TlsChoice {
    let numbers = TlsNumbers::from_config(kubelet);
    TlsChoice {
        only_tls13: numbers.only_tls13,
        suites: numbers.suites,
        groups: numbers.groups,
    }
}

async fn serving_certificate(
    agent: &Agent,
    config: &Config,
    context: &ServerContext,
) -> anyhow::Result<watch::Receiver<Option<ServingCertificate>>> {
    let kubelet = &config.kubelet;
    let (sender, certificate) = watch::channel(None);
    if !kubelet.tls_cert_file.is_empty() {
        let pair = files::Pair::new(&kubelet.tls_cert_file, &kubelet.tls_private_key_file);
        let read = pair.read().await;
        sender.send_replace(Some(read.context("tlsCertFile and tlsPrivateKeyFile")?));
        agent.shutdown.track(pair.follow(sender));
        return Ok(certificate);
    }
    let cluster = agent.node.cluster.as_ref();
    if let Some(pairs) = cluster.and_then(|cluster| cluster.serving.clone()) {
        let parsed = files::parse_each(pairs, |pair| pair.pem().to_vec(), sender);
        agent.shutdown.track(parsed);
        return Ok(certificate);
    }
    let host = &agent.node.name;
    let names = ServingNames {
        dns: vec![host.clone()],
        ips: context.host_ips.clone(),
    };
    let pair = self_signed(&config.flags.cert_dir, host, &names, context.clock.now());
    let pair = pair.with_context(|| format!("--cert-dir={}", config.flags.cert_dir.display()))?;
    let parsed = ServingCertificate::from_pem(pair.pem()).with_context(|| {
        let dir = config.flags.cert_dir.display();
        format!("{dir}/kubelet.crt and kubelet.key (remove both to regenerate them)")
    })?;
    sender.send_replace(Some(parsed));
    // keeps the channel open while the certificate is in use
    agent.shutdown.track(async move { sender.closed().await });
    Ok(certificate)
}
