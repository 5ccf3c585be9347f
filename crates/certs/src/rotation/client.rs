//! Rotation of the client certificate.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use windlass_client::{
    ApiClient, ApiClients, ApiServerConfig, CertificateStatus, ClientIdentity, ClientLimits,
    ConfigError,
};
use windlass_metrics::CertificateMetrics;
use windlass_types::Clock;

use super::obtain::{self, ObtainError, obtain, on_disk};
use super::plan::{MAX_WAIT, RotationState, Step, Validity, backoff, newest, step};
use crate::csr::Identity;
use crate::store::CertificateStore;

/// Timeout of a renewal, upstream's.
pub(super) const RENEWAL_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Timeout of the first certificate, upstream's.
const BOOTSTRAP_TIMEOUT: Duration = Duration::from_secs(3600);
/// Interval of checks for new credentials without valid ones.
const NO_CREDENTIALS_INTERVAL: Duration = Duration::from_secs(10);

/// The input of [`run_client_rotation`].
#[derive(Clone, Debug)]
pub struct ClientRotation {
    /// Name of the node.
    pub node: String,
    /// Files.
    pub store: CertificateStore,
    /// `--kubeconfig`: its certificate counts like one in `store`.
    pub kubeconfig: Option<PathBuf>,
    /// The identity of all clients.
    pub identity: ClientIdentity,
    /// The client with the current certificate.
    pub client: ApiClient,
    /// Credentials without a certificate.
    pub bootstrap: Bootstrap,
    /// `rotateCertificates`.
    pub rotate: bool,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Counts failed attempts.
    pub metrics: Option<CertificateMetrics>,
}

/// Credentials for CSRs only.
#[derive(Clone, Debug)]
pub enum Bootstrap {
    /// No credentials.
    None,
    /// `--bootstrap-kubeconfig`, read for each attempt: a token lives for a day, and a new one
    /// must not need an agent restart.
    Kubeconfig(PathBuf),
    /// A client.
    Client(Box<ApiClient>),
}

impl Bootstrap {
    fn is_present(&self) -> bool {
        match self {
            Self::None => false,
            Self::Kubeconfig(path) => path.exists(),
            Self::Client(_) => true,
        }
    }

    fn connect(&self) -> Result<Option<ApiClient>, ConfigError> {
        Ok(match self {
            Self::None => None,
            Self::Kubeconfig(path) => {
                let config = ApiServerConfig::from_kubeconfig(path)?;
                Some(ApiClients::connect(&config, &ClientLimits::default())?.main)
            }
            Self::Client(client) => Some(*client.clone()),
        })
    }
}

/// Rotates the client certificate: obtains the first one, renews it, uses externally replaced
/// files, and recovers from an expired or rejected one. Never ends.
pub async fn run_client_rotation(rotation: ClientRotation) {
    let mut failures = 0;
    // certificates obtained since the server last accepted one
    let mut replaced = 0;
    loop {
        if rotation.identity.certificate_status() == CertificateStatus::Accepted {
            replaced = 0;
        }
        let next = rotation.next(replaced).await;
        tracing::debug!(step = %next, "client certificate");
        match next {
            Step::Wait(time) => tokio::time::sleep(time).await,
            Step::NoCredentials => {
                failures += 1;
                if failures == 1 {
                    tracing::error!(
                        file = %rotation.store.current_path().display(),
                        kubeconfig = ?rotation.kubeconfig,
                        bootstrap = ?rotation.bootstrap,
                        "client certificate invalid and no bootstrap credentials; provide either \
                         one, no restart required"
                    );
                }
                tokio::time::sleep(NO_CREDENTIALS_INTERVAL).await;
            }
            Step::Renew | Step::Bootstrap => {
                let outcome = tokio::select! {
                    outcome = rotation.obtain(next) => outcome,
                    () = rotation.recovered(replaced) => {
                        tracing::info!("CSR no longer needed");
                        continue;
                    }
                };
                match outcome {
                    Ok(()) => {
                        failures = 0;
                        replaced += 1;
                        // bounds the rate if new certificates are due for renewal at once
                        tokio::time::sleep(MAX_WAIT).await;
                    }
                    Err(error) => {
                        failures += 1;
                        if let Some(metrics) = &rotation.metrics {
                            metrics.client_renew_errors.inc();
                        }
                        let backoff = backoff(failures, &rotation.node);
                        tracing::warn!(%error, retry_in = ?backoff, "client certificate not obtained");
                        tokio::time::sleep(backoff).await;
                    }
                }
            }
        }
    }
}

