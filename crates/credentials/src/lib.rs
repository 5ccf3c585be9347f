//! Decisions on credentials: image pull credentials, credential providers, pod certificates.

pub mod access;
pub mod credentials;
pub mod image_access;
pub mod pod_certificate;
