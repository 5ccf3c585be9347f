//! Every dependency has a license that `deny.toml` allows, and no banned crate is used. `cargo
//! deny` uses the same file.

use std::collections::BTreeSet;

use super::{Finding, Workspace};

const DENY: &str = "deny.toml";

/// Checks the licenses of all built packages.
pub(crate) fn check(workspace: &Workspace) -> Vec<Finding> {
    let deny = workspace.text(DENY);
    let allowed = allowed_licenses(&deny);
    let mut findings = Vec::new();
    let unique: BTreeSet<&(String, String)> = workspace.licenses.iter().collect();
    for (name, license) in &unique {
        if !Expression(license).is_allowed(&allowed) {
            let what = format!("{name} is under {license:?}, which is not allowed");
            findings.push(Finding::new(
                DENY,
                1,
                what,
                "use another crate, or allow the license",
            ));
        }
    }
    for (index, line) in deny.lines().enumerate() {
        let Some(banned) = line
            .split("crate = \"")
            .nth(1)
            .and_then(|rest| rest.split('"').next())
        else {
            continue;
        };
        if unique.iter().any(|(name, _)| name == banned) {
            let what = format!("{banned} is banned here and built");
            findings.push(Finding::new(
                DENY,
                index + 1,
                what,
                "see `cargo tree --invert`",
            ));
        }
    }
    findings
}

/// The strings of `allow = […]`.
fn allowed_licenses(deny: &str) -> Vec<String> {
    let list = deny
        .split("allow = [")
        .nth(1)
        .and_then(|rest| rest.split(']').next());
    list.unwrap_or_default()
        .split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// An SPDX expression; `/` is an old way to write OR.
struct Expression<'a>(&'a str);

impl Expression<'_> {
    fn is_allowed(&self, allowed: &[String]) -> bool {
        let text = self
            .0
            .replace('/', " OR ")
            .replace('(', " ( ")
            .replace(')', " ) ");
        let tokens: Vec<&str> = text.split_ascii_whitespace().collect();
        let mut rest = tokens.as_slice();
        any_of(&mut rest, allowed) && rest.is_empty()
    }
}

fn any_of(tokens: &mut &[&str], allowed: &[String]) -> bool {
    let mut result = all_of(tokens, allowed);
    while let ["OR", rest @ ..] = *tokens {
        *tokens = rest;
        // Not short-circuited: the right-hand side has to be consumed too.
        result |= all_of(tokens, allowed);
    }
    result
}

fn all_of(tokens: &mut &[&str], allowed: &[String]) -> bool {
    let mut result = one(tokens, allowed);
    while let ["AND", rest @ ..] = *tokens {
        *tokens = rest;
        result &= one(tokens, allowed);
    }
    result
}

fn one(tokens: &mut &[&str], allowed: &[String]) -> bool {
    match *tokens {
        ["(", rest @ ..] => {
            *tokens = rest;
            let result = any_of(tokens, allowed);
            if let [")", rest @ ..] = *tokens {
                *tokens = rest;
            }
            result
        }
        [name, "WITH", exception, rest @ ..] => {
            *tokens = rest;
            allowed.contains(&format!("{name} WITH {exception}"))
        }
        [name, rest @ ..] => {
            *tokens = rest;
            allowed.iter().any(|license| license == name)
        }
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_allowed_if_one_choice_is() {
        let allowed = allowed_licenses("[licenses]\nallow = [\n \"MIT\", \"Zlib\",\n]\n");
        let check = |text: &str| Expression(text).is_allowed(&allowed);
        assert!(check("MIT"));
        assert!(check("GPL-3.0-only OR MIT"));
        assert!(check("Apache-2.0/MIT"));
        assert!(check("(GPL-3.0-only OR Zlib) AND MIT"));
        assert!(!check("MIT AND GPL-3.0-only"));
        assert!(!check("MIT WITH Some-exception"));
        assert!(!check(""));
    }
}
