//! With which credentials the agent begins, and when it may ask for the first time.

use std::fmt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use windlass_client::{ApiClient, ApiServerConfig, ClientIdentity, ConfigError};
use windlass_types::{Clock, Timestamp};

use crate::rotation::plan::Validity;
use crate::rotation::{Bootstrap, ClientRotation};
use crate::store::CertificateStore;

/// The files that credentials come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// `--kubeconfig`.
    pub kubeconfig: PathBuf,
    /// `--bootstrap-kubeconfig`.
    pub bootstrap_kubeconfig: Option<PathBuf>,
    /// `--cert-dir`.
    pub cert_dir: PathBuf,
}

/// What the agent begins with.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The API server and how to ask it. Until the first certificate is there, its identity is
    /// empty: nobody may ask before [`Credentials::wait_for_identity`] returns.
    pub config: ApiServerConfig,
    /// Client certificates.
    pub store: CertificateStore,
    /// How it was decided.
    pub startup: StartupCredentials,
    paths: Paths,
}

/// How the agent begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartupCredentials {
    /// With the client certificate of the kubeconfig, which is kept current.
    Certificate,
    /// With what else the kubeconfig has: nothing of it is rotated.
    Configured,
    /// By asking for a certificate with the bootstrap credentials.
    Bootstrap,
}

/// There are no credentials to begin with.
#[derive(Debug, thiserror::Error)]
pub enum StartupCredentialsError {
    /// There is nothing at all.
    #[error(
        "--kubeconfig: {} does not exist: write it, or name credentials to join the cluster with \
         in --bootstrap-kubeconfig", .0.display()
    )]
    Missing(PathBuf),
    /// The kubeconfig cannot be used and there are no bootstrap credentials.
    #[error(
        "--kubeconfig: {0}; correct it, or name credentials to join the cluster with in \
         --bootstrap-kubeconfig"
    )]
    Kubeconfig(#[source] Box<ConfigError>),
    /// The bootstrap credentials are needed and cannot be used.
    #[error(
        "--bootstrap-kubeconfig: {error}; it is needed because {}: {reason}", kubeconfig.display()
    )]
    Bootstrap {
        /// `--kubeconfig`.
        kubeconfig: PathBuf,
        /// Why that is not enough.
        reason: KubeconfigProblem,
        /// What is wrong with the bootstrap kubeconfig.
        #[source]
        error: Box<ConfigError>,
    },
    /// The kubeconfig for the certificate to come cannot be written.
    #[error("--kubeconfig: {0}")]
    Write(#[source] Box<ConfigError>),
}

/// Why a kubeconfig is not enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KubeconfigProblem {
    /// There is no such file.
    Missing,
    /// It, or the certificate that it names, cannot be used.
    Unusable,
    /// It has no credentials.
    Anonymous,
    /// Its client certificate is over, or has not begun.
    NotCurrent,
}

impl fmt::Display for KubeconfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "there is no such file",
            Self::Unusable => "it cannot be used",
            Self::Anonymous => "it has no credentials",
            Self::NotCurrent => "its client certificate is not valid now",
        })
    }
}

/// What a kubeconfig has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KubeconfigCredentials {
    /// It is not enough.
    Insufficient(KubeconfigProblem),
    /// A token, a password or a plugin, and no client certificate.
    Header,
    /// A client certificate that is valid now.
    Certificate,
}

/// What `--bootstrap-kubeconfig` offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BootstrapKubeconfig {
    /// It is not given.
    None,
    /// It names a file that is not there: kubeadm removes it once the node has joined.
    Missing,
    /// The file is there.
    Present,
}

