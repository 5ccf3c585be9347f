//! Static pods from manifests, and the merge of pod sources into one stream of changes.
//!
//! For programs that read pod manifests as a kubelet does: a linter, an admission check in a
//! pipeline, a node agent.
//!
//! # Entry points
//!
//! * [`static_pod::load`] loads the static pods of a manifest: parsed, defaulted, validated, with
//!   the name and the UID on a node
//! * [`merge::PodStorage`] merges the pods of several sources and returns the changes
//! * [`image_name::ImageName`] parses an image reference; [`image_name::should_pull`] decides
//!   whether to pull
//! * [`yaml::from_slice`] decodes YAML or JSON, with unknown fields and error positions
//!
//! # Example
//!
//! ```
//! use windlass_manifests::manifest::{ManifestError, Origin};
//! use windlass_manifests::static_pod;
//! use windlass_types::PodExt;
//!
//! let manifest = b"
//! apiVersion: v1
//! kind: Pod
//! metadata: {name: web}
//! spec: {containers: [{name: web, image: nginx, imagge: x}]}
//! ";
//! let origin = Origin::File("/etc/kubernetes/manifests/web.yaml".to_owned());
//! let loaded = static_pod::load(manifest, &origin, "node1")?;
//! assert_eq!(loaded.pods[0].name(), "web-node1");
//! assert!(loaded.warnings[0].contains("unknown field \"spec.containers[0].imagge\""));
//!
//! let error = static_pod::load(b"{apiVersion: v1, kind: Service}", &origin, "node1").unwrap_err();
//! assert!(error.to_string().contains("line 1, column 24: kind"));
//! # Ok::<(), ManifestError>(())
//! ```
//!
//! `cargo run -p windlass-manifests --example load_manifest -- pod.yaml` does the same with a file.
//!
//! # Guarantees
//!
//! The same bytes, origin and node give the same pods and UIDs. An error names the file, line,
//! field and fix. No input causes a panic; size, nesting, aliases and nodes are limited
//! ([`manifest::MAX_MANIFEST_BYTES`]).
//!
//! # Limits
//!
//! No file or network access: callers read the bytes. Validation covers the fields of static pods;
//! fields of the scheduler and of Windows are not validated.

pub mod yaml;

pub mod defaults;
pub mod manifest;
pub mod static_pod;
pub mod validation;

pub mod image_name;
pub mod merge;
