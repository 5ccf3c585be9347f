//! A pod's private key and the proof that it is held: what a PodCertificateRequest is made of.

use std::fmt;

use rcgen::{
    CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384,
    PKCS_ECDSA_P521_SHA512, PKCS_ED25519, PKCS_RSA_SHA256, RsaKeySize,
};

use crate::csr::RequestError;

windlass_types::text_enum! {
    /// Kinds of keys a pod can ask for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum PodKeyType {
        /// RSA, 3072 bits.
        Rsa3072 = "RSA3072",
        /// RSA, 4096 bits.
        Rsa4096 = "RSA4096",
        /// Curve P-256.
        EcdsaP256 = "ECDSAP256",
        /// Curve P-384.
        EcdsaP384 = "ECDSAP384",
        /// Curve P-521.
        EcdsaP521 = "ECDSAP521",
        /// Ed25519.
        Ed25519 = "ED25519",
    }
}

/// An unknown key type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown key type {0:?}")]
pub struct UnknownKeyType(pub String);

impl std::str::FromStr for PodKeyType {
    type Err = UnknownKeyType;

    fn from_str(name: &str) -> Result<Self, UnknownKeyType> {
        Self::from_text(name).ok_or_else(|| UnknownKeyType(name.to_owned()))
    }
}

/// A private key and its CSR.
#[derive(Clone)]
pub struct PodKey {
    /// The private key, PKCS #8 as PEM.
    pub key: String,
    /// `spec.stubPKCS10Request`: a request without a subject, signed with the key, DER.
    pub request: Vec<u8>,
}

impl fmt::Debug for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PodKey").finish_non_exhaustive()
    }
}

impl PodKey {
    /// Generates a key. An RSA key takes up to some seconds, in a blocking thread.
    ///
    /// # Errors
    /// The system has no randomness, or the process is shutting down.
    pub async fn generate(kind: PodKeyType) -> Result<Self, RequestError> {
        match kind {
            PodKeyType::Rsa3072 | PodKeyType::Rsa4096 => {
                let made = tokio::task::spawn_blocking(move || make(kind)).await;
                made.unwrap_or(Err(RequestError::Encode(rcgen::Error::RingUnspecified)))
            }
            _ => make(kind),
        }
    }
}

fn make(kind: PodKeyType) -> Result<PodKey, RequestError> {
    let rsa = |size| KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, size);
    let key = match kind {
        PodKeyType::Rsa3072 => rsa(RsaKeySize::_3072),
        PodKeyType::Rsa4096 => rsa(RsaKeySize::_4096),
        PodKeyType::EcdsaP256 => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256),
        PodKeyType::EcdsaP384 => KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384),
        PodKeyType::EcdsaP521 => KeyPair::generate_for(&PKCS_ECDSA_P521_SHA512),
        PodKeyType::Ed25519 => KeyPair::generate_for(&PKCS_ED25519).and_then(|key| version_1(&key)),
    };
    let key = key.map_err(RequestError::Encode)?;
    let mut params = CertificateParams::default();
    // the default has a common name
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key);
    let request = request.map_err(RequestError::Encode)?;
    Ok(PodKey {
        request: request.der().to_vec(),
        key: key.serialize_pem(),
    })
}

/// The key without the public key behind it, which Go does not write and older OpenSSL does not
/// read: version 1 of the format (RFC 5208) instead of 2 (RFC 5958).
fn version_1(key: &KeyPair) -> Result<KeyPair, rcgen::Error> {
    // sequence, version, algorithm 1.3.101.112, and the private key as a string in a string
    const HEAD: [u8; 16] = [48, 46, 2, 1, 0, 48, 5, 6, 3, 43, 101, 112, 4, 34, 4, 32];
    let der = key.serialized_der();
    match der.get(5..HEAD.len() + 32) {
        Some(body) if body.starts_with(&HEAD[5..]) => {
            KeyPair::try_from([&HEAD[..5], body].concat())
        }
        _ => Err(rcgen::Error::CouldNotParseKeyPair),
    }
}

#[cfg(test)]
mod tests {
    use x509_parser::certification_request::X509CertificationRequest;
    use x509_parser::error::X509Error;
    use x509_parser::prelude::FromDer;

    use super::*;

    async fn check(name: &str, algorithm: &str, bits: usize) {
        let made = PodKey::generate(name.parse().expect(name)).await;
        let made = made.expect(name);
        let (rest, request) = X509CertificationRequest::from_der(&made.request).expect("request");
        assert!(rest.is_empty());
        match request.verify_signature() {
            Err(error) if name == "ECDSAP521" => {
                // the API server supports it, see the test on a real cluster
                assert_eq!(error, X509Error::SignatureUnsupportedAlgorithm);
            }
            verified => verified.expect("proves possession"),
        }
        let info = &request.certification_request_info;
        assert_eq!(info.subject.iter().count(), 0);
        assert_eq!(info.attributes().len(), 0);
        assert_eq!(
            info.subject_pki.algorithm.algorithm.to_id_string(),
            algorithm
        );
        if bits > 0 {
            let parsed = info.subject_pki.parsed().expect("key");
            assert_eq!(parsed.key_size(), bits);
        }
        let head = "-----BEGIN PRIVATE KEY-----\n";
        assert!(made.key.starts_with(head) && made.key.ends_with("KEY-----\n"));
        assert!(!made.key.contains('\r'));
        assert!(!format!("{made:?}").contains("PRIVATE"));
        // the key is the one that signed
        let key = KeyPair::from_pem(&made.key).expect("readable");
        let public = rcgen::PublicKeyData::subject_public_key_info(&key);
        assert_eq!(public, info.subject_pki.raw);
    }

    #[tokio::test]
    async fn csr_of_each_key_type_is_signed_by_its_key() {
        const EC: &str = "1.2.840.10045.2.1";
        const RSA: &str = "1.2.840.113549.1.1.1";
        check("ECDSAP256", EC, 256).await;
        check("ECDSAP384", EC, 384).await;
        check("ECDSAP521", EC, 528).await;
        check("ED25519", "1.3.101.112", 0).await;
        check("RSA3072", RSA, 3072).await;
        check("RSA4096", RSA, 4096).await;
        let unknown = "RSA2048".parse::<PodKeyType>().expect_err("too short");
        assert_eq!(unknown.to_string(), "unknown key type \"RSA2048\"");
    }

    #[tokio::test]
    async fn ed25519_key_is_written_as_pkcs8_version_1() {
        let made = PodKey::generate(PodKeyType::Ed25519).await.expect("made");
        let pem = x509_parser::pem::parse_x509_pem(made.key.as_bytes());
        let (_, pem) = pem.expect("PEM");
        // version 1 of the format: with no public key behind the private one
        assert_eq!(pem.contents.len(), 48);
        assert_eq!(pem.contents[2..5], [2, 1, 0]);
    }
}
