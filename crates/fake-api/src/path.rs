//! Parses API paths.

use crate::status_error::StatusError;
use crate::store::Key;

/// A set of objects, one object or one of its subresources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: String,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

impl Target {
    /// Reads a path such as `/api/v1/namespaces/default/pods/web/status`.
    pub(crate) fn parse(path: &str) -> Result<Self, StatusError> {
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        let (group, version) = match parts.next() {
            Some("api") => ("", parts.next()),
            Some("apis") => (parts.next().unwrap_or_default(), parts.next()),
            _ => return Err(StatusError::no_such_api()),
        };
        let version = version.ok_or_else(StatusError::no_such_api)?;
        let rest: Vec<&str> = parts.collect();
        let (namespace, rest) = match rest.as_slice() {
            // `namespaces/x/status` is a subresource, anything else is in the namespace
            ["namespaces", namespace, resource, ..]
                if !(group.is_empty() && ["status", "finalize"].contains(resource)) =>
            {
                (Some((*namespace).to_owned()), &rest[2..])
            }
            all => (None, all),
        };
        let (resource, name, subresource) = match rest {
            [resource] => (*resource, None, None),
            [resource, name] => (*resource, Some(*name), None),
            [resource, name, subresource] => (*resource, Some(*name), Some(*subresource)),
            _ => return Err(StatusError::no_such_api()),
        };
        Ok(Self {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: resource.to_owned(),
            namespace,
            name: name.map(str::to_owned),
            subresource: subresource.map(str::to_owned),
        })
    }

    /// `v1`, `coordination.k8s.io/v1`.
    pub(crate) fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// The key of an object of this set.
    pub(crate) fn key(&self, name: &str) -> Key {
        Key {
            group: self.group.clone(),
            resource: self.resource.clone(),
            namespace: self.namespace.clone().unwrap_or_default(),
            name: name.to_owned(),
        }
    }
}
