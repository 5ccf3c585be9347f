//! Who is at the other end of a connection.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls_pki_types::{CertificateDer, UnixTime};
use tokio::sync::watch;
use windlass_types::{Clock, Timestamp};

use crate::places::{Place, network};
use crate::tls::ClientCa;

/// The other end, in the extensions of each request. Clones are the same connection.
#[derive(Clone)]
pub struct Peer(Arc<Connection>);

struct Connection {
    address: SocketAddr,
    shown: Option<Shown>,
    place: Arc<Place>,
}

/// A chain whose key the client has, and who says what it is worth.
struct Shown {
    leaf: ClientCertificate,
    intermediates: Vec<CertificateDer<'static>>,
    ca: watch::Receiver<ClientCa>,
    clock: Arc<dyn Clock>,
    refused: Mutex<Option<Refused>>,
}

/// The last refusal of a chain: a client has no more of them by asking more often.
struct Refused {
    fault: CertificateFault,
    by: ClientCa,
    at: Timestamp,
}

/// For how long a refusal holds by the same CA: a certificate may yet begin to be valid.
const REFUSED: Duration = Duration::from_secs(10);

/// A client certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The leaf, DER.
    pub der: Vec<u8>,
}

/// A client showed a certificate that is worth nothing.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("the client certificate is not accepted: {0}")]
pub struct CertificateFault(#[from] rustls::Error);

impl Peer {
    pub(crate) fn new(address: SocketAddr, place: Arc<Place>) -> Self {
        Self(Arc::new(Connection {
            address,
            shown: None,
            place,
        }))
    }

    /// One that showed this chain, the leaf first. Who shows a good one is no stranger.
    pub(crate) fn with_chain(
        address: SocketAddr,
        place: Arc<Place>,
        chain: &[CertificateDer<'_>],
        ca: watch::Receiver<ClientCa>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let Some((leaf, rest)) = chain.split_first() else {
            return Self::new(address, place);
        };
        let shown = Shown {
            leaf: ClientCertificate { der: leaf.to_vec() },
            intermediates: rest.iter().map(|one| one.clone().into_owned()).collect(),
            ca,
            clock,
            refused: Mutex::default(),
        };
        let peer = Self(Arc::new(Connection {
            address,
            shown: Some(shown),
            place,
        }));
        if matches!(peer.certificate(), Ok(Some(_))) {
            peer.vouch();
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

    /// The certificate that it showed, if it showed one; judged now, by the client CA of now. Two
    /// signatures are checked, some 0.2 ms; a refusal is remembered for 10 s or until the CA is
    /// another, so that a chain that is worth nothing costs no more than its handshake.
    ///
    /// # Errors
    /// The client CA does not vouch for it, it is over or not yet valid, or it is not for clients.
    pub fn certificate(&self) -> Result<Option<&ClientCertificate>, CertificateFault> {
        let Some(shown) = &self.0.shown else {
            return Ok(None);
        };
        let (ca, now) = (shown.ca.borrow().clone(), shown.clock.now());
        if let Some(fault) = shown.refused_lately(&ca, now) {
            return Err(fault);
        }
        let judged = shown.judge(&ca, now);
        let refused = judged.as_ref().err().map(|fault| Refused {
            fault: fault.clone(),
            by: ca,
            at: now,
        });
        *shown.refused() = refused;
        judged.map(|()| Some(&shown.leaf))
    }

    /// Says that this connection carries requests of somebody who may make them, so that
    /// strangers cannot push it out.
    pub fn vouch(&self) {
        self.0.place.promote();
    }

    /// Ends the connection at once, with all that is under way on it.
    pub fn send_away(&self) {
        self.0.place.send_away();
    }
}

impl Shown {
    fn judge(&self, ca: &ClientCa, now: Timestamp) -> Result<(), CertificateFault> {
        let seconds = u64::try_from(now.as_second()).unwrap_or_default();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let leaf = CertificateDer::from(self.leaf.der.as_slice());
        let verifier = ca.verifier();
        verifier.verify_client_cert(&leaf, &self.intermediates, now)?;
        Ok(())
    }

    fn refused_lately(&self, ca: &ClientCa, now: Timestamp) -> Option<CertificateFault> {
        let refused = self.refused();
        let holds =
            |it: &&Refused| it.by.is(ca) && now.duration_since(it.at).unsigned_abs() < REFUSED;
        refused.as_ref().filter(holds).map(|it| it.fault.clone())
    }

    fn refused(&self) -> MutexGuard<'_, Option<Refused>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("address", &self.0.address)
            .field("showed_certificate", &self.0.shown.is_some())
            .finish()
    }
}
