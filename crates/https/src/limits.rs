//! The limits of a server.

use std::time::Duration;

/// Connection limits and timeouts of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of unauthenticated connections. 256 of them with half-sent headers of 1 MiB
    /// are 256 MiB; idle ones take some 40 KiB each, 10 MiB together.
    pub unauthenticated_connections: usize,
    /// Maximum of these per address (IPv6: per /64 network): it takes eight addresses to use up
    /// the limit.
    pub unauthenticated_per_network: usize,
    /// Maximum number of concurrent requests of an unauthenticated connection. With 250 as in
    /// HTTP/2, headers of many short lines take 300 KiB each, 75 MiB per connection. With 8 it is
    /// 2.4 MiB, and 600 MiB for all connections.
    pub unauthenticated_requests: usize,
    /// Maximum number of authenticated connections: 250 pods with eight followed logs, sessions
    /// and scrapes each. Beyond it a connection stays in the unauthenticated limit.
    pub authenticated_connections: usize,
    /// Timeout of a TLS handshake.
    pub handshake: Duration,
    /// Timeout from the handshake to the end of the first header.
    pub first_request: Duration,
    /// Timeout from the end of a response to the end of the next header.
    pub idle: Duration,
    /// Timeout of a request body.
    pub body: Duration,
    /// Maximum size of a request body.
    pub body_bytes: u64,
    /// Timeout of requests in progress at shutdown.
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

/// Maximum HTTP/1.1 header: Go's `MaxHeaderBytes` and the margin it adds.
pub(crate) const MAX_HEADER_BYTES: usize = (1 << 20) + 4096;
/// Maximum header of an HTTP/2 stream: 250 streams take 16 MiB.
pub(crate) const MAX_STREAM_HEADER_BYTES: u32 = 64 << 10;
/// Maximum number of streams of an HTTP/2 connection, Go's default.
pub(crate) const MAX_STREAMS: u32 = 250;
/// Maximum number of streams that the client reset and that are still processed; more end the
/// connection (CVE-2023-44487).
pub(crate) const MAX_RESET_STREAMS: usize = 20;
