//! Permissions that a node API request requires: verbs on `nodes/<subresource>`.
//!
//! They are those of upstream's `NewNodeAuthorizerAttributesGetter` with fine-grained authorization
//! (KEP-2862, GA in 1.36): the specific subresource, or `nodes/proxy` where upstream accepts it.
//!
//! # Stricter than upstream
//!
//! * **`get` executes nothing.** A WebSocket starts with a GET, so upstream allows a client with
//!   `get` on `nodes/proxy`, such as a monitoring agent, to execute commands in every container.
//!   Here exec, attach, run and portForward require `create` on `nodes/proxy`, for every method.
//!   `--exec-needs-create=false` restores upstream's rule. kubectl is not affected: kube-apiserver
//!   authorizes its users and connects as `system:kubelet-api-admin`, which has all verbs on
//!   `nodes/proxy`.
//! * **A path has one form.** The authorized path must be the routed one. A path with an empty, `.`
//!   or `..` part, an encoded slash, or an encoded first part is rejected ([`PathError`]). Upstream
//!   redirects it to its clean form.

use windlass_types::NodePermission;

/// Settings of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessSettings {
    /// `--exec-needs-create`: exec, attach, run and portForward require `create` on `nodes/proxy`.
    pub exec_needs_create: bool,
}

impl Default for AccessSettings {
    fn default() -> Self {
        Self {
            exec_needs_create: true,
        }
    }
}

/// Error of a rejected path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// `//`.
    #[error("the path has an empty part")]
    EmptyPart,
    /// `.` or `..`, encoded or not.
    #[error("the path has a part that is '.' or '..'")]
    DotPart,
    /// An encoded slash, a backslash or a NUL, encoded or not.
    #[error("the path has an encoded slash, a backslash or a NUL")]
    Separator,
    /// `%` without two hexadecimal digits.
    #[error("the path has an invalid '%' escape")]
    Escape,
    /// `%` in the part that names the endpoint.
    #[error("the first part of the path is encoded")]
    EncodedName,
}

/// Returns the permissions that each allow the request, in order of evaluation. `path` is the raw
/// path without the query.
///
/// # Errors
/// The path is not in its one form.
pub fn required_permissions(
    method: &str,
    path: &str,
    settings: AccessSettings,
) -> Result<Vec<NodePermission>, PathError> {
    check_path(path)?;
    let name = path.strip_prefix('/').unwrap_or(path);
    let name = name.split_once('/').map_or(name, |(name, _)| name);
    let verb = match method {
        _ if settings.exec_needs_create && enters_containers(name) => "create",
        "POST" => "create",
        "GET" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    };
    let permission = |subresource: &&'static str| NodePermission { verb, subresource };
    Ok(subresources(name).iter().map(permission).collect())
}

/// Returns the subresources for the first part of the path.
fn subresources(name: &str) -> &'static [&'static str] {
    match name {
        "pods" | "runningpods" => &["pods", "proxy"],
        "healthz" => &["healthz", "proxy"],
        "configz" => &["configz", "proxy"],
        "stats" => &["stats"],
        "metrics" => &["metrics"],
        "logs" => &["log"],
        "checkpoint" => &["checkpoint"],
        "statusz" => &["statusz"],
        "flagz" => &["configz"],
        _ => &["proxy"],
    }
}

fn enters_containers(name: &str) -> bool {
    matches!(name, "exec" | "attach" | "run" | "portForward")
}

fn check_path(path: &str) -> Result<(), PathError> {
    let mut parts = path.strip_prefix('/').unwrap_or(path).split('/').peekable();
    let mut name = true;
    while let Some(part) = parts.next() {
        // a trailing slash is valid: upstream has /logs/ and /runningpods/
        if part.is_empty() && parts.peek().is_some() {
            return Err(PathError::EmptyPart);
        }
        if name && part.contains('%') {
            return Err(PathError::EncodedName);
        }
        name = false;
        check_part(part)?;
    }
    Ok(())
}

fn check_part(part: &str) -> Result<(), PathError> {
    let mut bytes = part.bytes();
    let mut length = 0;
    let mut only_dots = true;
    while let Some(byte) = bytes.next() {
        let decoded = match byte {
            b'%' => escaped(&mut bytes).ok_or(PathError::Escape)?,
            byte => byte,
        };
        if matches!(decoded, b'/' | b'\\' | 0) {
            return Err(PathError::Separator);
        }
        only_dots &= decoded == b'.';
        length += 1;
    }
    match only_dots && (1..=2).contains(&length) {
        true => Err(PathError::DotPart),
        false => Ok(()),
    }
}

/// Decodes the byte after a `%`.
fn escaped(bytes: &mut impl Iterator<Item = u8>) -> Option<u8> {
    let mut digit = || char::from(bytes.next()?).to_digit(16);
    let (high, low) = (digit()?, digit()?);
    u8::try_from(high * 16 + low).ok()
}

#[cfg(test)]
mod tests;
