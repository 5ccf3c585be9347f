//! Rules for non-empty names in Kubernetes.

type NameResult<'a> = Result<(), &'a str>;

fn lower_or_digit(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

/// Returns whether both ends match `edge` and the other characters match `edge` or `inner`.
fn framed(text: &str, edge: fn(char) -> bool, inner: &[char]) -> bool {
    text.starts_with(edge)
        && text.ends_with(edge)
        && text.chars().all(|c| edge(c) || inner.contains(&c))
}

/// RFC 1123 label: container, volume and namespace names.
pub(super) fn label(text: &str) -> NameResult<'_> {
    if text.len() > 63 {
        return Err("must be no more than 63 characters");
    }
    if framed(text, lower_or_digit, &['-']) {
        return Ok(());
    }
    Err(
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
    )
}

/// RFC 1123 subdomain: pod and node names.
pub(super) fn subdomain(text: &str) -> NameResult<'_> {
    if text.len() > 253 {
        return Err("must be no more than 253 characters");
    }
    if text
        .split('.')
        .all(|part| framed(part, lower_or_digit, &['-']))
    {
        return Ok(());
    }
    Err(
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
    )
}

/// A DNS search path: a domain whose labels may have underscores.
pub(super) fn search_domain(text: &str) -> NameResult<'_> {
    let edge = |c| lower_or_digit(c) || c == '_';
    if text.len() <= 253 && text.split('.').all(|part| framed(part, edge, &['-'])) {
        return Ok(());
    }
    Err("must be a DNS domain of lower case alphanumeric characters, '-', '_' or '.'")
}

/// Value of a label; UIDs must have the same form.
pub(super) fn label_value(text: &str) -> NameResult<'_> {
    if text.len() > 63 {
        return Err("must be no more than 63 characters");
    }
    if framed(text, |c| c.is_ascii_alphanumeric(), &['-', '_', '.']) {
        return Ok(());
    }
    Err(
        "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    )
}

/// Key of a label or annotation: a name with an optional DNS prefix.
pub fn qualified_name(text: &str) -> NameResult<'_> {
    let name = match text.split_once('/') {
        Some((prefix, name)) => {
            if prefix.is_empty() {
                return Err("prefix part must be non-empty");
            }
            subdomain(prefix)?;
            name
        }
        None => text,
    };
    if name.is_empty() {
        return Err("name part must be non-empty");
    }
    label_value(name)
}

pub(super) fn port(text: &str) -> NameResult<'_> {
    if text.len() > 15 {
        return Err("must be no more than 15 characters");
    }
    if !framed(text, lower_or_digit, &['-']) || text.contains("--") {
        return Err(
            "must contain only lower case alphanumeric characters and single '-', and must start and end with an alphanumeric character",
        );
    }
    if !text.contains(|c: char| c.is_ascii_lowercase()) {
        return Err("must contain at least one letter (a-z)");
    }
    Ok(())
}

/// Name of an environment variable.
pub(super) fn env(text: &str) -> NameResult<'_> {
    if text.chars().all(|c| matches!(c, ' '..='~') && c != '=') {
        return Ok(());
    }
    Err(
        "a valid environment variable name must consist only of printable ASCII characters other than '='",
    )
}

/// Name of a kernel parameter, with `.` or `/` between its parts.
pub(super) fn sysctl(text: &str) -> NameResult<'_> {
    let part = |part: &str| framed(part, lower_or_digit, &['-', '_']);
    if text.len() <= 253 && text.split(['.', '/']).all(part) {
        return Ok(());
    }
    Err("must be a kernel parameter of lower case parts joined by '.' or '/'")
}

/// A relative path without `..`.
pub(super) fn descending_path(text: &str) -> NameResult<'_> {
    if text.starts_with('/') {
        return Err("must be a relative path");
    }
    no_parent(text)
}

/// A path without `..`.
pub(super) fn no_parent(text: &str) -> NameResult<'_> {
    if text.split('/').any(|part| part == "..") {
        return Err("must not contain '..'");
    }
    Ok(())
}
