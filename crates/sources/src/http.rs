//! Static pods from a URL (`staticPodURL`).
//!
//! Fetched every `httpCheckFrequency` with a timeout of 10 s. An unchanged body is not parsed; an
//! empty body is an empty set and an error; a failed fetch changes no pod. `https` uses the
//! certificate authorities of the host; redirects are not followed.

mod actor;
pub(crate) mod io;
pub(crate) mod state;

#[cfg(test)]
mod tests;

pub use actor::{HttpSource, HttpSourceConfig};
