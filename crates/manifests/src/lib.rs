//! Pod manifests: strict YAML, defaults, validation, static pods and the merge of pod sources.

pub mod defaults;
pub mod image_name;
pub mod manifest;
pub mod merge;
pub mod static_pod;
pub mod validation;
pub mod yaml;
