//! One attempt to obtain a certificate: key, CSR, signature, files.

use std::time::Duration;

use windlass_client::{ApiClient, ClientIdentity, ConfigError, IdentityError};
use windlass_types::Clock;

use crate::certificate::Certificate;
use crate::csr::{Identity, RequestError, request};
use crate::signing::{SigningError, sign};
use crate::store::{CertificateStore, StoreError};

/// A failed attempt.
#[derive(Debug, thiserror::Error)]
pub(super) enum ObtainError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Signing(#[from] SigningError),
    #[error("unusable certificate: {0}")]
    Unusable(#[from] IdentityError),
    #[error("certificate expired or not yet valid; check the clocks of node and signer")]
    NotCurrent,
    #[error("--bootstrap-kubeconfig: {0}")]
    Bootstrap(#[from] ConfigError),
    #[error("shutting down")]
    Stopped,
}

/// A certificate chain and its key, PEM. No `Debug`: the key is a secret.
pub(super) struct Pair {
    pub(super) chain: String,
    pub(super) key: String,
}

impl Pair {
    pub(super) fn pem(&self) -> String {
        format!("{}\n{}", self.chain.trim_end(), self.key)
    }
}

/// Obtains a certificate for the pending key or a new one. A key whose CSR was rejected, or whose
/// certificate is unusable, is deleted.
pub(super) async fn obtain(
    store: &CertificateStore,
    client: &ApiClient,
    identity: &Identity,
    timeout: Duration,
    clock: &dyn Clock,
) -> Result<Pair, ObtainError> {
    let (files, subject) = (store.clone(), identity.clone());
    let request = on_disk(move || {
        let pending = files.pending_key()?;
        let made = match pending.as_deref().map(|key| request(&subject, Some(key))) {
            Some(Ok(made)) => made,
            // a torn key is unusable
            Some(Err(RequestError::Key(_))) | None => request(&subject, None)?,
            Some(Err(error)) => return Err(error.into()),
        };
        files.save_pending_key(&made.key)?;
        Ok(made)
    })
    .await?;
    let signed = sign(client, identity, &request, timeout).await;
    let checked = match signed {
        Ok(chain) => check(chain, request.key, clock),
        Err(error) => Err(error.into()),
    };
    if checked.as_ref().is_err_and(is_final) {
        let files = store.clone();
        on_disk(move || {
            files.delete_pending_key();
            Ok(())
        })
        .await?;
    }
    checked
}

/// Writes an obtained pair.
pub(super) async fn write_pair(
    store: &CertificateStore,
    pair: Pair,
    clock: &dyn Clock,
) -> Result<(), ObtainError> {
    let (store, now) = (store.clone(), clock.now());
    on_disk(move || Ok(store.replace(&pair.chain, &pair.key, now)?)).await
}

/// Runs blocking file operations.
pub(super) async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ObtainError> + Send + 'static,
) -> Result<T, ObtainError> {
    let ended = tokio::task::spawn_blocking(work).await;
    ended.unwrap_or(Err(ObtainError::Stopped))
}

/// Checks that the certificate matches the key and is valid before it replaces another.
fn check(chain: String, key: String, clock: &dyn Clock) -> Result<Pair, ObtainError> {
    let pair = Pair { chain, key };
    let pem = pair.pem();
    ClientIdentity::from_pem(pem.as_bytes())?;
    let certificate = Certificate::from_pem(pem.as_bytes());
    match certificate.is_some_and(|it| it.validity.is_current(clock.now())) {
        true => Ok(pair),
        false => Err(ObtainError::NotCurrent),
    }
}

/// Returns true if a retry with the same key would fail again.
fn is_final(error: &ObtainError) -> bool {
    matches!(
        error,
        ObtainError::Unusable(_)
            | ObtainError::NotCurrent
            | ObtainError::Signing(
                SigningError::Denied { .. }
                    | SigningError::Failed { .. }
                    | SigningError::Gone { .. }
            )
    )
}
