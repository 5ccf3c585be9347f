//! The client certificate, which can be replaced while connections are open.
//!
//! A handshake uses the current certificate of [`ClientIdentity`]. Replacing it starts a new
//! generation. A transport sends no new request over a connection of an older one, so that the
//! server sees the new identity at once. Responses that still stream over an old connection (a
//! watch, at most five minutes) are not interrupted. TLS sessions are never resumed, because they
//! would keep the old certificate.
//!
//! Responses show whether the server accepts the certificate ([`CertificateStatus`]): a valid
//! certificate is rejected after a replacement of the cluster CA.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::crypto::aws_lc_rs;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::watch;
use tokio::time::Instant;
use windlass_types::Timestamp;

/// A client certificate with its key, or none. Clones share it.
#[derive(Clone)]
pub struct ClientIdentity {
    current: Arc<watch::Sender<Current>>,
    certificate_status: Arc<Mutex<CertificateStatus>>,
    files: Option<Arc<Files>>,
}

/// An unusable client certificate in PEM.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The text has no certificate.
    #[error("no CERTIFICATE block in the PEM text of the client certificate")]
    NoCertificate,
    /// The text has no key.
    #[error("no PRIVATE KEY block in the PEM text of the client certificate and its key")]
    NoKey,
    /// The certificate or the key is unusable, or they do not match.
    #[error("unusable client certificate or key: {0}")]
    Unusable(#[source] rustls::Error),
    /// The validity cannot be parsed.
    #[error("the client certificate is not an X.509 certificate")]
    NotX509,
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// Whether the server accepts a client certificate, by its responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CertificateStatus {
    /// No conclusive response yet.
    #[default]
    Unknown,
    /// The last conclusive response was not 401 or 403.
    Accepted,
    /// All conclusive responses since then were 401 or 403.
    RejectedSince(Instant),
}

impl CertificateStatus {
    /// Returns the status after a response. A single 403 among other responses is normal.
    fn after(self, status: StatusCode, now: Instant) -> Self {
        match (status.as_u16(), self) {
            (401 | 403, Self::RejectedSince(_)) => self,
            (401 | 403, _) => Self::RejectedSince(now),
            // an overloaded or failing server may not have checked the certificate
            (429 | 500.., _) => self,
            _ => Self::Accepted,
        }
    }
}

#[derive(Clone, Default)]
struct Current {
    key: Option<Arc<CertifiedKey>>,
    valid: Option<Valid>,
    generation: u64,
}

/// A certificate's validity.
#[derive(Clone, Copy, Debug)]
struct Valid {
    from: Timestamp,
    to: Timestamp,
}

struct Files {
    certificate: PathBuf,
    key: PathBuf,
    /// Held while the files are read.
    read_lock: Arc<tokio::sync::Mutex<()>>,
}

/// Timeout of reading the files. A hung disk blocks one thread and no request.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

impl fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let current = self.current.borrow();
        f.debug_struct("ClientIdentity")
            .field("present", &current.key.is_some())
            .field("valid", &current.valid)
            .field("generation", &current.generation)
            .finish()
    }
}

impl Default for ClientIdentity {
    fn default() -> Self {
        Self::none()
    }
}

impl ClientIdentity {
    /// Creates an identity without a certificate.
    pub fn none() -> Self {
        Self {
            current: Arc::new(watch::Sender::new(Current::default())),
            certificate_status: Arc::default(),
            files: None,
        }
    }

