//! What mounting a CSI volume needs of the API server.
//!
//! CSIDrivers are watched, all of them, from the first question on; attachments and secrets are
//! read when they are asked for, as node authorization lets a node read nothing more. Tokens are
//! kept until they are due for renewal.

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

use crate::lookup::{ANSWER_DEADLINE, all, item};
use crate::reflections::{Interest, Kept, Reflections};
use crate::tokens::TokenCache;

/// Holds the watch of CSIDrivers for as long as the agent runs.
const AGENT: &str = "agent";

/// [`CsiObjects`] of an API server.
#[derive(Debug)]
pub struct ApiCsiObjects {
    main: ApiClient,
    drivers: Reflections<CsiDriverSpec>,
    tokens: Arc<TokenCache>,
}

impl ApiCsiObjects {
    /// Nothing is asked before the first question. Its watch runs in the tokio runtime of who asks.
    pub fn new(clients: &ApiClients, clock: Arc<dyn Clock>) -> Self {
        let main = clients.main.clone();
        Self {
            drivers: Reflections::new(Some(clients.watch.clone()), None),
            tokens: Arc::new(TokenCache::new(Some(main.clone()), clock, None)),
            main,
        }
    }
}

#[async_trait]
impl CsiObjects for ApiCsiObjects {
    async fn driver(&self, name: &str) -> Result<Option<CsiDriverSpec>, ObjectError> {
        self.drivers
            .hold(&all(), &PodUid::new(AGENT), Interest::Quiet);
        let deadline = Instant::now() + ANSWER_DEADLINE;
        match item(&self.drivers, &all(), "", name, deadline).await {
            Ok(found) => Ok(found.map(|spec| CsiDriverSpec::clone(&spec))),
            Err(error) => {
                let error = error.as_deref();
                let error = error.unwrap_or("the API server did not answer");
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
        // nobody tells when a pod is gone
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

/// The number of the gRPC code.
const RESOURCE_EXHAUSTED: i32 = 8;

/// One that is being deleted counts as an error of its attachment, in upstream's words.
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

impl Kept for CsiDriverSpec {
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
