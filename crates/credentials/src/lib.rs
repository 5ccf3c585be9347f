//! Decisions on credentials: registry credentials, credential providers, access to images, pod
//! certificates.
//!
//! For a program that pulls images as a kubelet does, or that checks why a pull is anonymous. Pure:
//! files, plugin output and API objects are values.
//!
//! # Entry points
//!
//! * [`credentials::Keyring`] matches docker config files and pull secrets with image names
//! * [`credentials::provider`] reads a `CredentialProviderConfig` and the responses of its plugins
//! * [`image_access::image_access`] decides whether a pod may use an image that is present
//! * [`pod_certificate`] is the state machine of a `PodCertificateRequest`
//!
//! # Example
//!
//! ```
//! use windlass_credentials::credentials::{DockerConfigFormat, Keyring};
//!
//! let config = br#"{"auths": {"quay.io/team": {"username": "ci", "password": "x"}}}"#;
//! let read = Keyring::from_file(DockerConfigFormat::ConfigJson, config, "config.json");
//! assert!(read.errors.is_empty());
//! assert_eq!(read.keyring.lookup("quay.io/team/app:1")[0].username, "ci");
//! assert!(read.keyring.lookup("docker.io/library/nginx").is_empty());
//! ```
//!
//! `cargo run -p windlass-credentials --example match_credentials -- IMAGE` shows which entry of a
//! docker config file is for an image.
//!
//! # Guarantees
//!
//! One malformed entry is reported and disables no other. `Debug` and errors contain no password.
//!
//! # Limits
//!
//! Nothing is read, executed or requested here: see `windlass-objects` and `windlass-runtime`.

pub mod credentials;
pub mod image_access;
pub mod pod_certificate;
