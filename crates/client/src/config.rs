//! Address, trust and credentials of the API server, from a kubeconfig.
//!
//! | field of the kubeconfig | effect |
//! |---|---|
//! | `server` | `https://`, host, port, path prefix; over `http://` no credentials are sent (as upstream) |
//! | `certificate-authority[-data]`, `tls-server-name`, `insecure-skip-tls-verify` | verified by rustls; without a CA by the system's bundle |
//! | `client-certificate[-data]`, `client-key[-data]` | [`ClientIdentity`]; files are read again every minute |
//! | `token`, `tokenFile`, `username` and `password`, `exec` | the `Authorization` header |
//! | `proxy-url` | `http`, `https` or `socks5`; without it `HTTPS_PROXY` and `NO_PROXY` as in Go |
//! | `as`, `auth-provider` | rejected: not supported |

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::{CertificateDer, ServerName};

use crate::credentials::Source;
use crate::identity::{ClientIdentity, IdentityError};
use entry::{EntryPath, current};
use file::Kubeconfig;
use proxy::Proxy;
use write::{certificate_pem, write_document};

mod entry;
pub(crate) mod file;
pub(crate) mod proxy;
mod write;

/// Address, trust and credentials of one API server.
#[derive(Clone, Debug)]
pub struct ApiServerConfig {
    server: http::Uri,
    pub(crate) trust: Trust,
    pub(crate) server_name: Option<ServerName<'static>>,
    pub(crate) proxy: Option<Proxy>,
    /// The proxy is from the kubeconfig, so it is written into new ones.
    proxy_from_file: bool,
    identity: ClientIdentity,
    pub(crate) source: Source,
}

/// Which server certificates are accepted.
#[derive(Clone, Debug)]
pub(crate) enum Trust {
    /// Certificates signed by these CAs.
    Authorities(Vec<CertificateDer<'static>>),
    /// Certificates signed by the system's CAs.
    System,
    /// Any.
    Anything,
}

/// An unusable kubeconfig: file, field and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file, or one that it names, cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not a kubeconfig. Its text is not repeated: it may contain keys.
    #[error("{}: not a kubeconfig in YAML{}", path.display(), at_line(*line))]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Line of the error, from 1.
        line: Option<u64>,
    },
    /// A field is missing, wrong or not supported.
    #[error("{}: {field}: {problem}", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The field's path, such as `clusters[default].server`.
        field: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// An unusable client certificate.
    #[error("{}: {field}: {source}", path.display())]
    Identity {
        /// The kubeconfig.
        path: PathBuf,
        /// The field's path.
        field: String,
        /// Why.
        source: IdentityError,
    },
    /// An unusable environment variable for a proxy.
    #[error("environment variable {variable}: {problem}")]
    Environment {
        /// Its name.
        variable: &'static str,
        /// What is wrong and what to do.
        problem: &'static str,
    },
    /// TLS cannot be set up with these settings.
    #[error("TLS to {server}: {problem}")]
    Tls {
        /// URL of the server.
        server: String,
        /// What is wrong and what to do.
        problem: String,
    },
}

fn at_line(line: Option<u64>) -> String {
    line.map(|line| format!(" (line {line})"))
        .unwrap_or_default()
}

impl ApiServerConfig {
    /// Creates a configuration without credentials. The server is trusted by the CAs in the PEM
    /// text `ca`; `None` trusts the system's CAs.
    pub fn new(server: &str, ca: Option<&[u8]>) -> Result<Self, ConfigError> {
        let entry = EntryPath {
            path: Path::new("(no file)"),
            entry: "cluster".to_owned(),
        };
        let server = entry.server(server)?;
        Ok(Self {
            proxy: environment(&server)?,
            proxy_from_file: false,
            server,
            trust: match ca {
                Some(pem) => entry.authorities("certificate-authority-data", pem)?,
                None => Trust::System,
            },
            server_name: None,
            identity: ClientIdentity::none(),
            source: Source::None,
        })
    }

