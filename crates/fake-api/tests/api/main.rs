//! The server from its clients: in process on paused time, and over TLS.
#![expect(
    clippy::unwrap_used,
    reason = "what sets the scene of a test may fail it"
)]

mod call;
mod faults;
mod in_process;
mod node;
mod proxies;
mod semantics;
mod tls;
mod watches;
