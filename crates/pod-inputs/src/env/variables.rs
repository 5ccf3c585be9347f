//! Variables under construction, and references to them.
//!
//! A pod may have variables that double with each reference, or refer to objects with 100,000 keys.
//! The total size is limited, and variables are indexed by name.

use std::collections::BTreeMap;

use super::EnvError;

/// Max size of an environment, and of a command line; the limit of Linux is 6 MiB.
pub(super) const MAX_BYTES: usize = 8 << 20;

/// Variables in order, each name once.
#[derive(Default)]
pub(super) struct Variables {
    list: Vec<(String, String)>,
    positions: BTreeMap<String, usize>,
    bytes: usize,
}

impl Variables {
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let position = self.positions.get(name)?;
        self.list.get(*position).map(|(_, value)| value.as_str())
    }

    /// Sets a variable; a name keeps the position of its first definition.
    pub(super) fn set(&mut self, name: &str, value: String) -> Result<(), EnvError> {
        self.bytes += name.len() + value.len();
        if self.bytes > MAX_BYTES {
            return Err(EnvError::TooLarge { field: "env" });
        }
        match self.positions.get(name) {
            Some(position) => self.list[*position].1 = value,
            None => {
                self.positions.insert(name.to_owned(), self.list.len());
                self.list.push((name.to_owned(), value));
            }
        }
        Ok(())
    }

    pub(super) fn into_list(self) -> Vec<(String, String)> {
        self.list
    }
}

/// Replaces `$(NAME)` with the result of `resolve`. `$$` is an escaped `$`; an unresolved name and
/// any other `$` are not changed. Stops when the text is too large for a process.
pub fn expand<'a>(text: &str, resolve: impl Fn(&str) -> Option<&'a str>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        if out.len() > MAX_BYTES {
            return out;
        }
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|r| r.split_once(')')) {
            match resolve(name) {
                Some(value) => out.push_str(value),
                None => {
                    out.push_str("$(");
                    out.push_str(name);
                    out.push(')');
                }
            }
            rest = after;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    out
}

/// Expands each word of a command or argument list.
///
/// # Errors
/// The result is too large for a process; `field` is `command` or `args`.
pub fn expand_words(
    field: &'static str,
    words: Option<&Vec<String>>,
    env: &[(String, String)],
) -> Result<Vec<String>, EnvError> {
    let known: BTreeMap<&str, &str> = env.iter().map(|(n, v)| (&**n, &**v)).collect();
    let mut bytes = 0;
    let mut expanded = Vec::new();
    for word in words.into_iter().flatten() {
        let word = expand(word, |name| known.get(name).copied());
        bytes += word.len();
        if bytes > MAX_BYTES {
            return Err(EnvError::TooLarge { field });
        }
        expanded.push(word);
    }
    Ok(expanded)
}
