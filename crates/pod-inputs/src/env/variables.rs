//! Variables while they are put together, and the references to them.
//!
//! Who may create a pod may write variables that double with each reference, or refer to objects
//! with a hundred thousand keys. Neither may cost the agent its memory or its time: everything
//! ends at [`MAX_BYTES`], and a variable is found by its name.

use std::collections::BTreeMap;

use super::EnvError;

/// Most bytes of an environment, and of a command line: Linux hands neither more than 6 MiB to a
/// process.
pub(super) const MAX_BYTES: usize = 8 << 20;

/// Variables in order, each name once.
#[derive(Default)]
pub(super) struct Variables {
    list: Vec<(String, String)>,
    places: BTreeMap<String, usize>,
    bytes: usize,
}

impl Variables {
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let place = self.places.get(name)?;
        self.list.get(*place).map(|(_, value)| value.as_str())
    }

    /// A name keeps the place of its first definition and the value of its last.
    pub(super) fn set(&mut self, name: &str, value: String) -> Result<(), EnvError> {
        self.bytes += name.len() + value.len();
        if self.bytes > MAX_BYTES {
            return Err(EnvError::TooLarge { field: "env" });
        }
        match self.places.get(name) {
            Some(place) => self.list[*place].1 = value,
            None => {
                self.places.insert(name.to_owned(), self.list.len());
                self.list.push((name.to_owned(), value));
            }
        }
        Ok(())
    }

    pub(super) fn into_list(self) -> Vec<(String, String)> {
        self.list
    }
}

/// Replaces `$(NAME)` by what `resolve` says. `$$` stands for `$`, so `$$(NAME)` is kept as
/// `$(NAME)`; a name that does not resolve and any other `$` stay as they are. Ends early once
/// the text is too long for any process.
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

/// Expands each word of a command or argument list from the finished environment.
///
/// # Errors
/// The words are too long for any process; `field` is where they are.
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
