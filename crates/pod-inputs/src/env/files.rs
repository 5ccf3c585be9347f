//! Variables from files in a volume of the pod (`fileKeyRef`, KEP-3721).
//!
//! The format is a subset of shell: lines of `NAME='value'`, comments (`#`) and blank lines. A
//! value may span lines and has no escapes. A file is read when a container is created, because an
//! init container may write it.

use std::collections::BTreeMap;
use std::fmt;

use windlass_types::corev1::{Container, FileKeySelector};

use super::EnvError;

/// Max length of a line in bytes, as upstream.
const MAX_LINE_BYTES: usize = 64 * 1024;

/// Max size of a file in bytes; upstream has no limit.
pub const MAX_ENV_FILE_BYTES: usize = 1 << 20;

/// Max total size of the files of a container in bytes, due to the size of a CRI request.
pub const MAX_ENV_FILES_BYTES: usize = 16 << 20;

/// A file in a volume of the pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EnvFileKey {
    /// Name of the volume.
    pub volume: String,
    /// Path in the volume.
    pub path: String,
}

/// Content of a file, or the error.
#[derive(Clone, PartialEq, Eq)]
pub struct EnvFile {
    /// Path on the node, for messages.
    pub host_path: String,
    /// Text, or the cause of the error.
    pub text: Result<String, String>,
}

impl fmt::Debug for EnvFile {
    /// Path only: the content may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EnvFile").field(&self.host_path).finish()
    }
}

/// Files of the variables of a container. An unknown volume has no entry.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct EnvFiles(pub BTreeMap<EnvFileKey, EnvFile>);

