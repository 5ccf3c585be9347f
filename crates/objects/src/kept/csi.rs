//! Objects for CSI volumes: read from the API server, and kept.
//!
//! A VolumeAttachment is not kept. While the API server was away, the volume may have been detached
//! and attached to another node, and two nodes with one file system destroy it.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use windlass_csi::{Attachment, CsiDriverSpec, CsiObjects, ObjectError, PodToken, TokenRequest};
use windlass_pod_inputs::pod_references::TokenSpec;
use windlass_pod_inputs::projection::{SecretContent, Token};
use windlass_types::{Clock, PodExt, PodUid, Retry, SharedPod};
use windlass_volume_plan::volume_source::SecretRef;

use super::table::{Table, TokenRecord, WantedObjects};
use super::{KeptObjects, ServingCopy};
use crate::shared_reflectors::ItemKey;

const NOT_KEPT: &str = "it is not kept on this node, and the API server is unreachable";

/// What drivers read in this agent run. Bounded by the volumes of the node's pods: each snapshot
/// drops the rest.
#[derive(Debug, Default)]
pub(super) struct CsiReads(Mutex<Reads>);

#[derive(Debug, Default)]
struct Reads {
    drivers: BTreeMap<String, Option<CsiDriverSpec>>,
    secrets: BTreeMap<ItemKey, Arc<SecretContent>>,
    tokens: BTreeMap<(PodUid, TokenSpec), TokenRecord>,
}

impl CsiReads {
    /// Adds the wanted objects to those of the object cache, and drops others.
    pub(super) fn add_to(&self, read: &mut Table, wanted: &WantedObjects) {
        let mut reads = self.0.lock();
        reads
            .drivers
            .retain(|name, _| wanted.drivers.contains(name));
        reads.secrets.retain(|key, _| wanted.secrets.contains(key));
        reads.tokens.retain(|(uid, _), _| wanted.pods.contains(uid));
        let drivers = reads.drivers.iter();
        read.drivers
            .extend(drivers.map(|(name, spec)| (name.clone(), spec.clone())));
        for (key, content) in &reads.secrets {
            // the cache is newer
            let entry = read.secrets.entry(key.clone());
            entry.or_insert_with(|| Some(Arc::clone(content)));
        }
        let tokens = reads.tokens.iter();
        read.tokens
            .extend(tokens.map(|(key, token)| (key.clone(), token.clone())));
    }
}

/// Objects of the API server, or kept ones while the copy serves.
#[derive(Debug)]
pub(super) struct KeptCsiObjects {
    kept: KeptObjects,
    api: Arc<dyn CsiObjects>,
    clock: Arc<dyn Clock>,
}

impl KeptCsiObjects {
    pub(super) fn new(kept: KeptObjects, api: Arc<dyn CsiObjects>, clock: Arc<dyn Clock>) -> Self {
        Self { kept, api, clock }
    }
}

fn unavailable(what: &str) -> ObjectError {
    ObjectError {
        message: format!("failed to read {what}: {NOT_KEPT}"),
        retry: Retry::Later,
    }
}

#[async_trait]
impl CsiObjects for KeptCsiObjects {
    async fn driver(&self, name: &str) -> Result<Option<CsiDriverSpec>, ObjectError> {
        if let Some(copy) = self.kept.serving() {
            let driver = copy.table.drivers.get(name).cloned();
            return driver.ok_or_else(|| unavailable(&format!("CSIDriver {name:?}")));
        }
        let driver = self.api.driver(name).await?;
        let mut reads = self.kept.0.csi.0.lock();
        reads.drivers.insert(name.to_owned(), driver.clone());
        Ok(driver)
    }

    async fn attachment(&self, name: &str) -> Result<Option<Attachment>, ObjectError> {
        match self.kept.serving() {
            Some(_) => Err(unavailable(&format!("VolumeAttachment {name:?}"))),
            None => self.api.attachment(name).await,
        }
    }

    async fn secret(&self, secret: &SecretRef) -> Result<BTreeMap<String, Vec<u8>>, ObjectError> {
        let SecretRef { namespace, name } = secret;
        let key = (namespace.clone(), name.clone());
        if let Some(copy) = self.kept.serving() {
            let content = copy.table.secrets.get(&key);
            let content = content.and_then(Option::as_ref);
            let content =
                content.ok_or_else(|| unavailable(&format!("secret {namespace}/{name}")))?;
            let data = content.data.iter();
            return Ok(data
                .map(|(key, value)| (key.clone(), value.to_vec()))
                .collect());
        }
        let data = self.api.secret(secret).await?;
        let kept = data.iter();
        let kept = kept.map(|(key, value)| (key.clone(), value.as_slice().into()));
        let content = SecretContent {
            data: kept.collect(),
            ..SecretContent::default()
        };
        self.kept
            .0
            .csi
            .0
            .lock()
            .secrets
            .insert(key, Arc::new(content));
        Ok(data)
    }

    async fn token(
        &self,
        pod: &SharedPod,
        request: &TokenRequest,
    ) -> Result<PodToken, ObjectError> {
        let spec = TokenSpec::new(&request.audience, request.expiration_seconds);
        if let Some(copy) = self.kept.serving() {
            return self.kept_token(&copy, &pod.uid(), &spec);
        }
        let token = self.api.token(pod, request).await?;
        if let Ok(valid_until) = token.expires.parse() {
            let record = TokenRecord::new(Token(token.token.clone()), valid_until);
            self.kept
                .0
                .csi
                .0
                .lock()
                .tokens
                .insert((pod.uid(), spec), record);
        }
        Ok(token)
    }
}

impl KeptCsiObjects {
    fn kept_token(
        &self,
        copy: &ServingCopy,
        uid: &PodUid,
        spec: &TokenSpec,
    ) -> Result<PodToken, ObjectError> {
        let now = copy.now(self.clock.now());
        match copy.table.token(uid, spec, now) {
            Ok(record) => Ok(PodToken {
                token: record.token.0.clone(),
                expires: record.valid_until.to_string(),
            }),
            Err(error) => Err(ObjectError {
                message: format!("failed to fetch token: {error}"),
                retry: Retry::Later,
            }),
        }
    }
}
