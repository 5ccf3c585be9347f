//! The query of a request.

use std::collections::BTreeMap;

use crate::status_error::StatusError;

/// Names and values, the last of each name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(BTreeMap<String, String>);

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        let pairs = form_urlencoded::parse(text.as_bytes());
        Self(pairs.into_owned().collect())
    }

    /// A value; an empty one counts as missing.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let value = self.0.get(name)?;
        (!value.is_empty()).then_some(value)
    }

    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        self.get(name).map(|value| value == "true" || value == "1")
    }

    /// `resourceVersion` as a number.
    pub(crate) fn version(&self) -> Result<Option<u64>, StatusError> {
        let Some(text) = self.get("resourceVersion") else {
            return Ok(None);
        };
        let version = text.parse().map_err(|_| {
            StatusError::bad_request(format!("resourceVersion: Invalid value: {text:?}"))
        })?;
        Ok(Some(version))
    }
}