    /// Copies the certificate into an independent identity: changes of this one do not affect it.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self {
            current: Arc::new(watch::Sender::new(self.current.borrow().clone())),
            certificate_status: Arc::default(),
            files: None,
        }
    }

    /// Reads the certificate chain, the client's own first, and its key from PEM text.
    pub fn from_pem(pem: &[u8]) -> Result<Self, IdentityError> {
        let identity = Self::none();
        identity.replace_pem(pem)?;
        Ok(identity)
    }

    /// Reads two files, which may be the same. They are read again periodically.
    pub(crate) fn from_files(certificate: &Path, key: &Path) -> Result<Self, IdentityError> {
        let files = Files {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            read_lock: Arc::default(),
        };
        let mut identity = Self::from_pem(&files.read()?)?;
        identity.files = Some(Arc::new(files));
        Ok(identity)
    }

    /// Replaces the certificate in every clone. New requests do not use connections with the old
    /// one. The same certificate has no effect. On an error the old certificate stays.
    pub fn replace_pem(&self, pem: &[u8]) -> Result<(), IdentityError> {
        let (key, valid) = certified(pem)?;
        self.put(Arc::new(key), valid);
        Ok(())
    }

    /// Replaces the certificate with that of `other`; without one there is no change.
    pub fn replace_with(&self, other: &Self) {
        let (key, valid) = {
            let other = other.current.borrow();
            (other.key.clone(), other.valid)
        };
        if let (Some(key), Some(valid)) = (key, valid) {
            self.put(key, valid);
        }
    }

    fn put(&self, key: Arc<CertifiedKey>, valid: Valid) {
        self.current.send_if_modified(|current| {
            let same = current.key.as_ref().is_some_and(|old| old.cert == key.cert);
            if !same {
                *self.certificate_status.lock() = CertificateStatus::Unknown;
                current.key = Some(key);
                current.valid = Some(valid);
                current.generation += 1;
            }
            !same
        });
    }

    /// Returns the start of the validity; `None` without a certificate.
    pub fn begins_at(&self) -> Option<Timestamp> {
        self.current.borrow().valid.map(|valid| valid.from)
    }

    /// Returns the end of the validity; `None` without a certificate.
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.current.borrow().valid.map(|valid| valid.to)
    }

    /// Returns whether the server accepts the certificate; a new one is
    /// [`CertificateStatus::Unknown`].
    pub fn certificate_status(&self) -> CertificateStatus {
        *self.certificate_status.lock()
    }

    /// Records a response to a request with no credentials besides the certificate.
    pub(crate) fn record_response(&self, status: StatusCode) {
        let mut certificate_status = self.certificate_status.lock();
        *certificate_status = certificate_status.after(status, Instant::now());
    }

    /// Returns true if there is a certificate.
    pub fn is_present(&self) -> bool {
        self.current.borrow().key.is_some()
    }

    /// Returns the generation after each replacement.
    pub fn generations(&self) -> impl futures::Stream<Item = u64> + Send + use<> {
        let receiver = self.current.subscribe();
        futures::stream::unfold(receiver, async |mut receiver| {
            receiver.changed().await.ok()?;
            let generation = receiver.borrow_and_update().generation;
            Some((generation, receiver))
        })
    }

    pub(crate) fn generation(&self) -> u64 {
        self.current.borrow().generation
    }

    /// Reads the files again, if the identity comes from files. An unusable file has no effect: it
    /// may be half written.
    pub(crate) async fn refresh(&self) {
        let Some(files) = self.files.clone() else {
            return;
        };
        let Ok(read_lock) = files.read_lock.clone().try_lock_owned() else {
            return;
        };
        let read = tokio::task::spawn_blocking(move || {
            let _read_lock = read_lock;
            files.read()
        });
        let outcome = match tokio::time::timeout(READ_TIMEOUT, read).await {
            Ok(Ok(read)) => read.and_then(|pem| self.replace_pem(&pem)),
            Err(_) => {
                tracing::warn!("reading the client certificate files timed out");
                return;
            }
            // only at shutdown
            Ok(Err(_)) => return,
        };
        if let Err(error) = outcome {
            tracing::warn!(error = %error, "reloading the client certificate failed");
        }
    }
}

impl ResolvesClientCert for ClientIdentity {
    fn resolve(&self, _: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let key = self.current.borrow().key.clone()?;
        key.key.choose_scheme(schemes).is_some().then_some(key)
    }

    fn has_certs(&self) -> bool {
        self.is_present()
    }
}

