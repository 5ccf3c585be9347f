//! The one place where YAML (and JSON, which is YAML) becomes data.
//!
//! Bytes become plain JSON values first and typed objects second, as upstream's decoder does,
//! so that fields nobody knows can be listed with their paths instead of being lost. YAML 1.1
//! octal numbers (`defaultMode: 0644`) and booleans (`yes`) mean what they mean to the Go
//! kubelet; a duplicate key is an error, in a configuration file a warning; nesting, aliases and
//! node counts are bounded.
//! Manifests and the agent's own configuration file are both read here.

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

/// A place in a text, both counted from 1.
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

/// Why a text did not become what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum YamlError {
    /// The bytes are not UTF-8 text.
    #[error("not UTF-8 text: invalid byte at offset {offset}")]
    NotText {
        /// Offset of the first offending byte.
        offset: usize,
    },
    /// The text is not YAML, or exceeds a bound.
    #[error("{}{message}", prefix(.position, None))]
    Syntax {
        /// Where.
        position: Option<Position>,
        /// What the parser says.
        message: String,
    },
    /// There is no document, or more than one where one is needed.
    #[error("found {found} documents where exactly one is needed")]
    Documents {
        /// Number of non-empty documents.
        found: usize,
    },
    /// A value has the wrong type.
    #[error("{}{message}", prefix(.position, Some(.field)))]
    Type {
        /// Where, if it could be found.
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

/// All non-empty documents of a text, in order.
pub fn documents(bytes: &[u8]) -> Result<Vec<Value>, YamlError> {
    let text = text(bytes)?;
    match serde_saphyr::from_multiple_with_options(text, options(DuplicateKeyPolicy::Error)) {
        Ok(documents) => Ok(documents),
        Err(error) => {
            // JSON that YAML cannot carry: tabs as indentation, surrogate pairs. A duplicate
            // key stays an error, serde_json would silently take the last one.
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

/// As [`documents`], but of a key that comes twice the last counts. With it comes what
/// [`documents`] has to say of such a text.
pub fn documents_with_duplicates(
    bytes: &[u8],
) -> Result<(Vec<Value>, Option<YamlError>), YamlError> {
    let refused = match documents(bytes) {
        Ok(documents) => return Ok((documents, None)),
        Err(error) => error,
    };
    let lenient = options(DuplicateKeyPolicy::LastWins);
    match serde_saphyr::from_multiple_with_options(text(bytes)?, lenient) {
        Ok(documents) => Ok((documents, Some(refused))),
        Err(_) => Err(refused),
    }
}

/// Decodes a value and lists the paths of the fields that `T` does not know.
///
/// The error is always [`YamlError::Type`], without a position; [`locate`] finds one.
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

/// Decodes a text with exactly one document, and lists unknown fields. Errors carry positions.
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
    /// Adds the position of a type error's field, looked up in the text it came from.
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

/// Parser settings. The bounds fit any real manifest (a pod has a few hundred nodes) and end an
/// alias bomb after a few milliseconds.
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
    // its advice is for whoever calls the parser
    if let Some(end) = message.find(", set DuplicateKeyPolicy") {
        message.truncate(end);
    }
    // The position is a field of ours; the parser repeats it in its text.
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

/// `serde_ignored` writes `spec.?.containers.0`; Kubernetes writes `spec.containers[0]`.
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
