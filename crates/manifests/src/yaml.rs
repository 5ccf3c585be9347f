//! The YAML and JSON parser for manifests and configuration files.
//!
//! Bytes are parsed to JSON values and then to typed objects, as upstream, so that unknown fields
//! are listed with their paths. YAML 1.1 octal numbers (`defaultMode: 0644`) and booleans (`yes`)
//! are read as in the Go kubelet. A duplicate key is an error, in a configuration file a warning.
//! Nesting, aliases and node counts are limited.

mod locate;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_saphyr::DuplicateKeyPolicy;

pub(crate) use locate::Locator;
pub use locate::locate;

/// A position in a text; both numbers start at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line.
    pub line: u64,
    /// Column in characters.
    pub column: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// Why a text could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum YamlError {
    /// The bytes are not UTF-8 text.
    #[error("not UTF-8 text: invalid byte at offset {offset}")]
    NotText {
        /// Offset of the first invalid byte.
        offset: usize,
    },
    /// The text is not YAML, or exceeds a limit.
    #[error("{}{message}", prefix(.position, None))]
    Syntax {
        /// Position, if known.
        position: Option<Position>,
        /// Message of the parser.
        message: String,
    },
    /// Not exactly one document.
    #[error("found {found} documents, expected exactly one")]
    Documents {
        /// Number of non-empty documents.
        found: usize,
    },
    /// A value has the wrong type.
    #[error("{}{message}", prefix(.position, Some(.field)))]
    Type {
        /// Position, if known.
        position: Option<Position>,
        /// Path of the field, as in `spec.containers[0].image`; empty for the whole document.
        field: String,
        /// What was found and what was expected.
        message: String,
    },
}

fn prefix(position: &Option<Position>, field: Option<&String>) -> String {
    let mut text = String::new();
    if let Some(position) = position {
        text.push_str(&format!("{position}: "));
    }
    if let Some(field) = field.filter(|f| !f.is_empty()) {
        text.push_str(&format!("{field}: "));
    }
    text
}

/// Returns all non-empty documents of a text, in order.
pub fn documents(bytes: &[u8]) -> Result<Vec<Value>, YamlError> {
    let text = text(bytes)?;
    match serde_saphyr::from_multiple_with_options(text, options(DuplicateKeyPolicy::Error)) {
        Ok(documents) => Ok(documents),
        Err(error) => {
            // JSON that is not YAML: tabs as indentation, surrogate pairs; serde_json would accept
            // duplicate keys
            let duplicate = matches!(
                error.without_snippet(),
                serde_saphyr::Error::DuplicateMappingKey { .. }
            );
            if !duplicate
                && text.trim_start().starts_with('{')
                && let Ok(value) = serde_json::from_str(text)
            {
                return Ok(vec![value]);
            }
            Err(syntax(&error))
        }
    }
}

/// As [`documents`], but the last of duplicate keys counts. Also returns the error of
/// [`documents`] for such a text.
pub fn documents_with_duplicates(
    bytes: &[u8],
) -> Result<(Vec<Value>, Option<YamlError>), YamlError> {
    let rejected = match documents(bytes) {
        Ok(documents) => return Ok((documents, None)),
        Err(error) => error,
    };
    let lenient = options(DuplicateKeyPolicy::LastWins);
    match serde_saphyr::from_multiple_with_options(text(bytes)?, lenient) {
        Ok(documents) => Ok((documents, Some(rejected))),
        Err(_) => Err(rejected),
    }
}

/// Decodes a value and returns the paths of its unknown fields.
///
/// The error is always [`YamlError::Type`], without a position; see [`locate`].
pub fn decode<T: DeserializeOwned>(value: &Value) -> Result<(T, Vec<String>), YamlError> {
    let mut unknown = Vec::new();
    let mut note = |path: serde_ignored::Path<'_>| unknown.push(render(&path));
    let deserializer = serde_ignored::Deserializer::new(value, &mut note);
    match serde_path_to_error::deserialize(deserializer) {
        Ok(decoded) => Ok((decoded, unknown)),
        Err(error) => {
            let field = match error.path().to_string() {
                root if root == "." => String::new(),
                field => field,
            };
            Err(YamlError::Type {
                position: None,
                field,
                message: error.into_inner().to_string(),
            })
        }
    }
}

