//! Keeps a certificate current, for as long as the agent lives.
//!
//! [`plan`] decides what to do now, from the certificate's dates, what the API server thinks of
//! it and what there is to ask with; [`client`] and [`serving`] do it, in a loop that nothing
//! ends; `obtain` is one attempt.

pub(crate) mod client;
mod obtain;
pub(crate) mod plan;
pub(crate) mod serving;
#[cfg(test)]
mod tests;

pub use client::{Bootstrap, ClientRotation, run_client_rotation};
pub use serving::{ServingPair, ServingRotation, run_serving_rotation};
