//! Static pods from a URL (`staticPodURL`).
//!
//! Fetched every `httpCheckFrequency` with a deadline of 10 s. A body equal to the last one is
//! not looked at; an empty one is an empty set and an error; any failure leaves the pods as they
//! are. `http` and `https` are supported, the latter with the system's certificate authorities;
//! redirects are not followed.

mod actor;
pub(crate) mod io;
pub(crate) mod state;

#[cfg(test)]
mod tests;

pub use actor::{HttpSource, HttpSourceConfig};