/// Decodes a text with exactly one document and returns unknown fields. Errors have positions.
pub fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, Vec<String>), YamlError> {
    let documents = documents(bytes)?;
    let [document] = documents.as_slice() else {
        return Err(YamlError::Documents {
            found: documents.len(),
        });
    };
    decode(document).map_err(|error| error.located(bytes, 0, ""))
}

/// Writes a value as YAML.
pub fn to_string<T: Serialize>(value: &T) -> Result<String, YamlError> {
    serde_saphyr::to_string(value).map_err(|error| YamlError::Syntax {
        position: None,
        message: error.to_string(),
    })
}

impl YamlError {
    /// Adds the position of the field to a type error.
    ///
    /// `document` counts non-empty documents from 0; `parent` is the path of the decoded value
    /// within its document (`items[2]`), empty for the document itself.
    pub fn located(self, bytes: &[u8], document: usize, parent: &str) -> Self {
        match self {
            Self::Type {
                position: None,
                field,
                message,
            } => {
                let field = join(parent, &field);
                Self::Type {
                    position: locate(bytes, document, &field),
                    field,
                    message,
                }
            }
            other => other,
        }
    }
}

/// Joins two field paths.
pub fn join(parent: &str, field: &str) -> String {
    match (parent.is_empty(), field.is_empty()) {
        (true, _) => field.to_owned(),
        (_, true) => parent.to_owned(),
        _ if field.starts_with('[') => format!("{parent}{field}"),
        _ => format!("{parent}.{field}"),
    }
}

fn text(bytes: &[u8]) -> Result<&str, YamlError> {
    let text = std::str::from_utf8(bytes).map_err(|error| YamlError::NotText {
        offset: error.valid_up_to(),
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// Returns parser settings. The limits fit any real manifest and end an alias bomb after a few
/// milliseconds.
fn options(duplicates: DuplicateKeyPolicy) -> serde_saphyr::Options {
    let mut options = serde_saphyr::Options::default();
    options.duplicate_keys = duplicates;
    options.legacy_octal_numbers = true;
    options.with_snippet = false;
    let mut budget = serde_saphyr::Budget::default();
    budget.max_events = 400_000;
    budget.max_nodes = 200_000;
    budget.max_documents = 256;
    budget.max_aliases = 1_000;
    budget.max_anchors = 1_000;
    budget.max_merge_keys = 1_000;
    options.budget = Some(budget);
    options.alias_limits.max_total_replayed_events = 50_000;
    options
}

fn syntax(error: &serde_saphyr::Error) -> YamlError {
    let error = error.without_snippet();
    let position = error.location().map(position).filter(|p| p.line > 0);
    let mut message = error.to_string();
    // advice for callers of the parser
    if let Some(end) = message.find(", set DuplicateKeyPolicy") {
        message.truncate(end);
    }
    // the parser repeats the position in its message
    if let Some(position) = position {
        let repeated = format!(" at {position}");
        message = message.replace(&repeated, "");
        let prefix = format!("{position}: ");
        message = message.replace(&prefix, "");
        message = message.replace(
            &format!("line {} column {}: ", position.line, position.column),
            "",
        );
    }
    YamlError::Syntax { position, message }
}

fn position(location: serde_saphyr::Location) -> Position {
    Position {
        line: location.line(),
        column: location.column(),
    }
}

/// Returns the path as in Kubernetes: `spec.containers[0]`, not `spec.?.containers.0`.
fn render(path: &serde_ignored::Path<'_>) -> String {
    use serde_ignored::Path;
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", render(parent)),
        Path::Map { parent, key } => join(&render(parent), key),
        Path::Some { parent }
        | Path::NewtypeStruct { parent }
        | Path::NewtypeVariant { parent } => render(parent),
    }
}
