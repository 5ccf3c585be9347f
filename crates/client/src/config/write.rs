//! Writes kubeconfigs.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::CertificateDer;

use super::ConfigError;

pub(super) fn certificate_pem(der: &CertificateDer<'_>) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = text
        .as_bytes()
        .chunks(64)
        .filter_map(|line| std::str::from_utf8(line).ok())
        .collect();
    let body = lines.join("\n");
    format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")
}

/// Writes a kubeconfig with one cluster and one user with a client certificate, mode 0600,
/// atomically.
pub(super) fn write_document(
    path: &Path,
    cluster: &serde_json::Value,
    client_cert_file: &Path,
    client_key_file: &Path,
) -> Result<(), ConfigError> {
    // JSON is valid YAML
    let document = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "default-cluster", "cluster": cluster }],
        "users": [{ "name": "default-auth", "user": {
            "client-certificate": client_cert_file.display().to_string(),
            "client-key": client_key_file.display().to_string(),
        }}],
        "contexts": [{ "name": "default-context", "context": {
            "cluster": "default-cluster", "user": "default-auth", "namespace": "default",
        }}],
        "current-context": "default-context",
    });
    write_private(path, format!("{document:#}\n").as_bytes()).map_err(|source| ConfigError::Io {
        path: path.to_owned(),
        source,
    })
}

/// Writes beside `path`, then renames: a reader sees the old file or the new one.
fn write_private(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    std::fs::create_dir_all(directory)?;
    // temporary files have mode 0600
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(text)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    File::open(directory)?.sync_all()
}
