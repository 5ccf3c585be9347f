//! Certificates against the fake API server: in process under paused time, and over TLS where
//! it matters who the server takes the node for.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that sets the scene wrongly ends there"
)]

mod first;
mod renewal;
mod serving;
mod support;
mod tls;
