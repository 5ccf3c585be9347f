//! Certificates against the fake API server: in process on paused time, and over TLS where the
//! authenticated user matters.

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
