//! One CSR through the API server: created, approved, signed.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestSpec,
};
use windlass_client::{
    ApiClient, ApiError, ApiErrorKind, ObjectKey, ReflectEvent, Selector, reflect,
};
use windlass_types::metav1::ObjectMeta;

use crate::csr::{Identity, Request};

/// A CSR that failed.
#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    /// The API server rejected the CSR.
    #[error("creating the CSR failed: {0}")]
    Create(#[source] ApiError),
    /// The API server no longer accepts the credentials.
    #[error("watching CSR {name} failed: {error}")]
    Unauthorized {
        /// The object.
        name: String,
        /// The response.
        #[source]
        error: ApiError,
    },
    /// The CSR was denied.
    #[error("CSR {name} was denied: {message}")]
    Denied {
        /// The object.
        name: String,
        /// The message of the condition.
        message: String,
    },
    /// The signer failed.
    #[error("CSR {name} failed: {message}")]
    Failed {
        /// The object.
        name: String,
        /// The message of the condition.
        message: String,
    },
    /// The CSR was deleted before a decision.
    #[error("CSR {name} was deleted before a decision")]
    Gone {
        /// The object.
        name: String,
    },
    /// No decision within the timeout.
    #[error(
        "CSR {name} was neither approved nor denied within {} s; run kubectl certificate \
         approve {name}", waited.as_secs()
    )]
    Undecided {
        /// The object.
        name: String,
        /// The timeout.
        waited: Duration,
    },
}

/// The state of a CSR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Not decided, or approved and not signed.
    Pending,
    /// Signed: the chain, PEM.
    Signed(String),
    /// Denied, with a message.
    Denied(String),
    /// Failed, with a message.
    Failed(String),
}

/// Reads the state of a CSR.
pub(crate) fn decision(csr: &CertificateSigningRequest) -> Decision {
    let Some(status) = &csr.status else {
        return Decision::Pending;
    };
    let condition = |kind: &str| {
        let mut conditions = status.conditions.iter().flatten();
        let found = conditions.find(|c| c.type_ == kind);
        found.map(|c| {
            c.message
                .clone()
                .or_else(|| c.reason.clone())
                .unwrap_or_default()
        })
    };
    if let Some(message) = condition("Denied") {
        return Decision::Denied(message);
    }
    if let Some(message) = condition("Failed") {
        return Decision::Failed(message);
    }
    let chain = status.certificate.as_ref();
    match chain.and_then(|c| String::from_utf8(c.0.clone()).ok()) {
        Some(chain) if condition("Approved").is_some() && !chain.is_empty() => {
            Decision::Signed(chain)
        }
        _ => Decision::Pending,
    }
}

/// Creates a CSR and waits for the certificate, at most `timeout`. An existing CSR of the same
/// name is the same request from a previous agent run.
///
/// # Errors
/// See [`SigningError`].
pub(crate) async fn sign(
    client: &ApiClient,
    identity: &Identity,
    request: &Request,
    timeout: Duration,
) -> Result<String, SigningError> {
    let name = &request.name;
    match client.create(None, &object(identity, request)).await {
        Ok(_) => tracing::info!(name, signer = identity.signer(), "CSR created"),
        Err(error) if error.kind == ApiErrorKind::AlreadyExists => {
            tracing::info!(name, "CSR exists, waiting for its decision");
        }
        Err(error) => return Err(SigningError::Create(error)),
    }
    let waiting = wait(client, name);
    let ended = tokio::time::timeout(timeout, waiting).await;
    let chain = ended.unwrap_or_else(|_| {
        Err(SigningError::Undecided {
            name: name.clone(),
            waited: timeout,
        })
    })?;
    tracing::info!(name, "CSR signed");
    Ok(chain)
}

async fn wait(client: &ApiClient, name: &str) -> Result<String, SigningError> {
    let selector = Selector {
        fields: Some(format!("metadata.name={name}")),
        ..Selector::default()
    };
    let mut events = Box::pin(reflect::<CertificateSigningRequest>(
        client.clone(),
        selector,
    ));
    while let Some(event) = events.next().await {
        let csr = match event {
            ReflectEvent::Applied(csr) => csr,
            ReflectEvent::Synced(all) => match all.into_iter().next() {
                Some(csr) => csr,
                None => {
                    return Err(SigningError::Gone {
                        name: name.to_owned(),
                    });
                }
            },
            ReflectEvent::Deleted(_) => {
                return Err(SigningError::Gone {
                    name: name.to_owned(),
                });
            }
            ReflectEvent::Failed { error, .. } if error.kind == ApiErrorKind::Forbidden => {
                // a node may read its own CSR although it may not watch all
                match client.get(ObjectKey::cluster(name)).await {
                    Ok(csr) => csr,
                    Err(error) => {
                        tracing::debug!(%error, "reading the CSR failed");
                        continue;
                    }
                }
            }
            ReflectEvent::Failed { error, .. } if error.kind == ApiErrorKind::Unauthorized => {
                let name = name.to_owned();
                return Err(SigningError::Unauthorized { name, error });
            }
            ReflectEvent::Failed { error, .. } => {
                tracing::debug!(%error, "watching the CSR failed");
                continue;
            }
            ReflectEvent::Resumed => continue,
        };
        let name = name.to_owned();
        match decision(&csr) {
            Decision::Pending => {}
            Decision::Signed(chain) => return Ok(chain),
            Decision::Denied(message) => return Err(SigningError::Denied { name, message }),
            Decision::Failed(message) => return Err(SigningError::Failed { name, message }),
        }
    }
    Err(SigningError::Gone {
        name: name.to_owned(),
    })
}

fn object(identity: &Identity, request: &Request) -> CertificateSigningRequest {
    CertificateSigningRequest {
        metadata: ObjectMeta {
            name: Some(request.name.clone()),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            request: ByteString(request.csr.clone().into_bytes()),
            signer_name: identity.signer().to_owned(),
            usages: Some(identity.usages().map(str::to_owned).to_vec()),
            // no expirationSeconds: the signer decides, as for upstream
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::certificates::v1::{
        CertificateSigningRequestCondition, CertificateSigningRequestStatus,
    };

    use super::*;

    fn check(conditions: &[&str], certificate: Option<&str>, expected: Decision) {
        let conditions = conditions
            .iter()
            .map(|kind| CertificateSigningRequestCondition {
                type_: (*kind).to_owned(),
                status: "True".to_owned(),
                message: Some("because".to_owned()),
                ..CertificateSigningRequestCondition::default()
            });
        let csr = CertificateSigningRequest {
            status: Some(CertificateSigningRequestStatus {
                conditions: Some(conditions.collect()),
                certificate: certificate.map(|text| ByteString(text.as_bytes().to_vec())),
            }),
            ..CertificateSigningRequest::default()
        };
        assert_eq!(decision(&csr), expected);
    }

    #[test]
    fn csr_is_signed_when_approved_with_certificate() {
        check(&[], None, Decision::Pending);
        check(&["Approved"], None, Decision::Pending);
        check(&["Approved"], Some(""), Decision::Pending);
        check(&[], Some("chain"), Decision::Pending);
        check(
            &["Approved"],
            Some("chain"),
            Decision::Signed("chain".into()),
        );
        check(&["Denied"], None, Decision::Denied("because".into()));
        check(
            &["Approved", "Failed"],
            None,
            Decision::Failed("because".into()),
        );
    }
}