impl ClientRotation {
    async fn next(&self, replaced: u32) -> Step {
        let (validity, bootstrap) = self.load().await;
        let rejected_for = match self.identity.certificate_status() {
            CertificateStatus::RejectedSince(since) => Some(Instant::now().duration_since(since)),
            CertificateStatus::Unknown | CertificateStatus::Accepted => None,
        };
        let state = RotationState {
            node: &self.node,
            validity,
            rejected_for,
            replaced,
            rotate: self.rotate,
            bootstrap,
        };
        step(&state, self.clock.now())
    }

    /// Returns when no CSR is needed: a new certificate was provided, or the API server accepts
    /// the current one again.
    async fn recovered(&self, replaced: u32) {
        loop {
            tokio::time::sleep(MAX_WAIT).await;
            if matches!(self.next(replaced).await, Step::Wait(_)) {
                return;
            }
        }
    }

    /// Uses the best available certificate, and returns its validity and whether there are
    /// bootstrap credentials.
    async fn load(&self) -> (Option<Validity>, bool) {
        let (store, kubeconfig) = (self.store.clone(), self.kubeconfig.clone());
        let bootstrap = self.bootstrap.clone();
        let read = on_disk(move || {
            let stored = stored(&store);
            let configured = kubeconfig.and_then(|path| configured(&path));
            Ok(([stored, configured], bootstrap.is_present()))
        });
        // fails only at shutdown
        let ([stored, configured], bootstrap) = read.await.unwrap_or_default();
        let candidates = [Some(self.identity.clone()), stored, configured];
        let dates = candidates
            .each_ref()
            .map(|c| c.as_ref().and_then(Validity::from_identity));
        let Some(best) = newest(&dates, self.clock.now()) else {
            return (None, bootstrap);
        };
        if let Some(identity) = &candidates[best] {
            self.identity.replace_with(identity);
        }
        (dates[best], bootstrap)
    }

    async fn obtain(&self, step: Step) -> Result<(), ObtainError> {
        let timeout = match step {
            Step::Bootstrap => BOOTSTRAP_TIMEOUT,
            _ => RENEWAL_TIMEOUT,
        };
        let bootstrap = match step {
            Step::Bootstrap => {
                let bootstrap = self.bootstrap.clone();
                on_disk(move || Ok(bootstrap.connect()?)).await?
            }
            _ => None,
        };
        let client = bootstrap.as_ref().unwrap_or(&self.client);
        let identity = Identity::Client {
            node: self.node.clone(),
        };
        let pair = obtain(&self.store, client, &identity, timeout, &*self.clock).await?;
        self.identity.replace_pem(pair.pem().as_bytes())?;
        tracing::info!(expires_at = ?self.identity.expires_at(), "client certificate replaced");
        // it is in use even if writing the files fails
        obtain::write_pair(&self.store, pair, &*self.clock).await
    }
}

fn stored(store: &CertificateStore) -> Option<ClientIdentity> {
    let pem = match store.current() {
        Ok(pem) => pem?,
        Err(error) => {
            tracing::warn!(%error, "reading the client certificate failed");
            return None;
        }
    };
    ClientIdentity::from_pem(&pem)
        .inspect_err(|error| {
            let file = store.current_path();
            tracing::warn!(%error, file = %file.display(), "client certificate unusable");
        })
        .ok()
}

/// Reads the certificate of the kubeconfig. Errors are ignored: before the first certificate it
/// names a missing file.
fn configured(path: &Path) -> Option<ClientIdentity> {
    let config = ApiServerConfig::from_kubeconfig(path).ok()?;
    Some(config.identity().detached())
}
