//! One signing request through the API server: created, approved by someone, signed.

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

/// How a request for a signature ended badly.
#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    /// The API server refused the request object.
    #[error("the signing request was not accepted: {0}")]
    Create(#[source] ApiError),
    /// The API server no longer answers the credentials that asked.
    #[error("signing request {name} cannot be followed: {error}")]
    Unauthorized {
        /// The object.
        name: String,
        /// The server's answer.
        #[source]
        error: ApiError,
    },
    /// Somebody said no.
    #[error("signing request {name} was denied: {message}")]
    Denied {
        /// The object.
        name: String,
        /// In the words of whoever denied it.
        message: String,
    },
    /// The signer could not sign it.
    #[error("signing request {name} failed: {message}")]
    Failed {
        /// The object.
        name: String,
        /// In the signer's words.
        message: String,
    },
    /// The object vanished before it was decided.
    #[error("signing request {name} was deleted before it was decided")]
    Gone {
        /// The object.
        name: String,
    },
    /// Nobody decided in time.
    #[error(
        "signing request {name} was neither approved nor denied within {} s: approve it with \
         kubectl certificate approve {name}", waited.as_secs()
    )]
    Undecided {
        /// The object.
        name: String,
        /// How long it was waited for.
        waited: Duration,
    },
}

/// What has become of a request object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Nobody has decided, or it is approved and not signed yet.
    Pending,
    /// Signed: the chain, PEM.
    Signed(String),
    /// Denied, with a message.
    Denied(String),
    /// Failed, with a message.
    Failed(String),
}

/// Reads a decision from the object.
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

/// Sends a request and waits for the signature, at most `timeout`. A request of the same name is
/// the same question, asked before a restart: its answer is waited for.
///
/// # Errors
/// Why there is no signature.
pub(crate) async fn sign(
    client: &ApiClient,
    identity: &Identity,
    request: &Request,
    timeout: Duration,
) -> Result<String, SigningError> {
    let name = &request.name;
    match client.create(None, &object(identity, request)).await {
        Ok(_) => tracing::info!(name, signer = identity.signer(), "signing request created"),
        Err(error) if error.kind == ApiErrorKind::AlreadyExists => {
            tracing::info!(name, "going on with an earlier signing request");
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
    tracing::info!(name, "signing request granted");
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
                // a node may read its own request although it may not watch them all
                match client.get(ObjectKey::cluster(name)).await {
                    Ok(csr) => csr,
                    Err(error) => {
                        tracing::debug!(%error, "signing request not read");
                        continue;
                    }
                }
            }
            ReflectEvent::Failed { error, .. } if error.kind == ApiErrorKind::Unauthorized => {
                let name = name.to_owned();
                return Err(SigningError::Unauthorized { name, error });
            }
            ReflectEvent::Failed { error, .. } => {
                tracing::debug!(%error, "signing request not watched");
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
    fn a_certificate_counts_once_it_is_approved_and_signed() {
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
