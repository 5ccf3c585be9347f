//! The client of a connection.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls_pki_types::{CertificateDer, UnixTime};
use tokio::sync::watch;
use windlass_types::{Clock, Timestamp};

use crate::connections::{ConnectionPermit, network};
use crate::tls::ClientCa;

/// The client, in the extensions of each request. Clones share the connection.
#[derive(Clone)]
pub struct Peer(Arc<Connection>);

struct Connection {
    address: SocketAddr,
    presented: Option<PresentedChain>,
    permit: Arc<ConnectionPermit>,
}

/// A chain whose key the client has, and what is needed to verify it.
struct PresentedChain {
    leaf: ClientCertificate,
    intermediates: Vec<CertificateDer<'static>>,
    ca: watch::Receiver<ClientCa>,
    clock: Arc<dyn Clock>,
    rejection: Mutex<Option<CachedRejection>>,
}

/// The last rejection of a chain, cached to bound the cost of repeated requests.
struct CachedRejection {
    error: CertificateError,
    by: ClientCa,
    at: Timestamp,
}

/// TTL of a rejection by the same CA: a certificate may become valid.
const REJECTION_TTL: Duration = Duration::from_secs(10);

/// A client certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The leaf, DER.
    pub der: Vec<u8>,
}

/// An invalid client certificate.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("the client certificate is not accepted: {0}")]
pub struct CertificateError(#[from] rustls::Error);

impl Peer {
    pub(crate) fn new(address: SocketAddr, permit: Arc<ConnectionPermit>) -> Self {
        Self(Arc::new(Connection {
            address,
            presented: None,
            permit,
        }))
    }

    /// Creates a peer with this certificate chain, leaf first. A valid chain marks the connection
    /// as authenticated.
    pub(crate) fn with_chain(
        address: SocketAddr,
        permit: Arc<ConnectionPermit>,
        chain: &[CertificateDer<'_>],
        ca: watch::Receiver<ClientCa>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let Some((leaf, rest)) = chain.split_first() else {
            return Self::new(address, permit);
        };
        let presented = PresentedChain {
            leaf: ClientCertificate { der: leaf.to_vec() },
            intermediates: rest.iter().map(|one| one.clone().into_owned()).collect(),
            ca,
            clock,
            rejection: Mutex::default(),
        };
        let peer = Self(Arc::new(Connection {
            address,
            presented: Some(presented),
            permit,
        }));
        if matches!(peer.certificate(), Ok(Some(_))) {
            peer.mark_authenticated();
        }
        peer
    }

    /// The remote address.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// The address of IPv4, or the /64 network of IPv6: what one client has at least.
    pub fn host(&self) -> IpAddr {
        network(self.0.address.ip(), 32)
    }

    /// The /24 network of IPv4 or /64 of IPv6: what one client may have.
    pub fn network(&self) -> IpAddr {
        network(self.0.address.ip(), 24)
    }

    /// Verifies the client certificate with the current client CA and time, and returns it; `None`
    /// without one. This takes some 0.2 ms. A rejection is cached for 10 s or until the CA
    /// changes.
    ///
    /// # Errors
    /// The client CA did not sign it, it has expired or is not yet valid, or it is not for
    /// clients.
    pub fn certificate(&self) -> Result<Option<&ClientCertificate>, CertificateError> {
        let Some(presented) = &self.0.presented else {
            return Ok(None);
        };
        let (ca, now) = (presented.ca.borrow().clone(), presented.clock.now());
        if let Some(error) = presented.cached_rejection(&ca, now) {
            return Err(error);
        }
        let verified = presented.verify(&ca, now);
        let rejection = verified.as_ref().err().map(|error| CachedRejection {
            error: error.clone(),
            by: ca,
            at: now,
        });
        *presented.rejection.lock() = rejection;
        verified.map(|()| Some(&presented.leaf))
    }

    /// Marks the connection as authenticated, so that unauthenticated connections cannot evict it.
    pub fn mark_authenticated(&self) {
        self.0.permit.mark_authenticated();
    }

    /// Closes the connection and all its requests at once.
    pub fn close(&self) {
        self.0.permit.close();
    }
}

impl PresentedChain {
    fn verify(&self, ca: &ClientCa, now: Timestamp) -> Result<(), CertificateError> {
        let seconds = u64::try_from(now.as_second()).unwrap_or_default();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let leaf = CertificateDer::from(self.leaf.der.as_slice());
        let verifier = ca.verifier();
        verifier.verify_client_cert(&leaf, &self.intermediates, now)?;
        Ok(())
    }

    fn cached_rejection(&self, ca: &ClientCa, now: Timestamp) -> Option<CertificateError> {
        let rejection = self.rejection.lock();
        let holds = |it: &&CachedRejection| {
            it.by.is(ca) && now.duration_since(it.at).unsigned_abs() < REJECTION_TTL
        };
        rejection.as_ref().filter(holds).map(|it| it.error.clone())
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("address", &self.0.address)
            .field("presented_certificate", &self.0.presented.is_some())
            .finish()
    }
}
