//! Callers of the node API and their permissions.

use std::collections::BTreeMap;

/// An authenticated caller (upstream `user.Info`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct UserInfo {
    /// Name, such as `system:kube-apiserver`.
    pub name: String,
    /// UID; may be empty.
    pub uid: String,
    /// Groups, including those added by the authenticator.
    pub groups: Vec<String>,
    /// Further attributes for the authorizer.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// A permission of a SubjectAccessReview: `verb` on `nodes/<subresource>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodePermission {
    /// `get`, `create`, `update`, `patch`, `delete`, or empty for an unmapped method.
    pub verb: &'static str,
    /// `proxy`, `stats`, `metrics`, `log`, `pods`, `healthz`, `configz`, `statusz`, `checkpoint`.
    pub subresource: &'static str,
}

impl std::fmt::Display for NodePermission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} nodes/{}", self.verb, self.subresource)
    }
}
