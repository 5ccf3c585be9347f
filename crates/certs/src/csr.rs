//! A key and the request to sign it.

use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType,
};
use sha2::{Digest, Sha512_256};

/// What a certificate says of its holder.
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
        /// What it is reached by.
        names: ServingNames,
    },
}

/// Names and addresses by which the node's server is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServingNames {
    /// DNS names.
    pub dns: Vec<String>,
    /// IP addresses. Without one no certificate is asked for: upstream's rule.
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

    /// `spec.usages` of the request. An ECDSA key enciphers no other keys, so that usage is not
    /// asked for.
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

/// A key that is not sent, and a request that is.
#[derive(Clone)]
pub(crate) struct Request {
    /// Name of the request object, derived from all that it asks for: the same question has the
    /// same name, after a restart too.
    pub name: String,
    /// The private key (ECDSA P-256), PEM.
    pub key: String,
    /// The request, PEM.
    pub csr: String,
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A request that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The key kept from an earlier request cannot be used.
    #[error("the private key of the pending request cannot be used: {0}")]
    Key(#[source] rcgen::Error),
    /// Name, address or key cannot be put into a request.
    #[error("the signing request cannot be made: {0}")]
    Encode(#[source] rcgen::Error),
}

/// Makes a request, with a key of an earlier one or a new key.
///
/// # Errors
/// The key is unusable or a name is no DNS name.
pub(crate) fn request(identity: &Identity, key: Option<&str>) -> Result<Request, RequestError> {
    let (key, key_pem) = match key {
        // as it is: rcgen would label the SEC 1 encoding, which upstream writes, as PKCS #8
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
    // the default has a common name of its own
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

/// `node-csr-` and a digest of key, subject and usages: for a client certificate the same one as
/// upstream makes of them, so that either agent goes on with the other's request. (Upstream lets
/// the server choose the names of requests for serving certificates.)
fn object_name(identity: &Identity, public_key: &[u8]) -> String {
    let mut digest = Sha512_256::new();
    let mut add = |part: &[u8]| {
        digest.update(URL_SAFE_NO_PAD.encode(part));
        // no character of the encoding: two different lists are two different texts
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
    fn a_request_names_the_node_as_kubernetes_wants_it() {
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
    fn the_name_of_a_request_is_the_one_that_upstream_gives_it() {
        let client = Identity::Client { node: "n1".into() };
        assert_eq!(
            object_name(&client, b"key"),
            "node-csr-qHrZoGmz7n4QzFn42jbwGhrcJU9T-zkJb_IhDRCXqmo"
        );
    }

    #[test]
    fn a_key_that_upstream_left_behind_is_used_as_it_is() {
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
    fn a_kept_key_makes_the_same_request_again() {
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
