//! Users and their requests.

/// The user of a request, from its certificate or token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// For example `system:node:n1`.
    pub name: String,
    /// For example `system:nodes`.
    pub groups: Vec<String>,
}

impl User {
    /// Creates a user with these groups.
    pub fn new(name: &str, groups: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        }
    }

    /// The user of in-process calls, with all permissions.
    pub fn admin() -> Self {
        Self::new("kubernetes-admin", &["system:masters"])
    }

    /// The user of a node.
    pub fn node(name: &str) -> Self {
        Self::new(&format!("system:node:{name}"), &["system:nodes"])
    }

    /// The anonymous user.
    pub fn anonymous() -> Self {
        Self::new("system:anonymous", &["system:unauthenticated"])
    }

    /// Returns the node name of this user, if it is a node.
    pub fn node_name(&self) -> Option<&str> {
        let is_node = self.groups.iter().any(|group| group == "system:nodes");
        self.name.strip_prefix("system:node:").filter(|_| is_node)
    }
}

/// The attributes of a request for authorization; empty if not applicable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    /// API group.
    pub group: String,
    /// Resource, plural.
    pub resource: String,
    /// Subresource.
    pub subresource: String,
    /// Namespace.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}
