//! The two formats of docker's config file. Error texts never repeat what the file says: it may
//! be a password in the wrong place.

use std::collections::BTreeMap;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;
use serde_json::Value;
use windlass_types::cri::ImageAuth;

use super::pattern::Pattern;

/// Padding is left out by some who write these files.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// How a docker config file is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DockerConfigFormat {
    /// `config.json`: entries below `auths`.
    ConfigJson,
    /// `.dockercfg`: entries at the top.
    Dockercfg,
}

/// A docker config, or an entry of it, that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialFault {
    /// The whole file.
    #[error(
        "{origin}: not valid docker config JSON (line {line}, column {column}): \
         make it again with `kubectl create secret docker-registry` or `docker login`"
    )]
    File {
        /// Which secret and key, or which file.
        origin: String,
        /// Line of the fault, from 1.
        line: usize,
        /// Column of the fault, from 1.
        column: usize,
    },
    /// One entry.
    #[error("{origin}: entry {registry:?} is skipped: {what}")]
    Entry {
        /// Which secret and key, or which file.
        origin: String,
        /// The entry's registry.
        registry: String,
        /// What is wrong, and what it should be.
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

/// The entries of a config file; what cannot be used goes to `faults`.
pub(super) fn read(
    format: DockerConfigFormat,
    text: &[u8],
    origin: &str,
    faults: &mut Vec<CredentialFault>,
) -> Vec<(Pattern, ImageAuth)> {
    let entries = match format {
        DockerConfigFormat::ConfigJson => serde_json::from_slice(text).map(|c: ConfigJson| c.auths),
        DockerConfigFormat::Dockercfg => serde_json::from_slice(text),
    };
    let entries = match entries {
        Ok(entries) => entries.unwrap_or_default(),
        Err(error) => {
            faults.push(CredentialFault::File {
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
            // an entry without a word says nothing of how to pull
            Ok((_, auth)) if auth == ImageAuth::default() => {}
            Ok(entry) => found.push(entry),
            Err(what) => faults.push(CredentialFault::Entry {
                origin: origin.to_owned(),
                registry,
                what,
            }),
        }
    }
    found
}

/// The server address is not passed on, as upstream: the runtime would compare it with the host
/// it talks to, which for Docker Hub is another.
fn read_entry(registry: &str, entry: Value) -> Result<(Pattern, ImageAuth), &'static str> {
    let pattern = Pattern::parse(registry)
        .ok_or("its name is no registry address such as registry.example.com:5000/team")?;
    let entry: Entry = serde_json::from_value(entry)
        .map_err(|_| "it must be an object whose fields are text (username, password, auth)")?;
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
