//! A control plane on loopback: etcd, kube-apiserver and optionally kube-controller-manager and
//! kube-scheduler.
//!
//! All its files (keys, data, logs) are in one directory. Inside the directory of a
//! [`crate::containerd::PrivateContainerd`], its sweep also cleans up after a killed run.

mod daemon;
mod pki;
mod ready;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::time::Instant;

use daemon::Daemon;
use pki::{Pki, Subject};

/// Required programs.
const NEEDED: [&str; 2] = ["etcd", "kube-apiserver"];
const CONTROLLERS: [&str; 2] = ["kube-controller-manager", "kube-scheduler"];
/// Start timeout; kube-apiserver takes 10 s on two busy cores.
const READY_DEADLINE: Duration = Duration::from_secs(90);
/// Interval of readiness checks.
const POLL: Duration = Duration::from_millis(50);
/// Service CIDR.
pub(crate) const SERVICE_RANGE: &str = "10.96.0.0/16";

/// Directory with the programs of a control plane.
#[derive(Clone, Debug)]
pub struct Assets(PathBuf);

impl Assets {
    /// Returns the directory in `KUBEBUILDER_ASSETS`, if it has the required programs.
    pub fn from_env() -> Option<Self> {
        let folder = PathBuf::from(std::env::var_os("KUBEBUILDER_ASSETS")?);
        let assets = Self(folder);
        NEEDED
            .iter()
            .all(|name| assets.program(name).is_some())
            .then_some(assets)
    }

    /// Whether it has controllers and scheduler.
    pub fn has_controllers(&self) -> bool {
        CONTROLLERS.iter().all(|name| self.program(name).is_some())
    }

    /// Returns the path of a program.
    pub fn program(&self, name: &str) -> Option<PathBuf> {
        let path = self.0.join(name);
        path.is_file().then_some(path)
    }

    fn required(&self, name: &str) -> anyhow::Result<PathBuf> {
        self.program(name)
            .with_context(|| format!("{} has no {name}", self.0.display()))
    }
}

/// A running control plane. The drop kills its programs in reverse order.
#[derive(Debug)]
pub struct ControlPlane {
    assets: Assets,
    dir: PathBuf,
    pki: Pki,
    api: SocketAddr,
    etcd_url: String,
    // dropped in this order
    controllers: Vec<Daemon>,
    api_server: Option<Daemon>,
    _etcd: Daemon,
}

impl ControlPlane {
    /// Starts etcd and kube-apiserver (with NodeRestriction) on free ports with all files in `dir`, and
    /// waits until the API server is ready.
    ///
    /// # Errors
    /// A program is missing, exits early or does not become ready.
    pub async fn start(assets: &Assets, dir: &Path) -> anyhow::Result<Self> {
        let dir = std::path::absolute(dir)?;
        std::fs::create_dir_all(&dir)?;
        let api = free_address()?;
        let pki = Pki::create(&dir.join("pki"), &format!("https://{api}"))?;
        let etcd_client = free_address()?;
        let etcd_url = format!("http://{etcd_client}");
        let peer_url = format!("http://{}", free_address()?);
        let etcd = Daemon::start(
            &assets.required("etcd")?,
            &dir,
            &[
                "--name=windlass".to_owned(),
                format!("--data-dir={}", dir.join("etcd-data").display()),
                format!("--listen-client-urls={etcd_url}"),
                format!("--advertise-client-urls={etcd_url}"),
                format!("--listen-peer-urls={peer_url}"),
                format!("--initial-advertise-peer-urls={peer_url}"),
                format!("--initial-cluster=windlass={peer_url}"),
                "--unsafe-no-fsync".to_owned(),
            ],
        )?;
        let mut plane = Self {
            assets: assets.clone(),
            dir,
            pki,
            api,
            etcd_url,
            controllers: Vec::new(),
            api_server: None,
            _etcd: etcd,
        };
        plane.start_api().await?;
        Ok(plane)
    }

    /// Starts the API server (again) on the same port and data, and waits until it is ready.
    ///
    /// # Errors
    /// It exits early or does not become ready.
    pub async fn start_api(&mut self) -> anyhow::Result<()> {
        let args = self.api_args()?;
        let program = self.assets.required("kube-apiserver")?;
        let mut daemon = Daemon::start(&program, &self.dir, &args)?;
        let deadline = Instant::now() + READY_DEADLINE;
        while let Err(error) = ready::check(self.api, self.pki.ca_der()).await {
            daemon.check_alive()?;
            if Instant::now() > deadline {
                bail!(
                    "kube-apiserver is not ready ({error:#}): {}",
                    daemon.last_words()
                );
            }
            tokio::time::sleep(POLL).await;
        }
        self.api_server = Some(daemon);
        Ok(())
    }

    /// Kills the API server.
    pub fn stop_api(&mut self) {
        self.api_server = None;
    }

