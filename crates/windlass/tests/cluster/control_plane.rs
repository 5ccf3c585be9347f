//! The API server of a theme, fake or real.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use windlass_client::{ApiClients, ApiServerConfig, ClientLimits};
use windlass_fake_api::{FakeApiServer, KubeconfigUser, TlsServer};
use windlass_testing::agent::NODE_NAME;
use windlass_testing::control_plane::{Assets, ControlPlane};

/// Which API server a theme runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Fake,
    Real,
    /// A real one with controller manager and scheduler.
    WithControllers,
}

/// A running API server.
pub(crate) enum Cluster {
    Fake {
        api: FakeApiServer,
        tls: TlsServer,
        dir: PathBuf,
    },
    Real(Box<ControlPlane>),
}

/// Lifetime of the fake's certificates.
pub(crate) const LIFETIME: Duration = Duration::from_secs(3600);

impl Kind {
    /// Programs that it requires.
    ///
    /// # Errors
    /// They are missing.
    pub(crate) fn assets(self) -> Result<Option<Assets>, &'static str> {
        if self == Self::Fake {
            return Ok(None);
        }
        let assets = Assets::from_env()
            .ok_or("KUBEBUILDER_ASSETS does not name a folder with kube-apiserver and etcd")?;
        if self == Self::WithControllers && !assets.has_controllers() {
            return Err("KUBEBUILDER_ASSETS has no kube-controller-manager and kube-scheduler");
        }
        Ok(Some(assets))
    }
}

impl Cluster {
    /// Starts the API server with its files below `dir`.
    pub(crate) async fn start(kind: Kind, assets: Option<Assets>, dir: &Path) -> Self {
        std::fs::create_dir_all(dir).unwrap();
        let Some(assets) = assets else {
            let api = FakeApiServer::new();
            let tls = api.serve_tls().await.unwrap();
            let dir = dir.to_owned();
            return Self::Fake { api, tls, dir };
        };
        let mut plane = ControlPlane::start(&assets, dir).await.unwrap();
        if kind == Kind::WithControllers {
            plane.start_controllers().unwrap();
        }
        Self::Real(Box::new(plane))
    }

    /// The fake API server, if it is one.
    pub(crate) fn fake(&self) -> Option<&FakeApiServer> {
        match self {
            Self::Fake { api, .. } => Some(api),
            Self::Real(_) => None,
        }
    }

    /// Path of the kubeconfig of the node.
    pub(crate) fn node_kubeconfig(&self) -> PathBuf {
        match self {
            Self::Fake { tls, dir, .. } => {
                let name = format!("system:node:{NODE_NAME}");
                let pem = tls.issue_client_cert(&name, &["system:nodes"], LIFETIME);
                let path = dir.join("node.kubeconfig");
                let user = pem.unwrap();
                tls.kubeconfig(&path, KubeconfigUser::Certificate(&user))
                    .unwrap();
                path
            }
            Self::Real(plane) => plane.node_kubeconfig(NODE_NAME).unwrap(),
        }
    }

    /// Path of a kubeconfig with a bearer token.
    pub(crate) fn token_kubeconfig(&self, token: &str) -> PathBuf {
        match self {
            Self::Fake { tls, dir, .. } => {
                let path = dir.join("token.kubeconfig");
                tls.kubeconfig(&path, KubeconfigUser::Token(token)).unwrap();
                path
            }
            Self::Real(plane) => plane.token_kubeconfig(token).unwrap(),
        }
    }

    /// Path of the administrator's kubeconfig; of the real one only.
    pub(crate) fn admin_kubeconfig(&self) -> PathBuf {
        match self {
            Self::Fake { .. } => panic!("the fake server has no kubeconfig for people"),
            Self::Real(plane) => plane.admin_kubeconfig().unwrap(),
        }
    }

    /// Configuration for requests of the API server to an agent at `address`: serving certificate
    /// and client CA. Empty with the fake one.
    pub(crate) fn serving_config(&self, address: IpAddr) -> String {
        let Self::Real(plane) = self else {
            return String::new();
        };
        let (certificate, key) = plane.node_serving_pair(address).unwrap();
        format!(
            "tlsCertFile: {}\ntlsPrivateKeyFile: {}\n\
             authentication: {{ x509: {{ clientCAFile: {} }} }}\n",
            certificate.display(),
            key.display(),
            plane.ca_file()
        )
    }

    /// A program of the folder of the real API server.
    pub(crate) fn program(&self, name: &str) -> Option<PathBuf> {
        match self {
            Self::Fake { .. } => None,
            Self::Real(plane) => plane.program(name),
        }
    }

    /// Clients of an administrator.
    pub(crate) fn admin(&self) -> ApiClients {
        match self {
            Self::Fake { api, .. } => api.clients(),
            Self::Real(plane) => {
                let path = plane.admin_kubeconfig().unwrap();
                let config = ApiServerConfig::from_kubeconfig(&path).unwrap();
                let limits = ClientLimits {
                    main_qps: 0.0,
                    ..ClientLimits::default()
                };
                ApiClients::connect(&config, &limits).unwrap()
            }
        }
    }

    /// Stops or restarts the server: in between connections are refused. The
    /// clients of a test still reach the fake, which is in the same process.
    pub(crate) async fn outage(&mut self, on: bool) {
        match self {
            Self::Fake { tls, .. } if on => tls.stop().await,
            Self::Fake { tls, .. } => tls.restart().await.unwrap(),
            Self::Real(plane) if on => plane.stop_api(),
            Self::Real(plane) => plane.start_api().await.unwrap(),
        }
    }
}
