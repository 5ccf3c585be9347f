//! Who asks.

/// The user of a request, as its certificate or token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// For example `system:node:n1`.
    pub name: String,
    /// For example `system:nodes`.
    pub groups: Vec<String>,
}

impl User {
    /// A user with some groups.
    pub fn new(name: &str, groups: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        }
    }

    /// One who may do everything: the user of calls in process.
    pub fn admin() -> Self {
        Self::new("kubernetes-admin", &["system:masters"])
    }

    /// A node.
    pub fn node(name: &str) -> Self {
        Self::new(&format!("system:node:{name}"), &["system:nodes"])
    }

    /// One who gave neither certificate nor token.
    pub fn anonymous() -> Self {
        Self::new("system:anonymous", &["system:unauthenticated"])
    }

    /// The name of the node that this user is, if it is one.
    pub fn node_name(&self) -> Option<&str> {
        let is_node = self.groups.iter().any(|group| group == "system:nodes");
        self.name.strip_prefix("system:node:").filter(|_| is_node)
    }
}

/// What a request wants to do, as an authorizer sees it. Parts that it has not are empty.
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
