//! What a request to the node's API needs the right to: verbs on `nodes/<subresource>`.
//!
//! The rights are those of upstream's `NewNodeAuthorizerAttributesGetter` with fine-grained
//! authorization (KEP-2862, GA in 1.36): first the specific subresource, then `nodes/proxy` where
//! upstream has it; one that is allowed is enough.
//!
//! # Where this is stricter
//!
//! * **`get` runs nothing.** A WebSocket begins with a GET, so upstream lets whoever may `get
//!   nodes/proxy` (many monitoring agents may) run commands in every container of the node. Here
//!   exec, attach, run and portForward need `create` on `nodes/proxy`, whatever the method.
//!   `--exec-needs-create=false` is upstream's rule. Nothing changes for kubectl: kube-apiserver
//!   asks in its own name and is bound to `system:kubelet-api-admin`, which has every verb on
//!   `nodes/proxy` (kubeadm's client certificate may do everything anyway); who may exec is checked
//!   there, as `create` on `pods/exec` (1.36's gate AuthorizePodWebsocketUpgradeCreatePermission
//!   asks for that even if the client's method is GET). kube-apiserver passes a POST on as a POST,
//!   translates WebSockets of a current kubectl into a POST, and passes a WebSocket of an older
//!   client on as a GET: all three need the one right that it has.
//! * **A path has one form.** What is authorized must be what is routed. The router matches the
//!   path byte by byte, so a path with an empty, `.` or `..` part, an encoded slash, or an encoded
//!   first part is refused ([`PathFault`]). Upstream redirects such a path to its clean form.

use windlass_types::NodePermission;

/// Which rules apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessSettings {
    /// `--exec-needs-create`: what runs or reaches into a container needs `create` on
    /// `nodes/proxy`.
    pub exec_needs_create: bool,
}

impl Default for AccessSettings {
    fn default() -> Self {
        Self {
            exec_needs_create: true,
        }
    }
}

/// Why a path is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathFault {
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
    #[error("the path has a '%' that encodes nothing")]
    Escape,
    /// `%` in the part that names the endpoint.
    #[error("the first part of the path is encoded")]
    EncodedName,
}

/// The rights that each let the request pass, in the order in which they are asked for. `path` is
/// as it came over the wire, without the query.
///
/// # Errors
/// The path is not in its one form.
pub fn rights(
    method: &str,
    path: &str,
    settings: AccessSettings,
) -> Result<Vec<NodePermission>, PathFault> {
    check_path(path)?;
    let name = path.strip_prefix('/').unwrap_or(path);
    let name = name.split_once('/').map_or(name, |(name, _)| name);
    let verb = match method {
        _ if settings.exec_needs_create && reaches_into_containers(name) => "create",
        "POST" => "create",
        "GET" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    };
    let right = |subresource: &&'static str| NodePermission { verb, subresource };
    Ok(subresources(name).iter().map(right).collect())
}

/// The subresources by the first part of the path.
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

fn reaches_into_containers(name: &str) -> bool {
    matches!(name, "exec" | "attach" | "run" | "portForward")
}

fn check_path(path: &str) -> Result<(), PathFault> {
    let mut parts = path.strip_prefix('/').unwrap_or(path).split('/').peekable();
    let mut name = true;
    while let Some(part) = parts.next() {
        // a slash at the end is how upstream writes /logs/ and /runningpods/
        if part.is_empty() && parts.peek().is_some() {
            return Err(PathFault::EmptyPart);
        }
        if name && part.contains('%') {
            return Err(PathFault::EncodedName);
        }
        name = false;
        check_part(part)?;
    }
    Ok(())
}

fn check_part(part: &str) -> Result<(), PathFault> {
    let mut bytes = part.bytes();
    let mut length = 0;
    let mut only_dots = true;
    while let Some(byte) = bytes.next() {
        let decoded = match byte {
            b'%' => escaped(&mut bytes).ok_or(PathFault::Escape)?,
            byte => byte,
        };
        if matches!(decoded, b'/' | b'\\' | 0) {
            return Err(PathFault::Separator);
        }
        only_dots &= decoded == b'.';
        length += 1;
    }
    match only_dots && (1..=2).contains(&length) {
        true => Err(PathFault::DotPart),
        false => Ok(()),
    }
}

/// The byte behind a `%`.
fn escaped(bytes: &mut impl Iterator<Item = u8>) -> Option<u8> {
    let mut digit = || char::from(bytes.next()?).to_digit(16);
    let (high, low) = (digit()?, digit()?);
    u8::try_from(high * 16 + low).ok()
}

#[cfg(test)]
mod tests;
