//! Parses a manifest into pods, or one error with the position and the fix.
//!
//! A manifest is a Pod, a PodList or a List of Pods, or several of them as YAML documents; the Go
//! kubelet reads only the first document. Unknown fields become warnings.
//! [`static_pod::load`](crate::static_pod::load) adds defaults and validation.

mod error;
#[cfg(test)]
mod tests;

use std::fmt;

use serde_json::Value;
use windlass_types::{Pod, PodSource};

use crate::yaml::{self, YamlError};

pub use error::{ManifestError, Problem};

/// Max size of a manifest, 10 MiB: far above real manifests, and small enough that a directory of
/// wrong files does not exhaust memory.
pub const MAX_MANIFEST_BYTES: u64 = 10 * 1024 * 1024;

/// Origin of a manifest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// Absolute path of a file.
    File(String),
    /// A URL.
    Url(String),
}

impl Origin {
    /// Returns the pod source.
    pub fn source(&self) -> PodSource {
        match self {
            Self::File(_) => PodSource::File,
            Self::Url(_) => PodSource::Http,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(text) | Self::Url(text) => f.write_str(text),
        }
    }
}

/// A decoded pod of a manifest, without defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedPod {
    /// The pod.
    pub pod: Pod,
    /// Index of its document among the non-empty documents.
    pub document: usize,
    /// Path in the document: empty, or `items[2]`.
    pub path: String,
    /// Paths of unknown fields, relative to the document.
    pub unknown_fields: Vec<String>,
}

/// Parses a manifest. The list is empty only for an empty PodList.
pub fn parse(bytes: &[u8], origin: &Origin) -> Result<Vec<ParsedPod>, ManifestError> {
    let fail = |problem| ManifestError::new(origin, problem);
    check_size(bytes.len() as u64, origin)?;
    let documents = yaml::documents(bytes).map_err(|error| fail(error.into()))?;
    if documents.is_empty() {
        return Err(fail(Problem::Empty));
    }
    let mut pods = Vec::new();
    for (document, value) in documents.iter().enumerate() {
        let context = Context {
            bytes,
            origin,
            document,
        };
        match context.kind(value, "", None)? {
            Kind::Pod => pods.push(context.pod(value, String::new())?),
            Kind::List { item_kind } => {
                for (index, item) in context.items(value)?.iter().enumerate() {
                    let path = format!("items[{index}]");
                    match context.kind(item, &path, Some(item_kind))? {
                        Kind::Pod => pods.push(context.pod(item, path)?),
                        Kind::List { .. } => return Err(context.not_a_pod(item, &path)),
                    }
                }
            }
        }
    }
    Ok(pods)
}

/// Rejects a manifest that is too large, before it is read.
pub fn check_size(size: u64, origin: &Origin) -> Result<(), ManifestError> {
    if size > MAX_MANIFEST_BYTES {
        return Err(ManifestError::new(origin, Problem::TooLarge { size }));
    }
    Ok(())
}

enum Kind {
    Pod,
    /// `item_kind` is the default kind of its items.
    List {
        item_kind: &'static str,
    },
}

/// The current document, for error positions.
struct Context<'a> {
    bytes: &'a [u8],
    origin: &'a Origin,
    document: usize,
}

impl Context<'_> {
    /// `implied` is the default kind of an item of a typed list.
    fn kind(
        &self,
        value: &Value,
        path: &str,
        implied: Option<&'static str>,
    ) -> Result<Kind, ManifestError> {
        if !value.is_object() {
            let message = format!(
                "found {}, expected a mapping with kind: Pod",
                name_of(value)
            );
            return Err(self.wrong_type(path, &message));
        }
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        let kind = text("kind").or(implied.filter(|k| !k.is_empty()));
        let version = text("apiVersion").or(implied.filter(|k| !k.is_empty()).map(|_| "v1"));
        match (version, kind) {
            (Some("v1"), Some("Pod")) => Ok(Kind::Pod),
            (Some("v1"), Some("PodList")) => Ok(Kind::List { item_kind: "Pod" }),
            (Some("v1"), Some("List")) => Ok(Kind::List { item_kind: "" }),
            _ => Err(self.not_a_pod(value, path)),
        }
    }

    fn items<'v>(&self, list: &'v Value) -> Result<&'v [Value], ManifestError> {
        match list.get("items") {
            None | Some(Value::Null) => Ok(&[]),
            Some(Value::Array(items)) => Ok(items),
            Some(other) => {
                let message = format!("found {}, expected a list of pods", name_of(other));
                Err(self.wrong_type("items", &message))
            }
        }
    }

    fn pod(&self, value: &Value, path: String) -> Result<ParsedPod, ManifestError> {
        let (pod, unknown) = yaml::decode(value).map_err(|error| {
            let error = error.located(self.bytes, self.document, &path);
            ManifestError::new(self.origin, error.into())
        })?;
        Ok(ParsedPod {
            pod,
            document: self.document,
            unknown_fields: unknown.iter().map(|f| yaml::join(&path, f)).collect(),
            path,
        })
    }

    fn not_a_pod(&self, value: &Value, path: &str) -> ManifestError {
        let text = |key| match value.get(key) {
            Some(Value::String(text)) => text.clone(),
            None | Some(Value::Null) => String::new(),
            Some(other) => other.to_string(),
        };
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let field = if api_version == "v1" || api_version.is_empty() && kind.is_empty() {
            "kind"
        } else {
            "apiVersion"
        };
        let field = yaml::join(path, field);
        ManifestError::new(
            self.origin,
            Problem::NotAPod {
                position: yaml::locate(self.bytes, self.document, &field),
                field,
                api_version,
                kind,
            },
        )
    }

    fn wrong_type(&self, field: &str, message: &str) -> ManifestError {
        let error = YamlError::Type {
            position: None,
            field: field.to_owned(),
            message: message.to_owned(),
        };
        let error = error.located(self.bytes, self.document, "");
        ManifestError::new(self.origin, error.into())
    }
}

fn name_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}