/// Decides; `None` if there is nothing to begin with. A certificate that is over is begun with if
/// there is nothing better: static pods run, and a new one may be put in its place.
///
/// Unlike upstream, a kubeconfig with a token is used although there are bootstrap credentials:
/// upstream would write over it.
pub(crate) fn startup_credentials(
    found: KubeconfigCredentials,
    bootstrap_kubeconfig: BootstrapKubeconfig,
) -> Option<StartupCredentials> {
    match (found, bootstrap_kubeconfig) {
        (KubeconfigCredentials::Certificate, _) => Some(StartupCredentials::Certificate),
        (KubeconfigCredentials::Header, _) => Some(StartupCredentials::Configured),
        (KubeconfigCredentials::Insufficient(_), BootstrapKubeconfig::Present) => {
            Some(StartupCredentials::Bootstrap)
        }
        (KubeconfigCredentials::Insufficient(KubeconfigProblem::NotCurrent), _) => {
            Some(StartupCredentials::Certificate)
        }
        // which then says that the file is missing
        (KubeconfigCredentials::Insufficient(_), BootstrapKubeconfig::Missing) => {
            Some(StartupCredentials::Bootstrap)
        }
        (
            KubeconfigCredentials::Insufficient(KubeconfigProblem::Anonymous),
            BootstrapKubeconfig::None,
        ) => Some(StartupCredentials::Configured),
        (
            KubeconfigCredentials::Insufficient(
                KubeconfigProblem::Missing | KubeconfigProblem::Unusable,
            ),
            BootstrapKubeconfig::None,
        ) => None,
    }
}

impl Credentials {
    /// Reads the files and decides. Asks nobody, and waits for nothing but the disk: static pods
    /// must not wait until a signing request is approved. If the bootstrap credentials are
    /// needed, the kubeconfig is written, for the certificate to come; one that was there is
    /// replaced, as by upstream.
    ///
    /// # Errors
    /// There are no credentials; which flag and file to see to.
    pub fn load(paths: Paths, now: Timestamp) -> Result<Self, StartupCredentialsError> {
        let store = CertificateStore::client(&paths.cert_dir);
        let read = ApiServerConfig::from_kubeconfig(&paths.kubeconfig);
        let found = found(&paths.kubeconfig, &read, now);
        let bootstrap_kubeconfig = match &paths.bootstrap_kubeconfig {
            None => BootstrapKubeconfig::None,
            Some(path) if path.exists() => BootstrapKubeconfig::Present,
            Some(_) => BootstrapKubeconfig::Missing,
        };
        let startup = startup_credentials(found, bootstrap_kubeconfig);
        tracing::info!(
            ?found,
            ?bootstrap_kubeconfig,
            ?startup,
            "credentials for the API server"
        );
        let config = match (startup, read, &paths.bootstrap_kubeconfig) {
            (Some(StartupCredentials::Bootstrap), _, Some(bootstrap)) => {
                bootstrapped(&paths.kubeconfig, bootstrap, &store, found)?
            }
            (Some(StartupCredentials::Certificate), Ok(config), _) => {
                // from here on the loop reads the files, and knows which certificate is newer
                let identity = config.identity().detached();
                config.with_identity(identity)
            }
            (_, Ok(config), _) => config,
            (_, Err(_), _)
                if found == KubeconfigCredentials::Insufficient(KubeconfigProblem::Missing) =>
            {
                return Err(StartupCredentialsError::Missing(paths.kubeconfig));
            }
            (_, Err(error), _) => return Err(StartupCredentialsError::Kubeconfig(Box::new(error))),
        };
        Ok(Self {
            config,
            store,
            startup: startup.unwrap_or(StartupCredentials::Configured),
            paths,
        })
    }

    /// Returns as soon as a request would not be anonymous: at once, but for a node that waits
    /// for its first certificate.
    pub async fn wait_for_identity(&self) {
        if self.startup == StartupCredentials::Configured {
            return;
        }
        let identity = self.config.identity();
        // subscribed before the question: a certificate that comes between is not missed
        let mut generations = pin!(identity.generations());
        while !identity.is_present() {
            if generations.next().await.is_none() {
                return;
            }
        }
    }

    /// What [`crate::run_client_rotation`] works with; `None` if the kubeconfig has no client
    /// certificate and will not get one. `client` is one of `config`'s.
    pub fn client_rotation(
        &self,
        node: &str,
        client: ApiClient,
        rotate: bool,
        clock: Arc<dyn Clock>,
    ) -> Option<ClientRotation> {
        (self.startup != StartupCredentials::Configured).then(|| ClientRotation {
            node: node.to_owned(),
            store: self.store.clone(),
            kubeconfig: Some(self.paths.kubeconfig.clone()),
            identity: self.config.identity().clone(),
            client,
            bootstrap: match &self.paths.bootstrap_kubeconfig {
                Some(path) => Bootstrap::Kubeconfig(path.clone()),
                None => Bootstrap::None,
            },
            rotate,
            clock,
            metrics: None,
        })
    }
}

