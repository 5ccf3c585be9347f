//! Who is at the other end of a connection.

use std::net::SocketAddr;
use std::sync::Arc;

/// The other end, in the extensions of each request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// The certificate it showed, if it showed one that the client CA vouches for.
    pub certificate: Option<Arc<ClientCertificate>>,
}

/// A verified client certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The leaf, DER.
    pub der: Vec<u8>,
}
