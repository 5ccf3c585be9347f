//! Who is at the other end of a connection.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls_pki_types::{CertificateDer, UnixTime};
use tokio::sync::watch;
use windlass_types::{Clock, Timestamp};

use crate::connections::{ConnectionPermit, network};
use crate::tls::ClientCa;

/// The other end, in the extensions of each request. Clones are the same connection.
#[derive(Clone)]
pub struct Peer(Arc<Connection>);

struct Connection {
    address: SocketAddr,
    presented: Option<PresentedChain>,
    permit: Arc<ConnectionPermit>,
}

/// A chain whose key the client has, and who says what it is worth.
struct PresentedChain {
    leaf: ClientCertificate,
    intermediates: Vec<CertificateDer<'static>>,
    ca: watch::Receiver<ClientCa>,
    clock: Arc<dyn Clock>,
    rejection: Mutex<Option<CachedRejection>>,
}

/// The last refusal of a chain: a client has no more of them by asking more often.
struct CachedRejection {
    error: CertificateError,
    by: ClientCa,
    at: Timestamp,
}

/// For how long a refusal holds by the same CA: a certificate may yet begin to be valid.
const REJECTION_TTL: Duration = Duration::from_secs(10);

/// A client certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The leaf, DER.
    pub der: Vec<u8>,
}

/// A client showed a certificate that is worth nothing.
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

    /// One that showed this chain, the leaf first. Who shows a good one is no stranger.
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

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Its address, as far as one client surely has one: that of IPv4, the /64 network of IPv6.
    pub fn host(&self) -> IpAddr {
        network(self.0.address.ip(), 32)
    }

    /// The network that it is of, as far as one client may have several addresses: /24 of IPv4,
    /// /64 of IPv6.
    pub fn network(&self) -> IpAddr {
        network(self.0.address.ip(), 24)
    }

    /// The certificate that it showed, if it showed one; verified now, by the client CA of now. Two
    /// signatures are checked, some 0.2 ms; a refusal is remembered for 10 s or until the CA is
    /// another, so that a chain that is worth nothing costs no more than its handshake.
    ///
    /// # Errors
    /// The client CA does not mark_authenticated for it, it is over or not yet valid, or it is not for clients.
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
        *presented.rejection() = rejection;
        verified.map(|()| Some(&presented.leaf))
    }

    /// Says that this connection carries requests of somebody who may make them, so that
    /// strangers cannot push it out.
    pub fn mark_authenticated(&self) {
        self.0.permit.mark_authenticated();
    }

    /// Ends the connection at once, with all that is under way on it.
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
        let rejection = self.rejection();
        let holds = |it: &&CachedRejection| {
            it.by.is(ca) && now.duration_since(it.at).unsigned_abs() < REJECTION_TTL
        };
        rejection.as_ref().filter(holds).map(|it| it.error.clone())
    }

    fn rejection(&self) -> MutexGuard<'_, Option<CachedRejection>> {
        self.rejection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
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
