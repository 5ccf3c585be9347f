//! A key and its CSR.

use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType,
};
use sha2::{Digest, Sha512_256};

/// The subject of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// A client of the API server: user `system:node:<name>`, group `system:nodes`.
    Client {
        /// Name of the node.
        node: String,
    },
    /// The node's own HTTPS server: the same subject, with its names and addresses.
    Serving {
        /// Name of the node.
        node: String,
        /// Its names and addresses.
        names: ServingNames,
    },
}

/// Names and addresses of the node's server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServingNames {
    /// DNS names.
    pub dns: Vec<String>,
    /// IP addresses. As upstream, no CSR is created without one.
    pub ips: Vec<IpAddr>,
}

impl Identity {
    /// `spec.signerName` of the request.
    pub(crate) fn signer(&self) -> &'static str {
        match self {
            Self::Client { .. } => "kubernetes.io/kube-apiserver-client-kubelet",
            Self::Serving { .. } => "kubernetes.io/kubelet-serving",
        }
    }

    /// `spec.usages` of the request. ECDSA keys have no key encipherment.
    pub(crate) fn usages(&self) -> [&'static str; 2] {
        match self {
            Self::Client { .. } => ["digital signature", "client auth"],
            Self::Serving { .. } => ["digital signature", "server auth"],
        }
    }

    fn user(&self) -> String {
        let (Self::Client { node } | Self::Serving { node, .. }) = self;
        format!("system:node:{node}")
    }
}

const GROUP: &str = "system:nodes";

/// A private key and its CSR.
#[derive(Clone)]
pub(crate) struct Request {
    /// Name of the CSR, derived from its content: the same request has the same name after an
    /// agent restart.
    pub name: String,
    /// The private key (ECDSA P-256), PEM.
    pub key: String,
    /// The CSR, PEM.
    pub csr: String,
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A CSR that cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The key of the pending CSR is unusable.
    #[error("unusable private key of the pending CSR: {0}")]
    Key(#[source] rcgen::Error),
    /// Name, address or key cannot be encoded.
    #[error("cannot create the CSR: {0}")]
    Encode(#[source] rcgen::Error),
}

/// Creates a CSR, with this key or a new one.
///
/// # Errors
/// The key is unusable or a name is not a DNS name.
pub(crate) fn request(identity: &Identity, key: Option<&str>) -> Result<Request, RequestError> {
    let (key, key_pem) = match key {
        // unchanged: rcgen would label upstream's SEC 1 encoding as PKCS #8
        Some(pem) => (
            KeyPair::from_pem(pem).map_err(RequestError::Key)?,
            pem.to_owned(),
        ),
        None => {
            let key =
                KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(RequestError::Encode)?;
            let pem = key.serialize_pem();
            (key, pem)
        }
    };
    let mut params = CertificateParams::default();
    // the default has a common name
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::OrganizationName, GROUP);
    params
        .distinguished_name
        .push(DnType::CommonName, identity.user());
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    match identity {
        Identity::Client { .. } => {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        }
        Identity::Serving { names, .. } => {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            for name in &names.dns {
                let name = name.as_str().try_into().map_err(RequestError::Encode)?;
                params.subject_alt_names.push(SanType::DnsName(name));
            }
            let ips = names.ips.iter().copied().map(SanType::IpAddress);
            params.subject_alt_names.extend(ips);
        }
    }
    let csr = params
        .serialize_request(&key)
        .and_then(|csr| csr.pem())
        .map_err(RequestError::Encode)?;
    Ok(Request {
        name: object_name(identity, &key.subject_public_key_info()),
        key: key_pem,
        csr,
    })
}

/// `node-csr-` and a digest of key, subject and usages. Names of client CSRs are the same as
/// upstream's, so that agents can be exchanged. (Upstream lets the server choose names of serving
/// CSRs.)
fn object_name(identity: &Identity, public_key: &[u8]) -> String {
    let mut digest = Sha512_256::new();
    let mut add = |part: &[u8]| {
        digest.update(URL_SAFE_NO_PAD.encode(part));
        // not a character of the encoding, so different lists have different digests
        digest.update("|");
    };
    add(public_key);
    add(identity.user().as_bytes());
    add(GROUP.as_bytes());
    for usage in identity.usages() {
        add(usage.as_bytes());
    }
    if let Identity::Serving { names, .. } = identity {
        names.dns.iter().for_each(|name| add(name.as_bytes()));
        let ips = names.ips.iter();
        ips.for_each(|ip| add(ip.to_string().as_bytes()));
    }
    format!("node-csr-{}", URL_SAFE_NO_PAD.encode(digest.finalize()))
}

#[cfg(test)]
mod tests {
    use x509_parser::certification_request::X509CertificationRequest;
    use x509_parser::prelude::FromDer;