impl fmt::Debug for EnvFiles {
    /// Names only: the content may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Syntax error in a file, without any of its text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid environment variable format {relation} line {line}: {what}")]
struct EnvFileError {
    relation: &'static str,
    line: usize,
    what: &'static str,
}

/// Returns the files that the variables of a container refer to, each once.
pub fn referenced_files(container: &Container) -> Vec<EnvFileKey> {
    let sources = container.env.iter().flatten();
    let sources = sources.filter_map(|v| v.value_from.as_ref()?.file_key_ref.as_ref());
    let mut keys: Vec<_> = sources.map(key_of).collect();
    keys.sort();
    keys.dedup();
    keys
}

/// Returns the value of a variable; `None` if an optional one is missing.
pub(super) fn file_value(
    files: &EnvFiles,
    selector: &FileKeySelector,
) -> Result<Option<String>, EnvError> {
    let Some(file) = files.0.get(&key_of(selector)) else {
        return Err(EnvError::NoVolumeOfFile(selector.volume_name.clone()));
    };
    let found = file
        .text
        .as_ref()
        .map_err(String::clone)
        .and_then(|text| find(text, &selector.key).map_err(|error| error.to_string()));
    let value = found.map_err(|cause| EnvError::File {
        path: file.host_path.clone(),
        cause,
    })?;
    // as upstream, an empty value counts as missing
    match value.filter(|value| !value.is_empty()) {
        Some(value) => Ok(Some(value)),
        None if selector.optional == Some(true) => Ok(None),
        None => Err(EnvError::MissingFileKey {
            key: selector.key.clone(),
            path: file.host_path.clone(),
        }),
    }
}

fn key_of(selector: &FileKeySelector) -> EnvFileKey {
    EnvFileKey {
        volume: selector.volume_name.clone(),
        path: selector.path.clone(),
    }
}

/// Returns the first definition of a name; the rest is not parsed.
fn find(text: &str, name: &str) -> Result<Option<String>, EnvFileError> {
    let mut lines = Lines::new(text);
    while let Some(line) = lines.next() {
        let line_number = lines.number;
        let error = |what| EnvFileError {
            relation: "at",
            line: line_number,
            what,
        };
        let line = line.trim_start_matches([' ', '\t']);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((variable, value)) = line.split_once('=') else {
            return Err(error("missing '='"));
        };
        if variable.trim_end_matches([' ', '\t']).is_empty() {
            return Err(error("empty variable name"));
        }
        if variable.ends_with([' ', '\t']) {
            return Err(error("whitespace before '=' is not allowed"));
        }
        // as in a shell, the value ends at a space
        let value = match value.strip_prefix('\'') {
            Some(quoted) => lines.quoted(quoted)?,
            None if value.starts_with([' ', '\t']) => String::new(),
            None => return Err(error("value must be enclosed in single quotes")),
        };
        if variable == name {
            return Ok(Some(value));
        }
    }
    if lines.too_long {
        return Err(EnvFileError {
            relation: "after",
            line: lines.number,
            what: "token too long",
        });
    }
    Ok(None)
}

/// Iterator over lines with numbers, until a line is too long.
struct Lines<'a> {
    rest: std::str::SplitTerminator<'a, char>,
    number: usize,
    too_long: bool,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            rest: text.split_terminator('\n'),
            number: 0,
            too_long: false,
        }
    }

    fn next(&mut self) -> Option<&'a str> {
        let line = self.rest.next()?;
        self.too_long = self.too_long || line.len() >= MAX_LINE_BYTES;
        if self.too_long {
            return None;
        }
        self.number += 1;
        Some(line.strip_suffix('\r').unwrap_or(line))
    }

    /// Reads a value from its opening quote to the end of the line with the closing quote.
    fn quoted(&mut self, first: &'a str) -> Result<String, EnvFileError> {
        let start = self.number;
        let mut value = String::new();
        let mut rest = first;
        loop {
            if let Some((end, behind)) = rest.split_once('\'') {
                value.push_str(end);
                let behind = behind.trim_start_matches([' ', '\t']);
                if behind.is_empty() || behind.starts_with('#') {
                    return Ok(value);
                }
                return Err(EnvFileError {
                    relation: "at",
                    line: self.number,
                    what: "unexpected content after closing quote",
                });
            }
            value.push_str(rest);
            value.push('\n');
            rest = self.next().ok_or(EnvFileError {
                relation: "starting at",
                line: start,
                what: "unclosed single quote",
            })?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, name: &str, expected: &str) {
        let line = match find(text, name) {
            Ok(Some(value)) => format!("{value:?}"),
            Ok(None) => "none".to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(line, expected, "{name} in {text:?}");
    }

    #[test]
    fn value_is_the_text_in_quotes() {
        check("A='1'\nB='2'\n", "B", "\"2\"");
        check("  \tA='1'", "A", "\"1\"");
        check("# A='0'\n\n \t\nA='1' # note", "A", "\"1\"");
        check(
            "A='two\r\nlines # of\n\ttext'\nB='2'",
            "A",
            "\"two\\nlines # of\\n\\ttext\"",
        );
        check("A='two\nlines'\nB='2'", "B", "\"2\"");
        check("A='$HOME ${X} \\n \"'", "A", "\"$HOME ${X} \\\\n \\\"\"");
        check("A='a=b'", "A", "\"a=b\"");
        check("A='1'\nA='2'", "A", "\"1\"");
        check("A=''", "A", "\"\"");
        check("A= '1'", "A", "\"\"");
        check("A= '1'\nB='2'", "B", "\"2\"");
        check("A='1'", "B", "none");
        check("", "A", "none");
        check("it's='x'", "it's", "\"x\"");
    }

    #[test]
    fn invalid_line_is_an_error_with_number() {
        let at = |line, what: &str| {
            format!("invalid environment variable format at line {line}: {what}")
        };
        check("A='1'\nnothing\nB='2'", "B", &at(2, "missing '='"));
        check("='1'\nB='2'", "B", &at(1, "empty variable name"));
        check(
            "A ='1'\nB='2'",
            "B",
            &at(1, "whitespace before '=' is not allowed"),
        );
        check(
            "\n#\nA=1",
            "A",
            &at(3, "value must be enclosed in single quotes"),
        );
        check(
            "A=\nB='2'",
            "B",
            &at(1, "value must be enclosed in single quotes"),
        );
        check(
            "A=\"1\"",
            "A",
            &at(1, "value must be enclosed in single quotes"),
        );
        check(
            "A='1\n'x",
            "A",
            &at(2, "unexpected content after closing quote"),
        );
        check(
            "B='2'\nA='1\n\n",
            "A",
            "invalid environment variable format starting at line 2: unclosed single quote",
        );
        // errors after the definition are ignored
        check("A='1'\nnothing", "A", "\"1\"");
    }

    #[test]
    fn line_over_max_length_is_an_error() {
        let long = format!("A='1'\n# {}\nB='2'\n", "x".repeat(MAX_LINE_BYTES));
        check(&long, "A", "\"1\"");
        check(
            &long,
            "B",
            "invalid environment variable format after line 1: token too long",
        );
    }

    #[test]
    fn debug_output_has_no_file_content() {
        let key = EnvFileKey {
            volume: "v".into(),
            path: "env".into(),
        };
        let file = EnvFile {
            host_path: "/v/env".into(),
            text: Ok("PASSWORD='hunter2'".into()),
        };
        let shown = format!("{:?}", EnvFiles(BTreeMap::from([(key, file)])));
        assert_eq!(shown, "{EnvFileKey { volume: \"v\", path: \"env\" }}");
    }
}
