//! Service accounts of pods, and their tokens, for plugins with `tokenAttributes`.
//!
//! *owns* the tokens that plugins received · *invariant* a token belongs to the service account
//! whose UID was read, and is bound to the pod · *bound* [`READ_TIMEOUT`] for each request; one
//! token for each pod and audience until it expires · *restart* tokens are requested again.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use windlass_client::{ApiClient, ApiClients, ApiError, ObjectKey};
use windlass_credentials::credentials::ObjectCoordinates;
use windlass_credentials::credentials::provider::{
    MissingAnnotation, PluginAccount, TokenAttributes,
};
use windlass_pod_inputs::pod_references::TokenSpec;
use windlass_types::corev1::ServiceAccount;
use windlass_types::{Clock, Pod, PodExt, SharedPod};

use crate::tokens::TokenCache;

/// Timeout to read a service account.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a plugin is not executed for a pod.
#[derive(Debug, thiserror::Error)]
pub(super) enum AccountError {
    #[error("the pod has no service account")]
    None,
    #[error(transparent)]
    Annotation(#[from] MissingAnnotation),
    #[error("cannot get service accounts in standalone mode")]
    Standalone,
    #[error("cannot read service account {0}: {1}")]
    Read(String, ApiError),
    #[error("cannot read service account {0}: the API server did not respond in {READ_TIMEOUT:?}")]
    Timeout(String),
    #[error("service account {0} has no UID")]
    NoUid(String),
    #[error("cannot get a token of service account {0}: {1}")]
    Token(String, String),
}

impl AccountError {
    /// Returns whether the configuration of the plugin excludes the pod.
    pub(super) fn is_configured(&self) -> bool {
        matches!(self, Self::None | Self::Annotation(_))
    }
}

/// Reads service accounts and requests tokens.
#[derive(Debug)]
pub(super) struct Accounts {
    client: ApiClient,
    tokens: Arc<TokenCache>,
}

impl Accounts {
    pub(super) fn new(clients: &ApiClients, clock: Arc<dyn Clock>) -> Self {
        let client = clients.main.clone();
        Self {
            tokens: Arc::new(TokenCache::new(Some(client.clone()), clock, None)),
            client,
        }
    }

    /// Returns the service account of a pod with a token that is bound to the pod.
    pub(super) async fn account(
        &self,
        pod: &Pod,
        name: &str,
        attributes: &TokenAttributes,
    ) -> Result<PluginAccount, AccountError> {
        let full_name = format!("{}/{name}", pod.namespace());
        let at = ObjectKey::namespaced(pod.namespace(), name);
        // as upstream, not cached: annotations and UID are current
        let read = timeout(READ_TIMEOUT, self.client.get::<ServiceAccount>(at)).await;
        let account = match read {
            Ok(Ok(account)) => account.metadata,
            Ok(Err(error)) => return Err(AccountError::Read(full_name, error)),
            Err(_) => return Err(AccountError::Timeout(full_name)),
        };
        let annotations = attributes.annotations(&account.annotations.unwrap_or_default())?;
        let Some(uid) = account.uid else {
            return Err(AccountError::NoUid(full_name));
        };
        // this cache is not notified of deleted pods
        self.tokens.forget_expired();
        let spec = TokenSpec::new(&attributes.audience, None).for_account(&uid);
        let pod = SharedPod::new(pod.clone());
        let token = self.tokens.token(&pod, &spec).await;
        let token = token.map_err(|error| AccountError::Token(full_name, error))?;
        Ok(PluginAccount {
            object: ObjectCoordinates {
                uid,
                namespace: pod.namespace().to_owned(),
                name: name.to_owned(),
            },
            annotations,
            token,
        })
    }
}
