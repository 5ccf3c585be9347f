//! The two formats of docker config files. Errors contain no content, which may be a password.

use std::collections::BTreeMap;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;
use serde_json::Value;
use windlass_types::cri::ImageAuth;

use super::pattern::Pattern;

/// Padding is optional, as some tools omit it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Format of a docker config file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DockerConfigFormat {
    /// `config.json`: entries below `auths`.
    ConfigJson,
    /// `.dockercfg`: entries at the top.
    Dockercfg,
}

/// Error of a docker config file or of one entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// The whole file.
    #[error(
        "{origin}: not valid docker config JSON (line {line}, column {column}): \
         recreate it with `kubectl create secret docker-registry` or `docker login`"
    )]
    File {
        /// Secret and key, or file.
        origin: String,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
    },
    /// One entry.
    #[error("{origin}: skipped entry {registry:?}: {what}")]
    Entry {
        /// Secret and key, or file.
        origin: String,
        /// The entry's registry.
        registry: String,
        /// Cause, and what to write.
        what: &'static str,
    },
}

#[derive(Deserialize)]
struct ConfigJson {
    auths: Option<BTreeMap<String, Value>>,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Entry {
    username: Option<String>,
    password: Option<String>,
    auth: Option<String>,
    identitytoken: Option<String>,
    registrytoken: Option<String>,
}

/// Reads the entries of a config file; adds invalid ones to `errors`.
pub(super) fn read(
    format: DockerConfigFormat,
    text: &[u8],
    origin: &str,
    errors: &mut Vec<CredentialError>,
) -> Vec<(Pattern, ImageAuth)> {
    let entries = match format {
        DockerConfigFormat::ConfigJson => serde_json::from_slice(text).map(|c: ConfigJson| c.auths),
        DockerConfigFormat::Dockercfg => serde_json::from_slice(text),
    };
    let entries = match entries {
        Ok(entries) => entries.unwrap_or_default(),
        Err(error) => {
            errors.push(CredentialError::File {
                origin: origin.to_owned(),
                line: error.line(),
                column: error.column(),
            });
            return Vec::new();
        }
    };
    let mut found = Vec::new();
    for (registry, entry) in entries {
        match read_entry(&registry, entry) {
            // an empty entry has no credentials
            Ok((_, auth)) if auth == ImageAuth::default() => {}
            Ok(entry) => found.push(entry),
            Err(what) => errors.push(CredentialError::Entry {
                origin: origin.to_owned(),
                registry,
                what,
            }),
        }
    }
    found
}

/// Reads an entry without its server address, as upstream: the container runtime would compare it
/// with the host of the registry, which differs for Docker Hub.
fn read_entry(registry: &str, entry: Value) -> Result<(Pattern, ImageAuth), &'static str> {
    let pattern = Pattern::parse(registry)
        .ok_or("the name must be a registry address such as registry.example.com:5000/team")?;
    let entry: Entry = serde_json::from_value(entry)
        .map_err(|_| "must be an object with string fields (username, password, auth)")?;
    let (username, password) = match entry.auth.as_deref().map(str::trim) {
        None | Some("") => (
            entry.username.unwrap_or_default(),
            entry.password.unwrap_or_default(),
        ),
        Some(auth) => decode(auth).ok_or("auth must be base64 of username:password")?,
    };
    let auth = ImageAuth {
        username,
        password,
        identity_token: entry.identitytoken.unwrap_or_default(),
        registry_token: entry.registrytoken.unwrap_or_default(),
        ..ImageAuth::default()
    };
    Ok((pattern, auth))
}

fn decode(auth: &str) -> Option<(String, String)> {
    let text: String = auth.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    let bytes = BASE64.decode(text).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let (username, password) = text.split_once(':')?;
    Some((username.to_owned(), password.to_owned()))
}
