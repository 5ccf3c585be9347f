//! Who asks the node for something, and what a right is about.

use std::collections::BTreeMap;

/// Who makes a request; upstream's `user.Info`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct UserInfo {
    /// Name, such as `system:kube-apiserver`.
    pub name: String,
    /// Distinguishes users of one name; may be empty.
    pub uid: String,
    /// Groups; those that the authenticator adds included.
    pub groups: Vec<String>,
    /// What else the authenticator knows, handed on to the authorizer.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// One right on this node, as a SubjectAccessReview asks for it: `verb` on `nodes/<subresource>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodePermission {
    /// `get`, `create`, `update`, `patch`, `delete`, or empty for a method that maps to none.
    pub verb: &'static str,
    /// `proxy`, `stats`, `metrics`, `log`, `pods`, `healthz`, `configz`, `statusz`, `checkpoint`.
    pub subresource: &'static str,
}

impl std::fmt::Display for NodePermission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} nodes/{}", self.verb, self.subresource)
    }
}