    use super::*;

    fn subject(pem: &str) -> String {
        let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).expect("PEM");
        let (_, csr) = X509CertificationRequest::from_der(&pem.contents).expect("a request");
        csr.verify_signature().expect("signed with its own key");
        let names = csr.requested_extensions().into_iter().flatten();
        let names: Vec<_> = names.map(|e| format!("{e:?}")).collect();
        let san = names
            .iter()
            .any(|e| e.starts_with("SubjectAlternativeName"));
        format!("{} san={san}", csr.certification_request_info.subject)
    }

    #[test]
    fn csr_has_the_subject_of_the_node() {
        let client = Identity::Client { node: "n1".into() };
        let made = request(&client, None).expect("made");
        assert_eq!(
            subject(&made.csr),
            "O=system:nodes, CN=system:node:n1 san=false"
        );
        assert!(!format!("{made:?}").contains("PRIVATE"));
        let serving = Identity::Serving {
            node: "n1".into(),
            names: ServingNames {
                dns: vec!["n1".into()],
                ips: vec![[10, 0, 0, 1].into()],
            },
        };
        let made = request(&serving, None).expect("made");
        assert_eq!(
            subject(&made.csr),
            "O=system:nodes, CN=system:node:n1 san=true"
        );
    }

    #[test]
    fn csr_name_matches_upstream() {
        let client = Identity::Client { node: "n1".into() };
        assert_eq!(
            object_name(&client, b"key"),
            "node-csr-qHrZoGmz7n4QzFn42jbwGhrcJU9T-zkJb_IhDRCXqmo"
        );
    }

    #[test]
    fn pending_key_of_the_go_kubelet_is_used_unchanged() {
        let kept = "-----BEGIN EC PRIVATE KEY-----\n\
         MHcCAQEEIGn6WL3KFfRMq5a18vY87+jmguCGipfhy0tJba+PHmhuoAoGCCqGSM49\n\
         AwEHoUQDQgAE5o6cCoB0ohWldEHG+HYInWJEcxFLkH+/R/MULHdSO7Kj6pCCe4Ha\n\
         xvKWN2vZTWu4IujWeWIt+ltDQ45SeKYH9Q==\n\
         -----END EC PRIVATE KEY-----\n";
        let client = Identity::Client { node: "n1".into() };
        let made = request(&client, Some(kept)).expect("made");
        assert_eq!(made.key, kept);
    }

    #[test]
    fn pending_key_results_in_the_same_csr_name() {
        let client = Identity::Client { node: "n1".into() };
        let first = request(&client, None).expect("made");
        let second = request(&client, Some(&first.key)).expect("made");
        assert_eq!(first.name, second.name);
        assert!(first.name.starts_with("node-csr-"), "{}", first.name);
        assert_eq!(first.name.len(), "node-csr-".len() + 43);
        let other = Identity::Client { node: "n2".into() };
        let other = request(&other, Some(&first.key)).expect("made");
        assert_ne!(first.name, other.name, "another subject is another request");
        let error = request(&client, Some("garbage")).expect_err("no key");
        assert!(!error.to_string().contains("garbage"), "{error}");
    }
}
