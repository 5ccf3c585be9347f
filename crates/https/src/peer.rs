//! Who is at the other end of a connection.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::{CertificateDer, UnixTime};
use tokio::sync::watch;
use windlass_types::Clock;

use crate::places::Place;
use crate::tls::ClientCa;

/// The other end, in the extensions of each request. Clones are the same connection.
#[derive(Clone)]
pub struct Peer(Arc<Connection>);

struct Connection {
    address: SocketAddr,
    shown: Option<Shown>,
    place: Option<Arc<Place>>,
}

/// A chain whose key the client has, and who says what it is worth.
struct Shown {
    leaf: ClientCertificate,
    intermediates: Vec<CertificateDer<'static>>,
    ca: watch::Receiver<ClientCa>,
    clock: Arc<dyn Clock>,
}

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
    /// One without certificate, of no connection; for tests and for services that are called
    /// directly.
    pub fn without_connection(address: SocketAddr) -> Self {
        Self(Arc::new(Connection {
            address,
            shown: None,
            place: None,
        }))
    }

    pub(crate) fn new(address: SocketAddr, place: Arc<Place>) -> Self {
        Self(Arc::new(Connection {
            address,
            shown: None,
            place: Some(place),
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
        };
        let peer = Self(Arc::new(Connection {
            address,
            shown: Some(shown),
            place: Some(place),
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

    /// The certificate that it showed, if it showed one; judged now, by the client CA of now. Two
    /// signatures are checked, some 0.2 ms.
    ///
    /// # Errors
    /// The client CA does not vouch for it, it is over or not yet valid, or it is not for clients.
    pub fn certificate(&self) -> Result<Option<&ClientCertificate>, CertificateFault> {
        let Some(shown) = &self.0.shown else {
            return Ok(None);
        };
        let seconds = u64::try_from(shown.clock.now().as_second()).unwrap_or_default();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let leaf = CertificateDer::from(shown.leaf.der.as_slice());
        let verifier = shown.ca.borrow().verifier();
        verifier.verify_client_cert(&leaf, &shown.intermediates, now)?;
        Ok(Some(&shown.leaf))
    }

    /// Says that this connection carries requests of somebody who may make them, so that
    /// strangers cannot push it out.
    pub fn vouch(&self) {
        if let Some(place) = &self.0.place {
            place.promote();
        }
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
