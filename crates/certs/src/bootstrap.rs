//! With which credentials the agent begins, and when it may ask for the first time.

use std::fmt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use windlass_client::{ApiClient, ApiServerConfig, ClientIdentity, ConfigError};
use windlass_types::{Clock, Timestamp};

use crate::rotation::plan::Validity;
use crate::rotation::{Bootstrap, KeepClient};
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
    pub beginning: Beginning,
    paths: Paths,
}

/// How the agent begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// With the client certificate of the kubeconfig, which is kept current.
    Certificate,
    /// With what else the kubeconfig has: nothing of it is rotated.
    Configured,
    /// By asking for a certificate with the bootstrap credentials.
    Bootstrap,
}

/// There are no credentials to begin with.
#[derive(Debug, thiserror::Error)]
pub enum BeginError {
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
        reason: Lack,
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
pub enum Lack {
    /// There is no such file.
    Missing,
    /// It, or the certificate that it names, cannot be used.
    Unusable,
    /// It has no credentials.
    Anonymous,
    /// Its client certificate is over, or has not begun.
    NotCurrent,
}

impl fmt::Display for Lack {
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
pub(crate) enum Found {
    /// It is not enough.
    Lacks(Lack),
    /// A token, a password or a plugin, and no client certificate.
    Header,
    /// A client certificate that is valid now.
    Certificate,
}

/// What `--bootstrap-kubeconfig` offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    /// It is not given.
    None,
    /// It names a file that is not there: kubeadm removes it once the node has joined.
    Named,
    /// The file is there.
    File,
}

/// Decides; `None` if there is nothing to begin with. A certificate that is over is begun with if
/// there is nothing better: static pods run, and a new one may be put in its place.
///
/// Unlike upstream, a kubeconfig with a token is used although there are bootstrap credentials:
/// upstream would write over it.
pub(crate) fn begin(found: Found, offer: Offer) -> Option<Beginning> {
    match (found, offer) {
        (Found::Certificate, _) => Some(Beginning::Certificate),
        (Found::Header, _) => Some(Beginning::Configured),
        (Found::Lacks(_), Offer::File) => Some(Beginning::Bootstrap),
        (Found::Lacks(Lack::NotCurrent), _) => Some(Beginning::Certificate),
        // which then says that the file is missing
        (Found::Lacks(_), Offer::Named) => Some(Beginning::Bootstrap),
        (Found::Lacks(Lack::Anonymous), Offer::None) => Some(Beginning::Configured),
        (Found::Lacks(Lack::Missing | Lack::Unusable), Offer::None) => None,
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
    pub fn begin(paths: Paths, now: Timestamp) -> Result<Self, BeginError> {
        let store = CertificateStore::client(&paths.cert_dir);
        let read = ApiServerConfig::from_kubeconfig(&paths.kubeconfig);
        let found = found(&paths.kubeconfig, &read, now);
        let offer = match &paths.bootstrap_kubeconfig {
            None => Offer::None,
            Some(path) if path.exists() => Offer::File,
            Some(_) => Offer::Named,
        };
        let beginning = begin(found, offer);
        tracing::info!(?found, ?offer, ?beginning, "credentials for the API server");
        let config = match (beginning, read, &paths.bootstrap_kubeconfig) {
            (Some(Beginning::Bootstrap), _, Some(bootstrap)) => {
                bootstrapped(&paths.kubeconfig, bootstrap, &store, found)?
            }
            (Some(Beginning::Certificate), Ok(config), _) => {
                // from here on the loop reads the files, and knows which certificate is newer
                let identity = config.identity().detached();
                config.with_identity(identity)
            }
            (_, Ok(config), _) => config,
            (_, Err(_), _) if found == Found::Lacks(Lack::Missing) => {
                return Err(BeginError::Missing(paths.kubeconfig));
            }
            (_, Err(error), _) => return Err(BeginError::Kubeconfig(Box::new(error))),
        };
        Ok(Self {
            config,
            store,
            beginning: beginning.unwrap_or(Beginning::Configured),
            paths,
        })
    }

    /// Returns as soon as a request would not be anonymous: at once, but for a node that waits
    /// for its first certificate.
    pub async fn wait_for_identity(&self) {
        if self.beginning == Beginning::Configured {
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

    /// What [`crate::keep_client_certificate`] works with; `None` if the kubeconfig has no client
    /// certificate and will not get one. `client` is one of `config`'s.
    pub fn keep(
        &self,
        node: &str,
        client: ApiClient,
        rotate: bool,
        clock: Arc<dyn Clock>,
    ) -> Option<KeepClient> {
        (self.beginning != Beginning::Configured).then(|| KeepClient {
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

fn found(path: &Path, read: &Result<ApiServerConfig, ConfigError>, now: Timestamp) -> Found {
    let config = match read {
        Ok(config) => config,
        Err(_) if !path.exists() => return Found::Lacks(Lack::Missing),
        Err(_) => return Found::Lacks(Lack::Unusable),
    };
    match Validity::of(config.identity()) {
        Some(validity) if validity.is_current(now) => Found::Certificate,
        Some(_) => Found::Lacks(Lack::NotCurrent),
        None if config.has_header() => Found::Header,
        None => Found::Lacks(Lack::Anonymous),
    }
}

/// The server of the bootstrap kubeconfig, without its credentials.
fn bootstrapped(
    kubeconfig: &Path,
    bootstrap: &Path,
    store: &CertificateStore,
    found: Found,
) -> Result<ApiServerConfig, BeginError> {
    let config = ApiServerConfig::from_kubeconfig(bootstrap).map_err(|error| {
        let reason = match found {
            Found::Lacks(lack) => lack,
            Found::Header | Found::Certificate => Lack::Unusable,
        };
        BeginError::Bootstrap {
            kubeconfig: kubeconfig.to_owned(),
            reason,
            error: Box::new(error),
        }
    })?;
    let pair = store.current_path();
    config
        .write_kubeconfig(kubeconfig, &pair, &pair)
        .map_err(|error| BeginError::Write(Box::new(error)))?;
    Ok(config.with_identity_alone(ClientIdentity::none()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kubeconfig_has_and_whether_there_is_a_bootstrap_one_decide() {
        let check = |found, offer, expected: &str| {
            let decided = begin(found, offer);
            let line = decided.map_or("nothing".to_owned(), |it| format!("{it:?}"));
            assert_eq!(line, expected, "{found:?} {offer:?}");
        };
        for offer in [Offer::None, Offer::Named, Offer::File] {
            check(Found::Certificate, offer, "Certificate");
            check(Found::Header, offer, "Configured");
        }
        let lines = [
            (Lack::Missing, ["nothing", "Bootstrap", "Bootstrap"]),
            (Lack::Unusable, ["nothing", "Bootstrap", "Bootstrap"]),
            (Lack::Anonymous, ["Configured", "Bootstrap", "Bootstrap"]),
            (
                Lack::NotCurrent,
                ["Certificate", "Certificate", "Bootstrap"],
            ),
        ];
        for (lack, [none, named, file]) in lines {
            check(Found::Lacks(lack), Offer::None, none);
            check(Found::Lacks(lack), Offer::Named, named);
            check(Found::Lacks(lack), Offer::File, file);
        }
    }
}
