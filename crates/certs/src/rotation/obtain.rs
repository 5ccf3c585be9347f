//! One attempt to get a certificate: key, request, signature, files.

use std::time::Duration;

use windlass_client::{ApiClient, ClientIdentity, ConfigError, IdentityError};
use windlass_types::Clock;

use crate::certificate::Certificate;
use crate::csr::{Identity, RequestError, request};
use crate::signing::{SigningError, sign};
use crate::store::{CertificateStore, StoreError};

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub(super) enum ObtainError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Signing(#[from] SigningError),
    #[error("the signed certificate cannot be used: {0}")]
    Unusable(#[from] IdentityError),
    #[error("the signed certificate is not valid now: compare the clocks of node and signer")]
    NotCurrent,
    #[error("--bootstrap-kubeconfig: {0}")]
    Bootstrap(#[from] ConfigError),
    #[error("the task that writes files was stopped")]
    Stopped,
}

/// A certificate chain and its key, PEM. No `Debug`: the key is secret.
pub(super) struct Pair {
    pub(super) chain: String,
    pub(super) key: String,
}

impl Pair {
    pub(super) fn pem(&self) -> String {
        format!("{}\n{}", self.chain.trim_end(), self.key)
    }
}

/// Gets a signature for the pending key, or for a new one. A key whose request was refused, or
/// whose certificate is worth nothing, is not asked with again.
pub(super) async fn obtain(
    store: &CertificateStore,
    client: &ApiClient,
    identity: &Identity,
    timeout: Duration,
    clock: &dyn Clock,
) -> Result<Pair, ObtainError> {
    let (files, asked) = (store.clone(), identity.clone());
    let request = on_disk(move || {
        let pending = files.pending_key()?;
        let made = match pending.as_deref().map(|key| request(&asked, Some(key))) {
            Some(Ok(made)) => made,
            // a torn key is worth nothing
            Some(Err(RequestError::Key(_))) | None => request(&asked, None)?,
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

/// Writes a pair that was obtained.
pub(super) async fn write_pair(
    store: &CertificateStore,
    pair: Pair,
    clock: &dyn Clock,
) -> Result<(), ObtainError> {
    let (store, now) = (store.clone(), clock.now());
    on_disk(move || Ok(store.replace(&pair.chain, &pair.key, now)?)).await
}

/// Runs something that may wait for a disk.
pub(super) async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ObtainError> + Send + 'static,
) -> Result<T, ObtainError> {
    let ended = tokio::task::spawn_blocking(work).await;
    ended.unwrap_or(Err(ObtainError::Stopped))
}

/// A certificate that is another key's, or over, would take the place of a good one.
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

/// True if the same question would get the same answer.
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
