//! The client certificate, which can be replaced while connections are open.
//!
//! A handshake asks [`ClientIdentity`] for the certificate of the moment. Replacing it begins a
//! new generation; a transport sends no new request over a connection of an older one, so that
//! the server sees the new identity at once, and an answer that still streams over an old
//! connection (a watch, at most five minutes) is not cut. TLS sessions are never resumed: a
//! resumed session would carry the old certificate on.
//!
//! The answers to requests tell whether the server still accepts the certificate ([`CertificateStatus`]):
//! one that is valid by its dates is worth nothing after the cluster's authority was replaced.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::crypto::aws_lc_rs;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::watch;
use tokio::time::Instant;
use windlass_types::Timestamp;

/// A client certificate with its key, or none. Clones are handles to the same one.
#[derive(Clone)]
pub struct ClientIdentity {
    current: Arc<watch::Sender<Current>>,
    certificate_status: Arc<Mutex<CertificateStatus>>,
    files: Option<Arc<Files>>,
}

/// PEM text that is no usable client certificate.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// There is no certificate in the text.
    #[error("no CERTIFICATE block in the PEM text of the client certificate")]
    NoCertificate,
    /// There is no key in the text.
    #[error("no PRIVATE KEY block in the PEM text of the client certificate and its key")]
    NoKey,
    /// The blocks are there but one cannot be used, or the key is another certificate's.
    #[error("the client certificate or its key cannot be used: {0}")]
    Unusable(#[source] rustls::Error),
    /// The certificate's validity cannot be read.
    #[error("the client certificate is no X.509 certificate")]
    NotX509,
    /// A file with the certificate or the key cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// What the server thinks of a client certificate, by its answers to requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CertificateStatus {
    /// It has not been asked, or its answers say nothing.
    #[default]
    Unknown,
    /// The last telling answer was not 401 or 403.
    Accepted,
    /// All telling answers since then were 401 or 403.
    RejectedSince(Instant),
}

impl CertificateStatus {
    /// After an answer with this status. One 403 among other answers is daily life.
    fn after(self, status: StatusCode, now: Instant) -> Self {
        match (status.as_u16(), self) {
            (401 | 403, Self::RejectedSince(_)) => self,
            (401 | 403, _) => Self::RejectedSince(now),
            // what is busy or broken may not have looked at the certificate
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
    /// Held by the one who reads.
    read_lock: Arc<tokio::sync::Mutex<()>>,
}

/// How long files are waited for. A disk that hangs costs one thread, and no request.
const READ_DEADLINE: Duration = Duration::from_secs(2);

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
    /// No certificate yet.
    pub fn none() -> Self {
        Self {
            current: Arc::new(watch::Sender::new(Current::default())),
            certificate_status: Arc::default(),
            files: None,
        }
    }

    /// The same certificate as a handle of its own: no file and no clone of this one changes it.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self {
            current: Arc::new(watch::Sender::new(self.current.borrow().clone())),
            certificate_status: Arc::default(),
            files: None,
        }
    }

    /// From PEM text that holds the certificate chain, the client's own first, and its key.
    pub fn from_pem(pem: &[u8]) -> Result<Self, IdentityError> {
        let identity = Self::none();
        identity.replace_pem(pem)?;
        Ok(identity)
    }

    /// From two files, which may be the same one. They are read again from time to time.
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

    /// Replaces the certificate in every clone; open connections made with the old one are not
    /// used for new requests. The same certificate again changes nothing. On an error the old
    /// certificate stays.
    pub fn replace_pem(&self, pem: &[u8]) -> Result<(), IdentityError> {
        let (key, valid) = certified(pem)?;
        self.put(Arc::new(key), valid);
        Ok(())
    }

    /// As [`Self::replace_pem`], with the certificate of `other`; without one nothing changes.
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
                *self.lock_status() = CertificateStatus::Unknown;
                current.key = Some(key);
                current.valid = Some(valid);
                current.generation += 1;
            }
            !same
        });
    }

    /// Start of the certificate's validity; `None` without a certificate.
    pub fn begins_at(&self) -> Option<Timestamp> {
        self.current.borrow().valid.map(|valid| valid.from)
    }

    /// End of the certificate's validity; `None` without a certificate.
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.current.borrow().valid.map(|valid| valid.to)
    }

    /// What the server thinks of the certificate; a new one begins as [`CertificateStatus::Unknown`].
    pub fn certificate_status(&self) -> CertificateStatus {
        *self.lock_status()
    }

    /// Notes an answer to a request that nothing but this certificate vouched for.
    pub(crate) fn record_response(&self, status: StatusCode) {
        let mut certificate_status = self.lock_status();
        *certificate_status = certificate_status.after(status, Instant::now());
    }

    fn lock_status(&self) -> MutexGuard<'_, CertificateStatus> {
        self.certificate_status
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// True if there is a certificate.
    pub fn is_present(&self) -> bool {
        self.current.borrow().key.is_some()
    }

    /// Grows by one with each new certificate; the receiver is told of each.
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

    /// Reads the files again, if the identity comes from files. An unusable file changes
    /// nothing: it may be half written, and the old certificate may still be good.
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
        let outcome = match tokio::time::timeout(READ_DEADLINE, read).await {
            Ok(Ok(read)) => read.and_then(|pem| self.replace_pem(&pem)),
            Err(_) => {
                tracing::warn!("the files of the client certificate are not read in time");
                return;
            }
            // only at shutdown: the pool of blocking threads is gone
            Ok(Err(_)) => return,
        };
        if let Err(error) = outcome {
            tracing::warn!(error = %error, "the client certificate cannot be read again");
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
    async fn files_that_cannot_be_read_for_long_hold_nobody_up() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("pair.pem");
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(vec!["n1".to_owned()]).expect("params");
        let certificate = params.self_signed(&key).expect("a certificate");
        std::fs::write(&path, certificate.pem() + &key.serialize_pem()).expect("written");
        let identity = ClientIdentity::from_files(&path, &path).expect("usable");
        // opening a FIFO that nobody writes to hangs, as a dead disk does
        std::fs::remove_file(&path).expect("removed");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .expect("a FIFO");
        let began = Instant::now();
        for _ in 0..10 {
            identity.refresh().await;
        }
        assert!(began.elapsed() < 2 * READ_DEADLINE);
        assert!(identity.is_present());
        // lets the thread end
        std::fs::write(&path, "").expect("a writer");
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_row_of_refusals_speaks_against_a_certificate() {
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
    fn a_new_certificate_begins_without_a_history_and_a_detached_one_goes_its_own_way() {
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
