//! Authentication and authorization against the API server of `windlass_fake_api`.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test that sets the scene wrongly ends there"
)]

mod kit;
#[allow(
    dead_code,
    reason = "the tests of windlass-https use all of what they share with these"
)]
#[path = "../../../https/tests/https/kit.rs"]
mod tls;

mod paths;
mod reviews;
mod sockets;
