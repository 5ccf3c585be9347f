//! Rotation of the serving certificate (`serverTLSBootstrap`).

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;
use windlass_client::ApiClient;
use windlass_metrics::CertificateMetrics;
use windlass_types::Clock;

use super::client::RENEWAL_TIMEOUT;
use super::obtain::{self, ObtainError, obtain, on_disk};
use super::plan::{MAX_WAIT, RotationState, Step, backoff, newest, step};
use crate::certificate::Certificate;
use crate::csr::{Identity, ServingNames};
use crate::store::CertificateStore;

/// The input of [`run_serving_rotation`].
#[derive(Clone, Debug)]
pub struct ServingRotation {
    /// Name of the node.
    pub node: String,
    /// Names and addresses of the node; a change triggers a new CSR. As upstream, no CSR is
    /// created without an address.
    pub names: watch::Receiver<ServingNames>,
    /// Files.
    pub store: CertificateStore,
    /// The client with the node's certificate.
    pub client: ApiClient,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Receives each new pair.
    pub current: watch::Sender<Option<ServingPair>>,
    /// Counts failed attempts and observes the age of replaced certificates.
    pub metrics: Option<CertificateMetrics>,
}

/// A certificate chain and its key, PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct ServingPair(Arc<Vec<u8>>);

impl ServingPair {
    pub(crate) fn new(pem: Vec<u8>) -> Self {
        Self(Arc::new(pem))
    }

    /// Returns the PEM text: certificates, the server's own first, then the key.
    pub fn pem(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for ServingPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServingPair(..)")
    }
}

/// Rotates the serving certificate. Ends when the sender of the names is dropped.
pub async fn run_serving_rotation(mut rotation: ServingRotation) {
    let mut failures = 0;
    loop {
        let names = rotation.names.borrow_and_update().clone();
        let next = rotation.next(&names).await;
        tracing::debug!(step = %next, "serving certificate");
        let backoff = match next {
            Step::Wait(time) => time,
            // no CSR without an address
            _ if names.ips.is_empty() => MAX_WAIT,
            _ => {
                let mut later = rotation.names.clone();
                let outcome = tokio::select! {
                    outcome = rotation.obtain(names) => outcome,
                    // the names of the CSR are outdated
                    changed = later.changed() => match changed {
                        Ok(()) => continue,
                        Err(_) => return,
                    },
                };
                match outcome {
                    Ok(()) => {
                        failures = 0;
                        MAX_WAIT
                    }
                    Err(error) => {
                        failures += 1;
                        if let Some(metrics) = &rotation.metrics {
                            metrics.server_renew_errors.inc();
                        }
                        let backoff = backoff(failures, &rotation.node);
                        tracing::warn!(%error, retry_in = ?backoff, "serving certificate not obtained");
                        backoff
                    }
                }
            }
        };
        tokio::select! {
            () = tokio::time::sleep(backoff) => {}
            changed = rotation.names.changed() => if changed.is_err() {
                return;
            },
        }
    }
}

impl ServingRotation {
    /// Publishes the best available pair and decides on the next step. A pair that lacks a name
    /// does not count.
    async fn next(&self, names: &ServingNames) -> Step {
        let store = self.store.clone();
        let stored = on_disk(move || Ok(store.current()?)).await;
        let stored = stored.unwrap_or_else(|error| {
            tracing::warn!(%error, "reading the serving certificate failed");
            None
        });
        let in_use = self.current.borrow().clone();
        let candidates = [in_use, stored.map(ServingPair::new)];
        let read = candidates.each_ref().map(|pair| {
            pair.as_ref()
                .and_then(|pair| Certificate::from_pem(pair.pem()))
        });
        let dates = read.each_ref().map(|it| it.as_ref().map(|it| it.validity));
        let best = newest(&dates, self.clock.now());
        if let Some(pair) = best.and_then(|best| candidates[best].clone()) {
            self.publish(pair);
        }
        let certificate = best.and_then(|best| read[best].as_ref());
        let covering = certificate.filter(|it| it.covers(names));
        let state = RotationState {
            node: &self.node,
            validity: covering.map(|it| it.validity),
            rejected_for: None,
            replaced: 0,
            rotate: true,
            bootstrap: true,
        };
        step(&state, self.clock.now())
    }

    async fn obtain(&self, names: ServingNames) -> Result<(), ObtainError> {
        let identity = Identity::Serving {
            node: self.node.clone(),
            names,
        };
        let timeout = RENEWAL_TIMEOUT;
        let pair = obtain(&self.store, &self.client, &identity, timeout, &*self.clock).await?;
        self.observe_rotation();
        self.publish(ServingPair::new(pair.pem().into_bytes()));
        tracing::info!("serving certificate replaced");
        obtain::write_pair(&self.store, pair, &*self.clock).await
    }

    /// Observes the age of the replaced certificate.
    fn observe_rotation(&self) {
        let before = self.current.borrow().clone();
        let before = before.and_then(|pair| Certificate::from_pem(pair.pem()));
        if let (Some(metrics), Some(before)) = (&self.metrics, before) {
            let age = self.clock.now().duration_since(before.validity.not_before);
            metrics.server_rotation.observe(age.as_secs_f64());
        }
    }

    fn publish(&self, pair: ServingPair) {
        self.current.send_if_modified(|known| {
            let same = known.as_ref() == Some(&pair);
            if !same {
                *known = Some(pair);
            }
            !same
        });
    }
}
