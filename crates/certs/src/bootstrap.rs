//! Startup credentials, and the wait for the first certificate.

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

/// Paths of credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// `--kubeconfig`.
    pub kubeconfig: PathBuf,
    /// `--bootstrap-kubeconfig`.
    pub bootstrap_kubeconfig: Option<PathBuf>,
    /// `--cert-dir`.
    pub cert_dir: PathBuf,
}

/// Startup credentials.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Configuration of the API server. Without a certificate its identity is empty; send no
    /// request before [`Credentials::wait_for_identity`] returns.
    pub config: ApiServerConfig,
    /// Client certificates.
    pub store: CertificateStore,
    /// The chosen kind.
    pub startup: StartupCredentials,
    paths: Paths,
}

/// The kind of startup credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartupCredentials {
    /// The client certificate of the kubeconfig, which is rotated.
    Certificate,
    /// Other credentials of the kubeconfig, which are not rotated.
    Configured,
    /// The bootstrap credentials, for a CSR.
    Bootstrap,
}

/// No usable startup credentials.
#[derive(Debug, thiserror::Error)]
pub enum StartupCredentialsError {
    /// No kubeconfig and no bootstrap kubeconfig.
    #[error(
        "--kubeconfig: {} does not exist; create it, or set --bootstrap-kubeconfig", .0.display()
    )]
    Missing(PathBuf),
    /// The kubeconfig is unusable and there are no bootstrap credentials.
    #[error("--kubeconfig: {0}; correct it, or set --bootstrap-kubeconfig")]
    Kubeconfig(#[source] Box<ConfigError>),
    /// The bootstrap credentials are required and unusable.
    #[error(
        "--bootstrap-kubeconfig: {error}; required because of {}: {reason}", kubeconfig.display()
    )]
    Bootstrap {
        /// `--kubeconfig`.
        kubeconfig: PathBuf,
        /// Why the kubeconfig is not enough.
        reason: KubeconfigProblem,
        /// Why the bootstrap kubeconfig is unusable.
        #[source]
        error: Box<ConfigError>,
    },
    /// The kubeconfig for the new certificate cannot be written.
    #[error("--kubeconfig: {0}")]
    Write(#[source] Box<ConfigError>),
}

/// Why a kubeconfig is not enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KubeconfigProblem {
    /// The file does not exist.
    Missing,
    /// The file or its certificate is unusable.
    Unusable,
    /// It has no credentials.
    Anonymous,
    /// Its client certificate has expired or is not yet valid.
    NotCurrent,
}

impl fmt::Display for KubeconfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "file not found",
            Self::Unusable => "unusable",
            Self::Anonymous => "no credentials",
            Self::NotCurrent => "client certificate expired or not yet valid",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KubeconfigCredentials {
    /// Not enough.
    Insufficient(KubeconfigProblem),
    /// A token, a password or a plugin, without a client certificate.
    Header,
    /// A valid client certificate.
    Certificate,
}

/// The state of `--bootstrap-kubeconfig`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BootstrapKubeconfig {
    /// Not set.
    None,
    /// The file does not exist: kubeadm removes it after the node has joined.
    Missing,
    /// The file exists.
    Present,
}

/// Chooses the startup credentials; `None` without any. Without an alternative an expired
/// certificate is used: static pods start, and a new certificate can be provided.
///
/// Unlike upstream, a kubeconfig with a token is used even with bootstrap credentials: upstream
/// would overwrite it.
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
        // the error then names the missing file
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
    /// Reads the files and chooses the credentials. It sends no request, so that static pods do
    /// not wait for a CSR. If the bootstrap credentials are required, the kubeconfig is written
    /// for the new certificate, as by upstream.
    ///
    /// # Errors
    /// No usable credentials, with the flag and the file.
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
                // from here on only the rotation reads the files
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

    /// Waits until requests have an identity: for the first certificate, if there is none.
    pub async fn wait_for_identity(&self) {
        if self.startup == StartupCredentials::Configured {
            return;
        }
        let identity = self.config.identity();
        // subscribed before the check, so that no certificate is missed
        let mut generations = pin!(identity.generations());
        while !identity.is_present() {
            if generations.next().await.is_none() {
                return;
            }
        }
    }

    /// Returns the input of [`crate::run_client_rotation`]; `None` if the kubeconfig has other
    /// credentials. `client` is one of `config`'s.
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

/// Returns the server of the bootstrap kubeconfig, without its credentials.
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
    fn kubeconfig_and_bootstrap_kubeconfig_decide_on_credentials() {
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