    /// Starts kube-controller-manager, which also signs approved CSRs, and kube-scheduler, without
    /// waiting for readiness.
    ///
    /// # Errors
    /// A program is missing.
    pub fn start_controllers(&mut self) -> anyhow::Result<()> {
        let pki = &self.pki;
        let manager = pki.kubeconfig(&Subject::user("system:kube-controller-manager"))?;
        let scheduler = pki.kubeconfig(&Subject::user("system:kube-scheduler"))?;
        let common = |kubeconfig: &Path| -> anyhow::Result<Vec<String>> {
            let kubeconfig = kubeconfig.display();
            Ok(vec![
                format!("--kubeconfig={kubeconfig}"),
                format!("--authentication-kubeconfig={kubeconfig}"),
                format!("--authorization-kubeconfig={kubeconfig}"),
                "--bind-address=127.0.0.1".to_owned(),
                format!("--secure-port={}", free_address()?.port()),
                "--leader-elect=false".to_owned(),
            ])
        };
        let mut manager_args = common(&manager)?;
        manager_args.extend([
            "--use-service-account-credentials=true".to_owned(),
            format!("--root-ca-file={}", pki.file("ca.crt")),
            format!("--service-account-private-key-file={}", pki.file("sa.key")),
            format!("--cluster-signing-cert-file={}", pki.file("ca.crt")),
            format!("--cluster-signing-key-file={}", pki.file("ca.key")),
        ]);
        for (name, args) in [
            ("kube-controller-manager", manager_args),
            ("kube-scheduler", common(&scheduler)?),
        ] {
            let program = self.assets.required(name)?;
            let daemon = Daemon::start(&program, &self.dir, &args)?;
            self.controllers.push(daemon);
        }
        Ok(())
    }

    /// `https://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("https://{}", self.api)
    }

    /// Writes the kubeconfig of an administrator.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn admin_kubeconfig(&self) -> anyhow::Result<PathBuf> {
        self.pki.kubeconfig(&Subject {
            group: Some("system:masters".to_owned()),
            ..Subject::user("kubernetes-admin")
        })
    }

    /// Writes the kubeconfig of the node `name`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn node_kubeconfig(&self, name: &str) -> anyhow::Result<PathBuf> {
        self.pki.kubeconfig(&Subject {
            group: Some("system:nodes".to_owned()),
            ..Subject::user(&format!("system:node:{name}"))
        })
    }

    /// Writes a serving certificate of the node at `address` and its key, which the API server
    /// verifies.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn node_serving_pair(&self, address: IpAddr) -> anyhow::Result<(PathBuf, PathBuf)> {
        self.pki.serving_pair("node-serving", address)
    }

    /// Path of the authority's certificate.
    pub fn ca_file(&self) -> String {
        self.pki.file("ca.crt")
    }

    /// Writes a kubeconfig with a bearer token. The caller creates the Secret of a bootstrap token
    /// (`abcdef.0123456789abcdef`).
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn token_kubeconfig(&self, token: &str) -> anyhow::Result<PathBuf> {
        self.pki.token_kubeconfig(token)
    }

    /// Returns the path of a program, such as `kubectl`.
    pub fn program(&self, name: &str) -> Option<PathBuf> {
        self.assets.program(name)
    }

    fn api_args(&self) -> anyhow::Result<Vec<String>> {
        let pki = &self.pki;
        let to_kubelet = pki.certificate(&Subject {
            group: Some("system:masters".to_owned()),
            ..Subject::user("kube-apiserver-kubelet-client")
        })?;
        Ok(vec![
            format!("--bind-address={}", self.api.ip()),
            format!("--advertise-address={}", self.api.ip()),
            format!("--secure-port={}", self.api.port()),
            // a node address on loopback would be rejected
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--etcd-servers={}", self.etcd_url),
            format!("--client-ca-file={}", pki.file("ca.crt")),
            format!("--tls-cert-file={}", pki.file("apiserver.crt")),
            format!("--tls-private-key-file={}", pki.file("apiserver.key")),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            "--enable-bootstrap-token-auth=true".to_owned(),
            // beta, and off by default
            "--feature-gates=PodCertificateRequest=true".to_owned(),
            "--runtime-config=certificates.k8s.io/v1beta1=true".to_owned(),
            "--allow-privileged=true".to_owned(),
            format!("--service-cluster-ip-range={SERVICE_RANGE}"),
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
            format!("--service-account-key-file={}", pki.file("sa.pub")),
            format!("--service-account-signing-key-file={}", pki.file("sa.key")),
            format!("--kubelet-client-certificate={}", to_kubelet.0.display()),
            format!("--kubelet-client-key={}", to_kubelet.1.display()),
            format!("--kubelet-certificate-authority={}", pki.file("ca.crt")),
            "--kubelet-preferred-address-types=InternalIP,Hostname".to_owned(),
        ])
    }
}

/// Returns a free loopback address.
fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}
