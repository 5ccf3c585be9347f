//! Every dependency has a license that `deny.toml` allows, and no banned crate is used. `cargo
//! deny` uses the same file.

use std::collections::BTreeSet;

use spdx::{Expression, ParseMode};

use super::{Finding, Workspace};

const DENY: &str = "deny.toml";

/// Checks the licenses of all built packages.
pub(crate) fn check(workspace: &Workspace) -> Vec<Finding> {
    let deny = workspace.text(DENY);
    let allowed = allowed_licenses(&deny);
    let mut findings = Vec::new();
    let unique: BTreeSet<&(String, String)> = workspace.licenses.iter().collect();
    for (name, license) in &unique {
        if !is_allowed(license, &allowed) {
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

/// Whether one choice of an SPDX expression is allowed; `/` is an old way to write OR.
fn is_allowed(license: &str, allowed: &[String]) -> bool {
    let expression = Expression::parse_mode(license, ParseMode::LAX);
    expression.is_ok_and(|it| it.evaluate(|it| allowed.contains(&it.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn license_expression_needs_one_allowed_choice() {
        let allowed = allowed_licenses("[licenses]\nallow = [\n \"MIT\", \"Zlib\",\n]\n");
        let check = |text: &str| is_allowed(text, &allowed);
        assert!(check("MIT"));
        assert!(check("GPL-3.0-only OR MIT"));
        assert!(check("Apache-2.0/MIT"));
        assert!(check("(GPL-3.0-only OR Zlib) AND MIT"));
        assert!(!check("MIT AND GPL-3.0-only"));
        assert!(!check("MIT WITH LLVM-exception"));
        assert!(!check(""));
        assert!(!check("not a license"));
    }
}
