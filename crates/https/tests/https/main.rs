//! The server over real sockets.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test that sets the scene wrongly ends there"
)]

mod kit;

mod certificates;
mod limits;
mod protocols;