fn found(
    path: &Path,
    read: &Result<ApiServerConfig, ConfigError>,
    now: Timestamp,
) -> KubeconfigCredentials {
    let config = match read {
        Ok(config) => config,
        Err(_) if !path.exists() => {
            return KubeconfigCredentials::Insufficient(KubeconfigProblem::Missing);
        }
        Err(_) => return KubeconfigCredentials::Insufficient(KubeconfigProblem::Unusable),
    };
    match Validity::from_identity(config.identity()) {
        Some(validity) if validity.is_current(now) => KubeconfigCredentials::Certificate,
        Some(_) => KubeconfigCredentials::Insufficient(KubeconfigProblem::NotCurrent),
        None if config.has_header() => KubeconfigCredentials::Header,
        None => KubeconfigCredentials::Insufficient(KubeconfigProblem::Anonymous),
    }
}

/// The server of the bootstrap kubeconfig, without its credentials.
fn bootstrapped(
    kubeconfig: &Path,
    bootstrap: &Path,
    store: &CertificateStore,
    found: KubeconfigCredentials,
) -> Result<ApiServerConfig, StartupCredentialsError> {
    let config = ApiServerConfig::from_kubeconfig(bootstrap).map_err(|error| {
        let reason = match found {
            KubeconfigCredentials::Insufficient(lack) => lack,
            KubeconfigCredentials::Header | KubeconfigCredentials::Certificate => {
                KubeconfigProblem::Unusable
            }
        };
        StartupCredentialsError::Bootstrap {
            kubeconfig: kubeconfig.to_owned(),
            reason,
            error: Box::new(error),
        }
    })?;
    let pair = store.current_path();
    config
        .write_kubeconfig(kubeconfig, &pair, &pair)
        .map_err(|error| StartupCredentialsError::Write(Box::new(error)))?;
    Ok(config.with_identity_alone(ClientIdentity::none()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kubeconfig_has_and_whether_there_is_a_bootstrap_one_decide() {
        let check = |found, bootstrap_kubeconfig, expected: &str| {
            let decided = startup_credentials(found, bootstrap_kubeconfig);
            let line = decided.map_or("nothing".to_owned(), |it| format!("{it:?}"));
            assert_eq!(line, expected, "{found:?} {bootstrap_kubeconfig:?}");
        };
        for bootstrap_kubeconfig in [
            BootstrapKubeconfig::None,
            BootstrapKubeconfig::Missing,
            BootstrapKubeconfig::Present,
        ] {
            check(
                KubeconfigCredentials::Certificate,
                bootstrap_kubeconfig,
                "Certificate",
            );
            check(
                KubeconfigCredentials::Header,
                bootstrap_kubeconfig,
                "Configured",
            );
        }
        let lines = [
            (
                KubeconfigProblem::Missing,
                ["nothing", "Bootstrap", "Bootstrap"],
            ),
            (
                KubeconfigProblem::Unusable,
                ["nothing", "Bootstrap", "Bootstrap"],
            ),
            (
                KubeconfigProblem::Anonymous,
                ["Configured", "Bootstrap", "Bootstrap"],
            ),
            (
                KubeconfigProblem::NotCurrent,
                ["Certificate", "Certificate", "Bootstrap"],
            ),
        ];
        for (lack, [none, named, file]) in lines {
            check(
                KubeconfigCredentials::Insufficient(lack),
                BootstrapKubeconfig::None,
                none,
            );
            check(
                KubeconfigCredentials::Insufficient(lack),
                BootstrapKubeconfig::Missing,
                named,
            );
            check(
                KubeconfigCredentials::Insufficient(lack),
                BootstrapKubeconfig::Present,
                file,
            );
        }
    }
}
