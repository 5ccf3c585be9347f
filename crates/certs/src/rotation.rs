//! Rotation of certificates.
//!
//! [`plan`] decides on the next step from the validity, the responses of the API server and the
//! available credentials. [`client`] and [`serving`] execute the steps in endless loops; `obtain`
//! is one attempt.

pub(crate) mod client;
mod obtain;
pub(crate) mod plan;
pub(crate) mod serving;
#[cfg(test)]
mod tests;

pub use client::{Bootstrap, ClientRotation, run_client_rotation};
pub use serving::{ServingPair, ServingRotation, run_serving_rotation};
