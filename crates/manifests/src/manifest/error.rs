//! Errors of a manifest: file, line, field and fix.

use std::fmt;

use windlass_types::Retry;

use super::{MAX_MANIFEST_BYTES, Origin};
use crate::static_pod::ApiReference;
use crate::validation::FieldError;
use crate::yaml::{Position, YamlError};

/// Max errors of one manifest in a message.
const MAX_LISTED_ERRORS: usize = 20;

/// Why a manifest is rejected.
#[derive(Clone, Debug, PartialEq)]
pub struct ManifestError {
    /// The manifest.
    pub origin: Origin,
    /// The problem.
    pub problem: Box<Problem>,
}

/// Problem of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub enum Problem {
    /// Reading it failed, with the cause.
    Unreadable(String),
    /// Larger than [`MAX_MANIFEST_BYTES`].
    TooLarge {
        /// Its size in bytes, or a lower bound.
        size: u64,
    },
    /// Neither a regular file nor a link to one: a directory, socket, pipe or device.
    NotAFile(&'static str),
    /// It contains no object.
    Empty,
    /// Not YAML, or a field of the wrong type.
    Yaml(YamlError),
    /// Another object, or not an object.
    NotAPod {
        /// Position of the field.
        position: Option<Position>,
        /// Path of `kind` or `apiVersion`.
        field: String,
        /// The value of `apiVersion`.
        api_version: String,
        /// The value of `kind`.
        kind: String,
    },
    /// A pod that the API server would reject too.
    Invalid(Vec<FieldError>),
    /// A pod that refers to API objects, which a static pod must not.
    ApiReferences(Vec<ApiReference>),
}

impl From<YamlError> for Problem {
    fn from(error: YamlError) -> Self {
        Self::Yaml(error)
    }
}

impl ManifestError {
    /// Creates an error.
    pub fn new(origin: &Origin, problem: Problem) -> Self {
        Self {
            origin: origin.clone(),
            problem: Box::new(problem),
        }
    }

    /// Returns the retry class; only a read error is retried.
    pub fn retry(&self) -> Retry {
        match *self.problem {
            Problem::Unreadable(_) => Retry::Later,
            _ => Retry::Never,
        }
    }

    /// Returns the fix for the user.
    pub fn fix(&self) -> &'static str {
        match &*self.problem {
            Problem::Unreadable(_) => "check that it exists and that the agent may read it",
            Problem::TooLarge { .. } => "split it, or move the data out of the manifest",
            Problem::NotAFile(_) => "put regular files, or links to them, into the directory",
            Problem::Empty => "add a Pod, or remove the file",
            Problem::Yaml(YamlError::NotText { .. }) => "replace it with a Pod in YAML or JSON",
            Problem::Yaml(YamlError::Type { message, .. }) if is_unquoted_text(message) => {
                "quote the value: YAML does not parse numbers, and words such as yes, no, on, off, y and n, as strings"
            }
            Problem::Yaml(YamlError::Type { .. }) => "write the field as the Pod API defines it",
            Problem::Yaml(_) => "correct the YAML",
            Problem::NotAPod { .. } => {
                "only apiVersion: v1 with kind: Pod, PodList or List of Pods can run without an API server"
            }
            Problem::Invalid(_) => "correct the named fields",
            Problem::ApiReferences(_) => {
                "use hostPath, emptyDir, fieldRef or literal values instead"
            }
        }
    }
}

impl std::error::Error for ManifestError {}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.origin)?;
        match &*self.problem {
            Problem::Unreadable(why) => write!(f, "cannot be read: {why}"),
            Problem::TooLarge { size } => write!(
                f,
                "{size} bytes exceed the limit of {MAX_MANIFEST_BYTES} bytes"
            ),
            Problem::NotAFile(what) => write!(f, "is {what}, not a file"),
            Problem::Empty => f.write_str("contains no object"),
            Problem::Yaml(error) => write!(f, "{error}"),
            Problem::NotAPod {
                position,
                field,
                api_version,
                kind,
            } => {
                write_position(f, position)?;
                write!(
                    f,
                    "{field}: found apiVersion {api_version:?} and kind {kind:?}"
                )
            }
            Problem::Invalid(errors) => write_list(f, errors),
            Problem::ApiReferences(references) => write_list(f, references),
        }?;
        write!(f, " ({})", self.fix())
    }
}

/// Returns whether YAML 1.1 parsed an unquoted string as another type.
fn is_unquoted_text(message: &str) -> bool {
    let scalar = ["boolean", "integer", "floating point"];
    message.ends_with("expected a string")
        && scalar
            .iter()
            .any(|kind| message.starts_with(&format!("invalid type: {kind}")))
}

fn write_list(f: &mut fmt::Formatter<'_>, list: &[impl fmt::Display]) -> fmt::Result {
    for (index, item) in list.iter().take(MAX_LISTED_ERRORS).enumerate() {
        write!(f, "{}{item}", if index == 0 { "" } else { "; " })?;
    }
    match list.len().saturating_sub(MAX_LISTED_ERRORS) {
        0 => Ok(()),
        more => write!(f, "; and {more} more"),
    }
}

fn write_position(f: &mut fmt::Formatter<'_>, position: &Option<Position>) -> fmt::Result {
    match position {
        Some(position) => write!(f, "{position}: "),
        None => Ok(()),
    }
}
