//! Parts of a cluster node: API clients, credentials and reporting settings.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::watch;
use windlass_certs::{
    CertificateStore, ClientRotation, Credentials, Paths, ServingNames, ServingPair,
    ServingRotation, run_client_rotation, run_serving_rotation,
};
use windlass_client::{ApiClients, ClientLimits};
use windlass_config::{Config, KubeletConfiguration};
use windlass_csi::CsiObjects;
use windlass_mailboxes::spawn_io;
use windlass_metrics::CertificateMetrics;
use windlass_metrics::Metrics;
use windlass_node::{Machine, MachineRoots, NodeStatusSettings};
use windlass_node_rules::node_object::NodeSettings;
use windlass_objects::ApiCsiObjects;
use windlass_types::Clock;

/// The parts that a cluster node has and a standalone agent lacks.
#[derive(Debug)]
pub struct ClusterParts {
    /// Clients of the API server.
    pub clients: ApiClients,
    /// API objects that CSI mounts require.
    pub csi: Arc<dyn CsiObjects>,
    /// Settings of node registration and status updates.
    pub status: NodeStatusSettings,
    /// Source of facts about the host.
    pub machine: Machine,
    /// `nodeLeaseDurationSeconds`.
    pub lease_seconds: u32,
    /// Certificates to rotate; `None` in simulations.
    pub certificates: Option<Certificates>,
}

/// The node's certificates and their rotation settings.
#[derive(Clone, Debug)]
pub struct Certificates {
    /// Credentials loaded at startup.
    pub credentials: Credentials,
    /// `rotateCertificates`.
    pub rotate: bool,
    /// `serverTLSBootstrap`: the cluster issues the serving certificates.
    pub serving: Option<(CertificateStore, Vec<IpAddr>)>,
}

/// Builds the parts from the configuration, without opening a connection.
///
/// # Errors
/// There are no usable credentials.
pub fn connect(
    config: &Config,
    kubeconfig: &Path,
    settings: Arc<NodeSettings>,
    roots: MachineRoots,
    (metrics, clock): (&Metrics, &Arc<dyn Clock>),
) -> anyhow::Result<ClusterParts> {
    let kubelet = &config.kubelet;
    let cert_dir = config.flags.cert_dir.clone();
    let paths = Paths {
        kubeconfig: kubeconfig.to_owned(),
        bootstrap_kubeconfig: config.flags.bootstrap_kubeconfig.clone(),
        cert_dir: cert_dir.clone(),
    };
    let credentials = Credentials::load(paths, clock.now())?;
    let clients = ApiClients::connect(&credentials.config, &limits(kubelet))
        .context("--kubeconfig")?
        .with_metrics(&metrics.rest_client);
    // a device plugin manager leaves this checkpoint
    let plugins = roots
        .root_dir
        .join("device-plugins/kubelet_internal_checkpoint");
    let serving = kubelet
        .server_tls_bootstrap
        .then(|| (CertificateStore::serving(cert_dir), settings.ips.clone()));
    Ok(ClusterParts {
        csi: Arc::new(ApiCsiObjects::new(&clients, Arc::clone(clock))),
        clients,
        status: NodeStatusSettings {
            node: settings,
            register: kubelet.register_node,
            reset_extended_resources: !plugins.exists(),
            update_frequency: kubelet.node_status_update_frequency.to_std(),
            report_frequency: kubelet.node_status_report_frequency.to_std(),
        },
        machine: Machine::Files(roots),
        lease_seconds: lease_seconds(kubelet),
        certificates: Some(Certificates {
            credentials,
            rotate: kubelet.rotate_certificates,
            serving,
        }),
    })
}

impl ClusterParts {
    /// Completes once there are credentials for requests.
    pub(crate) fn wait_for_identity(&self) -> impl Future<Output = ()> + Send + use<> {
        let certificates = self.certificates.clone();
        async move {
            if let Some(certificates) = certificates {
                certificates.credentials.wait_for_identity().await;
            }
        }
    }

    /// Starts the certificate rotations; returns the serving certificate if the cluster issues it.
    pub(crate) fn spawn_rotations(
        &self,
        clock: &Arc<dyn Clock>,
        metrics: &CertificateMetrics,
    ) -> Option<watch::Receiver<Option<ServingPair>>> {
        let certificates = self.certificates.clone()?;
        let node = &self.status.node.name;
        let client = self.clients.main.clone();
        let rotation = certificates.credentials.client_rotation(
            node,
            client.clone(),
            certificates.rotate,
            Arc::clone(clock),
        );
        if let Some(rotation) = rotation {
            let metrics = Some(metrics.clone());
            let rotation = ClientRotation {
                metrics,
                ..rotation
            };
            spawn_io("client-certificate", run_client_rotation(rotation));
        }
        let (store, ips) = certificates.serving?;
        let (names_sender, names) = watch::channel(ServingNames {
            dns: vec![node.clone()],
            ips,
        });
        let (current, serving) = watch::channel(None);
        let rotation = ServingRotation {
            node: node.clone(),
            names,
            store,
            client,
            clock: Arc::clone(clock),
            current,
            metrics: Some(metrics.clone()),
        };
        spawn_io("serving-certificate", async move {
            certificates.credentials.wait_for_identity().await;
            run_serving_rotation(rotation).await;
            drop(names_sender);
        });
        Some(serving)
    }
}

/// Rate limits and timeouts of the clients.
fn limits(kubelet: &KubeletConfiguration) -> ClientLimits {
    let lease = Duration::from_secs(u64::from(lease_seconds(kubelet)));
    ClientLimits {
        main_qps: f64::from(kubelet.kube_api_qps),
        main_burst: u32::try_from(kubelet.kube_api_burst).unwrap_or(0),
        event_qps: f64::from(kubelet.event_record_qps),
        event_burst: u32::try_from(kubelet.event_burst).unwrap_or(0),
        heartbeat_timeout: kubelet.node_status_update_frequency.to_std().min(lease),
    }
}

fn lease_seconds(kubelet: &KubeletConfiguration) -> u32 {
    u32::try_from(kubelet.node_lease_duration_seconds).unwrap_or(0)
}
