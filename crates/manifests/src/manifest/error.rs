//! What is wrong with a manifest: file, line, field, and what to change.

use std::fmt;

use windlass_types::Retry;

use super::{MAX_MANIFEST_BYTES, Origin};
use crate::static_pod::ApiReference;
use crate::validation::FieldError;
use crate::yaml::{Position, YamlError};

/// Errors of one manifest that are spelled out; a log line has to end somewhere.
const MOST_SHOWN: usize = 20;

/// Why a manifest gives no pods. Trying again is useless until the manifest changes, except
/// where it could not be read.
#[derive(Clone, Debug, PartialEq)]
pub struct ManifestError {
    /// Which manifest.
    pub origin: Origin,
    /// What is wrong with it.
    pub problem: Box<Problem>,
}

/// The ways a manifest can be wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum Problem {
    /// The bytes could not be had: the system's or the server's words.
    Unreadable(String),
    /// Larger than [`MAX_MANIFEST_BYTES`].
    TooLarge {
        /// Its size in bytes, as far as known.
        size: u64,
    },
    /// Neither a regular file nor a link to one: a directory, socket, pipe or device.
    NotAFile(&'static str),
    /// Nothing in it.
    Empty,
    /// Not YAML, or a field of the wrong type.
    Yaml(YamlError),
    /// Some other object, or none at all.
    NotAPod {
        /// Line of the offending field.
        position: Option<Position>,
        /// `kind` or `apiVersion`, with the item it belongs to.
        field: String,
        /// What it says.
        api_version: String,
        /// What it says.
        kind: String,
    },
    /// A pod that the API would refuse too.
    Invalid(Vec<FieldError>),
    /// A pod that needs objects of the API server, which a static pod cannot have.
    ApiReferences(Vec<ApiReference>),
}

impl From<YamlError> for Problem {
    fn from(error: YamlError) -> Self {
        Self::Yaml(error)
    }
}

impl ManifestError {
    /// An error of one manifest.
    pub fn new(origin: &Origin, problem: Problem) -> Self {
        Self {
            origin: origin.clone(),
            problem: Box::new(problem),
        }
    }

    /// What trying again would bring.
    pub fn retry(&self) -> Retry {
        match *self.problem {
            Problem::Unreadable(_) => Retry::Later,
            _ => Retry::Never,
        }
    }

    /// What the user should do about it.
    pub fn fix(&self) -> &'static str {
        match &*self.problem {
            Problem::Unreadable(_) => "check that it exists and that the agent may read it",
            Problem::TooLarge { .. } => "split it, or move the data out of the manifest",
            Problem::NotAFile(_) => "put regular files, or links to them, into the directory",
            Problem::Empty => "write a Pod into it, or remove it",
            Problem::Yaml(YamlError::NotText { .. }) => "replace it by a Pod in YAML or JSON",
            Problem::Yaml(YamlError::Type { message, .. }) if is_unquoted_text(message) => {
                "put the value in quotes: YAML takes numbers, and words like yes, no, on, off, y and n, for something other than text"
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
                "{size} bytes are more than the {MAX_MANIFEST_BYTES} a manifest may have"
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

/// A text was wanted, and YAML 1.1 made something else of it.
fn is_unquoted_text(message: &str) -> bool {
    let scalar = ["boolean", "integer", "floating point"];
    message.ends_with("expected a string")
        && scalar
            .iter()
            .any(|kind| message.starts_with(&format!("invalid type: {kind}")))
}

fn write_list(f: &mut fmt::Formatter<'_>, list: &[impl fmt::Display]) -> fmt::Result {
    for (index, item) in list.iter().take(MOST_SHOWN).enumerate() {
        write!(f, "{}{item}", if index == 0 { "" } else { "; " })?;
    }
    match list.len().saturating_sub(MOST_SHOWN) {
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
