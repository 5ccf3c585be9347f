//! What a server grants.

use std::time::Duration;

/// ConnectionLimiter and limit of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections of strangers. 256 of them with half-sent headers of 1 MiB are 256 MiB; idle ones
    /// take some 40 KiB each, 10 MiB together.
    pub unauthenticated_connections: usize,
    /// Of these, connections of one address (IPv6: of one /64 network): eight addresses have to
    /// join forces before strangers are short of limiter at all.
    pub unauthenticated_per_network: usize,
    /// Requests at a time of a connection that is a stranger's. HTTP/2 would let it have 250, whose
    /// headers, made of the shortest lines there are, take 300 KiB each while somebody is asked who
    /// it is: 75 MiB a connection. So it is 2.4 MiB, and 600 MiB for all strangers.
    pub unauthenticated_requests: usize,
    /// Connections of those who are no strangers: 250 pods with eight followed logs, sessions and
    /// scrapes each. Who comes beyond stays in a stranger's permit.
    pub authenticated_connections: usize,
    /// For a TLS handshake.
    pub handshake: Duration,
    /// From the handshake to the end of the first header.
    pub first_request: Duration,
    /// From the end of an answer to the end of the next header.
    pub idle: Duration,
    /// For the whole body of a request.
    pub body: Duration,
    /// Most bytes of it.
    pub body_bytes: u64,
    /// For requests under way when the server ends.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            unauthenticated_connections: 256,
            unauthenticated_per_network: 32,
            unauthenticated_requests: 8,
            authenticated_connections: 2048,
            handshake: Duration::from_secs(10),
            first_request: Duration::from_secs(30),
            idle: Duration::from_secs(90),
            body: Duration::from_secs(60),
            body_bytes: 1 << 20,
            drain_timeout: Duration::from_secs(5),
        }
    }
}

/// Longest header of HTTP/1.1: Go's `MaxHeaderBytes` and the margin it adds.
pub(crate) const HEADER_BYTES: usize = (1 << 20) + 4096;
/// Longest header of an HTTP/2 stream: 250 streams of these are 16 MiB.
pub(crate) const STREAM_HEADER_BYTES: u32 = 64 << 10;
/// Streams of an HTTP/2 connection, Go's default.
pub(crate) const STREAMS: u32 = 250;
/// Streams that were reset by the client and are still worked on; more end the connection
/// (CVE-2023-44487).
pub(crate) const RESET_STREAMS: usize = 20;
