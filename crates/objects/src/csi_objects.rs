//! API objects for mounting CSI volumes.
//!
//! All CSIDrivers are watched from the first request on. Attachments and secrets are read on
//! demand, as node authorization allows nothing more. Tokens are cached until they are due for
//! renewal.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use windlass_client::{ApiClient, ApiClients, ApiError, ApiErrorKind, ObjectKey};
use windlass_csi::{
    Attachment, CsiDriverSpec, CsiObjects, FsGroupPolicy, ObjectError, PodToken, TokenRequest,
};
use windlass_pod_inputs::pod_references::TokenSpec;
use windlass_types::corev1::Secret;
use windlass_types::storagev1::{CSIDriver, VolumeAttachment};
use windlass_types::{Clock, PodExt, PodUid, Retry, SharedPod};
use windlass_volume_plan::volume_source::SecretRef;

use crate::lookup::{RESOLVE_TIMEOUT, all, item};
use crate::shared_reflectors::{CachedObject, Interest, SharedReflectors};
use crate::tokens::TokenCache;

/// User of the CSIDriver watch for the whole agent run.
const AGENT: &str = "agent";

/// [`CsiObjects`] of an API server.
#[derive(Debug)]
pub struct ApiCsiObjects {
    main: ApiClient,
    drivers: SharedReflectors<CsiDriverSpec>,
    tokens: Arc<TokenCache>,
}

impl ApiCsiObjects {
    /// Sends no request before the first use. The watch runs in the tokio runtime of the caller.
    pub fn new(clients: &ApiClients, clock: Arc<dyn Clock>) -> Self {
        let main = clients.main.clone();
        Self {
            drivers: SharedReflectors::new(Some(clients.watch.clone()), None),
            tokens: Arc::new(TokenCache::new(Some(main.clone()), clock, None)),
            main,
        }
    }
}

#[async_trait]
impl CsiObjects for ApiCsiObjects {
    async fn driver(&self, name: &str) -> Result<Option<CsiDriverSpec>, ObjectError> {
        self.drivers
            .acquire(&all(), &PodUid::new(AGENT), Interest::Quiet);
        let deadline = Instant::now() + RESOLVE_TIMEOUT;
        match item(&self.drivers, &all(), "", name, deadline).await {
            Ok(found) => Ok(found.map(|spec| CsiDriverSpec::clone(&spec))),
            Err(error) => {
                let error = error.as_deref();
                let error = error.unwrap_or("the API server did not respond");
                Err(ObjectError {
                    message: format!("failed to read CSIDriver {name:?}: {error}"),
                    retry: Retry::Soon,
                })
            }
        }
    }

    async fn attachment(&self, name: &str) -> Result<Option<Attachment>, ObjectError> {
        match self
            .main
            .get::<VolumeAttachment>(ObjectKey::cluster(name))
            .await
        {
            Ok(object) => Ok(Some(attachment(object))),
            Err(error) if error.kind == ApiErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&error, &format!("VolumeAttachment {name:?}"))),
        }
    }

    async fn secret(&self, secret: &SecretRef) -> Result<BTreeMap<String, Vec<u8>>, ObjectError> {
        let SecretRef { namespace, name } = secret;
        let read = self
            .main
            .get::<Secret>(ObjectKey::namespaced(namespace, name));
        let object = read.await.map_err(|error| ObjectError {
            message: format!(
                "failed to find the secret {name} in the namespace {namespace} with error: {}",
                error.message
            ),
            retry: error.retry(),
        })?;
        let data = object.data.unwrap_or_default().into_iter();
        Ok(data.map(|(key, value)| (key, value.0)).collect())
    }

    async fn token(
        &self,
        pod: &SharedPod,
        request: &TokenRequest,
    ) -> Result<PodToken, ObjectError> {
        // this cache is not notified of deleted pods
        self.tokens.forget_expired();
        let spec = TokenSpec::new(&request.audience, request.expiration_seconds);
        let failed = |why: &str| ObjectError {
            message: format!("failed to fetch token: {why}"),
            retry: Retry::Soon,
        };
        let token = self.tokens.token(pod, &spec).await;
        let token = token.map_err(|error| failed(&error))?;
        let expires = self.tokens.expires(&pod.uid(), &spec);
        let expires = expires.ok_or_else(|| failed("it expired"))?;
        Ok(PodToken {
            token: token.0,
            expires: expires.to_string(),
        })
    }
}

fn failed(error: &ApiError, what: &str) -> ObjectError {
    ObjectError {
        message: format!("failed to read {what}: {}", error.message),
        retry: error.retry(),
    }
}

/// Number of the gRPC code.
const RESOURCE_EXHAUSTED: i32 = 8;

/// An attachment that is being deleted has an error, with upstream's text.
fn attachment(object: VolumeAttachment) -> Attachment {
    let status = object.status.unwrap_or_default();
    let deleted = object.metadata.deletion_timestamp.is_some();
    let code = status.attach_error.as_ref().and_then(|e| e.error_code);
    let error = status.attach_error.and_then(|error| error.message);
    Attachment {
        attached: status.attached && !deleted,
        metadata: status.attachment_metadata.unwrap_or_default(),
        error: match deleted {
            true => Some("volume attachment is being deleted".to_owned()),
            false => error.filter(|_| !status.attached),
        },
        node_full: code == Some(RESOURCE_EXHAUSTED),
    }
}

impl CachedObject for CsiDriverSpec {
    type Object = CSIDriver;

    fn keep(object: CSIDriver) -> Option<Self> {
        let spec = object.spec;
        let default = Self::default();
        let mode = |wanted: &str, default: bool| match &spec.volume_lifecycle_modes {
            Some(modes) if !modes.is_empty() => modes.iter().any(|mode| mode == wanted),
            _ => default,
        };
        Some(Self {
            attach_required: spec.attach_required.unwrap_or(default.attach_required),
            pod_info_on_mount: spec.pod_info_on_mount == Some(true),
            fs_group_policy: match spec.fs_group_policy.as_deref() {
                Some("File") => FsGroupPolicy::File,
                Some("None") => FsGroupPolicy::None,
                _ => FsGroupPolicy::ReadWriteOnceWithFsType,
            },
            persistent: mode("Persistent", default.persistent),
            ephemeral: mode("Ephemeral", default.ephemeral),
            tokens_in_secrets: spec.service_account_token_in_secrets == Some(true),
            requires_republish: spec.requires_republish == Some(true),
            se_linux_mount: spec.se_linux_mount == Some(true),
            allocatable_update: spec
                .node_allocatable_update_period_seconds
                .and_then(|seconds| u64::try_from(seconds).ok())
                .filter(|seconds| *seconds > 0)
                .map(Duration::from_secs),
            token_requests: spec
                .token_requests
                .into_iter()
                .flatten()
                .map(|request| TokenRequest {
                    audience: request.audience,
                    expiration_seconds: request.expiration_seconds,
                })
                .collect(),
        })
    }
}
