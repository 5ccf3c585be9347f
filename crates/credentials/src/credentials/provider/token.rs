//! Service account tokens for plugins (`tokenAttributes`, KEP-4412): their configuration, and
//! whether a plugin is executed for a pod.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::{ProviderError, invalid_field};
use windlass_manifests::validation::qualified_name;

/// Text of the error for `tokenAttributes` with the feature gate off.
pub(super) const GATE_OFF: &str = "Forbidden: tokenAttributes is not supported when \
     KubeletServiceAccountTokenForCredentialProviders feature gate is disabled";
const REQUIRED: &str = "Required value";
const REQUIRED_KEYS: &str = "requiredServiceAccountAnnotationKeys";
const OPTIONAL_KEYS: &str = "optionalServiceAccountAnnotationKeys";

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct TokenAttributesEntry {
    service_account_token_audience: String,
    cache_type: String,
    require_service_account: Option<bool>,
    required_service_account_annotation_keys: Option<Vec<String>>,
    optional_service_account_annotation_keys: Option<Vec<String>>,
}

/// How a plugin uses service account tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenAttributes {
    /// `serviceAccountTokenAudience`.
    pub audience: String,
    /// `cacheType`.
    pub cache_type: CacheType,
    /// `requireServiceAccount`: pods without a service account do not execute the plugin.
    pub require_account: bool,
    required_keys: Vec<String>,
    optional_keys: Vec<String>,
}

/// Which pods share cached credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheType {
    /// All pods of a service account.
    ServiceAccount,
    /// Only the pod of the token.
    Token,
}

/// An annotation that a plugin requires and the service account lacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("required annotation {0} not found")]
pub struct MissingAnnotation(pub String);

/// Whether a plugin is executed for a pod, and with which service account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountPlan<'a> {
    /// It is executed without a token.
    WithoutToken,
    /// It is executed with a token of this service account.
    WithToken(&'a str),
    /// It is not executed: it requires a service account, and the pod has none.
    Skip,
}

impl<'a> AccountPlan<'a> {
    /// Decides for a plugin and a pod with this service account, which may be empty.
    pub fn new(attributes: Option<&TokenAttributes>, account: &'a str) -> Self {
        match attributes {
            None => Self::WithoutToken,
            Some(_) if !account.is_empty() => Self::WithToken(account),
            Some(attributes) if attributes.require_account => Self::Skip,
            Some(_) => Self::WithoutToken,
        }
    }
}

impl TokenAttributes {
    /// Selects the annotations of a service account that the plugin receives.
    ///
    /// # Errors
    /// A required annotation is missing.
    pub fn annotations(
        &self,
        all: &BTreeMap<String, String>,
    ) -> Result<BTreeMap<String, String>, MissingAnnotation> {
        let entry = |key: &String| all.get(key).map(|value| (key.clone(), value.clone()));
        let required = self.required_keys.iter();
        let required = required.map(|key| entry(key).ok_or_else(|| MissingAnnotation(key.clone())));
        let mut selected = required.collect::<Result<BTreeMap<_, _>, _>>()?;
        selected.extend(self.optional_keys.iter().filter_map(entry));
        Ok(selected)
    }
}

impl TokenAttributesEntry {
    /// Validates the entry with upstream's rules and texts.
    pub(super) fn check(
        self,
        path: &str,
        errors: &mut Vec<ProviderError>,
    ) -> Option<TokenAttributes> {
        let mut add =
            |field: &str, what: String| errors.push(invalid_field(&format!("{path}{field}"), what));
        if self.service_account_token_audience.is_empty() {
            add(".serviceAccountTokenAudience", REQUIRED.to_owned());
        }
        if self.require_service_account.is_none() {
            add(".requireServiceAccount", REQUIRED.to_owned());
        }
        let required = self
            .required_service_account_annotation_keys
            .unwrap_or_default();
        let optional = self
            .optional_service_account_annotation_keys
            .unwrap_or_default();
        if self.require_service_account == Some(false) && !required.is_empty() {
            let what = "Forbidden: requireServiceAccount cannot be false when \
                        requiredServiceAccountAnnotationKeys is set";
            add(&format!(".{REQUIRED_KEYS}"), what.to_owned());
        }
        for (field, keys) in [(REQUIRED_KEYS, &required), (OPTIONAL_KEYS, &optional)] {
            for what in key_errors(keys) {
                add(&format!(".{field}"), what);
            }
        }
        let unique: BTreeSet<_> = required.iter().collect();
        let both: BTreeSet<_> = optional.iter().filter(|key| unique.contains(key)).collect();
        if !both.is_empty() {
            let what = "annotation keys cannot be both required and optional";
            let both: Vec<_> = both.iter().map(|key| format!("{key:?}")).collect();
            add("", format!("Invalid value: [{}]: {what}", both.join(",")));
        }
        let cache_type = match self.cache_type.as_str() {
            "ServiceAccount" => Some(CacheType::ServiceAccount),
            "Token" => Some(CacheType::Token),
            "" => {
                let what = "Required value: cacheType is required to be set when tokenAttributes is \
                            specified. Supported values are: ServiceAccount, Token";
                add(".cacheType", what.to_owned());
                None
            }
            other => {
                let what = format!(
                    "Unsupported value: {other:?}: supported values: \"ServiceAccount\", \"Token\""
                );
                add(".cacheType", what);
                None
            }
        };
        Some(TokenAttributes {
            audience: self.service_account_token_audience,
            cache_type: cache_type?,
            require_account: self.require_service_account?,
            required_keys: required,
            optional_keys: optional,
        })
    }
}

fn key_errors(keys: &[String]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut errors = Vec::new();
    for key in keys {
        // the case of annotation keys does not matter
        if let Err(what) = qualified_name(&key.to_lowercase()) {
            errors.push(format!("Invalid value: {key:?}: {what}"));
        }
        if !seen.insert(key) {
            errors.push(format!("Duplicate value: {key:?}"));
        }
    }
    errors
}

#[cfg(test)]
mod tests;