    /// Reads cluster and user of a kubeconfig's current context. Relative paths are relative to
    /// the file.
    pub fn from_kubeconfig(path: &Path) -> Result<Self, ConfigError> {
        let text = read(path)?;
        let options = serde_saphyr::Options::default();
        let file: Kubeconfig = std::str::from_utf8(&text)
            .ok()
            .map(|text| serde_saphyr::from_str_with_options(text, options))
            .transpose()
            .map_err(|error| ConfigError::Syntax {
                path: path.to_owned(),
                line: error.location().map(|at| at.line()),
            })?
            .ok_or_else(|| ConfigError::Syntax {
                path: path.to_owned(),
                line: None,
            })?;
        let (cluster_name, cluster, user_name, user) = current(path, file)?;
        let entry = EntryPath {
            path,
            entry: format!("clusters[{cluster_name}].cluster"),
        };
        let (server, trust, server_name) = entry.cluster(&cluster)?;
        let file_proxy = entry.proxy(&cluster)?;
        let proxy_from_file = file_proxy.is_some();
        let proxy = match file_proxy {
            Some(proxy) => Some(proxy),
            None => environment(&server)?,
        };
        let entry = EntryPath {
            path,
            entry: format!("users[{user_name}].user"),
        };
        let (mut identity, mut source) = entry.user(user)?;
        if server.scheme_str() == Some("http") {
            tracing::warn!(%server, "no TLS: requests are anonymous and not encrypted");
            (identity, source) = (ClientIdentity::none(), Source::None);
        }
        Ok(Self {
            server,
            trust,
            server_name,
            proxy,
            proxy_from_file,
            identity,
            source,
        })
    }

    /// Returns the URL of the server.
    pub fn server(&self) -> &http::Uri {
        &self.server
    }

    /// Returns the trusted CAs; empty for the system's.
    pub fn authorities(&self) -> &[CertificateDer<'static>] {
        match &self.trust {
            Trust::Authorities(authorities) => authorities,
            Trust::System | Trust::Anything => &[],
        }
    }

    /// Returns the client certificate, which can be replaced at any time.
    pub fn identity(&self) -> &ClientIdentity {
        &self.identity
    }

    /// Returns true if there are credentials for the `Authorization` header: a token, a password,
    /// a plugin.
    pub fn has_header(&self) -> bool {
        !matches!(self.source, Source::None)
    }

    /// Uses only this client certificate.
    #[must_use]
    pub fn with_identity_alone(mut self, identity: ClientIdentity) -> Self {
        self.source = Source::None;
        self.identity = identity;
        self
    }

    /// Writes a kubeconfig for the same server and trust with these certificate and key files:
    /// mode 0600, atomically.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_kubeconfig(
        &self,
        path: &Path,
        client_cert_file: &Path,
        client_key_file: &Path,
    ) -> Result<(), ConfigError> {
        let mut cluster = serde_json::json!({ "server": self.server.to_string() });
        match &self.trust {
            Trust::Authorities(authorities) => {
                let pem: String = authorities.iter().map(certificate_pem).collect();
                cluster["certificate-authority-data"] = STANDARD.encode(pem).into();
            }
            Trust::System => {}
            Trust::Anything => cluster["insecure-skip-tls-verify"] = true.into(),
        }
        if let Some(name) = &self.server_name {
            cluster["tls-server-name"] = name.to_str().into();
        }
        if let Some(proxy) = self.proxy.as_ref().filter(|_| self.proxy_from_file) {
            cluster["proxy-url"] = proxy.url().into();
        }
        write_document(path, &cluster, client_cert_file, client_key_file)
    }

    /// Uses this client certificate.
    #[must_use]
    pub fn with_identity(mut self, identity: ClientIdentity) -> Self {
        self.identity = identity;
        self
    }
}

/// Returns the proxy from the environment of this process.
fn environment(server: &http::Uri) -> Result<Option<Proxy>, ConfigError> {
    let variable = |name: &str| std::env::var(name).ok();
    Proxy::from_environment(server, variable)
        .map_err(|(variable, problem)| ConfigError::Environment { variable, problem })
}

fn read(path: &Path) -> Result<Vec<u8>, ConfigError> {
    std::fs::read(path).map_err(|source| ConfigError::Io {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests;