impl Files {
    fn read(&self) -> Result<Vec<u8>, IdentityError> {
        let read = |path: &Path| {
            std::fs::read(path).map_err(|source| IdentityError::Io {
                path: path.to_owned(),
                source,
            })
        };
        let mut pem = read(&self.certificate)?;
        if self.key != self.certificate {
            pem.push(b'\n');
            pem.extend(read(&self.key)?);
        }
        Ok(pem)
    }
}

fn certified(pem: &[u8]) -> Result<(CertifiedKey, Valid), IdentityError> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|_| IdentityError::NoCertificate)?;
    let first = chain.first().ok_or(IdentityError::NoCertificate)?;
    let (_, parsed) =
        x509_parser::parse_x509_certificate(first).map_err(|_| IdentityError::NotX509)?;
    let time = |at: x509_parser::time::ASN1Time| {
        Timestamp::from_second(at.timestamp()).map_err(|_| IdentityError::NotX509)
    };
    let valid = Valid {
        from: time(parsed.validity().not_before)?,
        to: time(parsed.validity().not_after)?,
    };
    let key = PrivateKeyDer::from_pem_slice(pem).map_err(|_| IdentityError::NoKey)?;
    let key = CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider())
        .map_err(IdentityError::Unusable)?;
    Ok((key, valid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn hung_certificate_files_do_not_block_requests() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("pair.pem");
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(vec!["n1".to_owned()]).expect("params");
        let certificate = params.self_signed(&key).expect("a certificate");
        std::fs::write(&path, certificate.pem() + &key.serialize_pem()).expect("written");
        let identity = ClientIdentity::from_files(&path, &path).expect("usable");
        // opening a FIFO without a writer hangs, as a dead disk does
        std::fs::remove_file(&path).expect("removed");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .expect("a FIFO");
        let started = Instant::now();
        for _ in 0..10 {
            identity.refresh().await;
        }
        assert!(started.elapsed() < 2 * READ_TIMEOUT);
        assert!(identity.is_present());
        // lets the thread end
        std::fs::write(&path, "").expect("a writer");
    }

    #[tokio::test(start_paused = true)]
    async fn certificate_is_rejected_by_consecutive_401_and_403() {
        let identity = ClientIdentity::none();
        let check = |status: u16, expected| {
            identity.record_response(StatusCode::from_u16(status).expect("a status"));
            assert_eq!(identity.certificate_status(), expected, "after {status}");
        };
        check(503, CertificateStatus::Unknown);
        check(404, CertificateStatus::Accepted);
        let first = CertificateStatus::RejectedSince(Instant::now());
        check(401, first);
        tokio::time::advance(std::time::Duration::from_secs(60)).await;
        check(403, first);
        check(500, first);
        check(429, first);
        check(200, CertificateStatus::Accepted);
    }

    #[test]
    fn new_certificate_has_unknown_status_and_detached_is_apart() {
        let pem = || {
            let key = rcgen::KeyPair::generate().expect("a key");
            let params = rcgen::CertificateParams::new(vec!["n1".to_owned()]).expect("params");
            let certificate = params.self_signed(&key).expect("a certificate");
            format!("{}{}", certificate.pem(), key.serialize_pem())
        };
        let identity = ClientIdentity::from_pem(pem().as_bytes()).expect("usable");
        identity.record_response(StatusCode::UNAUTHORIZED);
        let detached = identity.detached();
        assert_eq!(detached.certificate_status(), CertificateStatus::Unknown);
        let other = ClientIdentity::from_pem(pem().as_bytes()).expect("usable");
        identity.replace_with(&detached);
        assert_eq!(identity.generation(), 1, "the same one");
        assert_ne!(identity.certificate_status(), CertificateStatus::Unknown);
        identity.replace_with(&other);
        assert_eq!((identity.generation(), detached.generation()), (2, 1));
        assert_eq!(identity.certificate_status(), CertificateStatus::Unknown);
        identity.replace_with(&ClientIdentity::none());
        assert!(identity.is_present());
        assert!(identity.begins_at() < identity.expires_at());
    }
}
