//! The entries of a kubeconfig and their errors.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};

use super::file::{Cluster, Kubeconfig, User};
use super::proxy::Proxy;
use super::{ConfigError, Trust, read};
use crate::credentials::Source;
use crate::identity::ClientIdentity;

/// Returns the entries of the current context.
pub(super) fn current(
    path: &Path,
    file: Kubeconfig,
) -> Result<(String, Cluster, String, User), ConfigError> {
    let missing = |field: String, problem: String| ConfigError::Field {
        path: path.to_owned(),
        field,
        problem,
    };
    let name = file
        .current_context
        .filter(|name| !name.is_empty())
        .ok_or_else(|| {
            let fix = "not set; name one of the contexts".to_owned();
            missing("current-context".to_owned(), fix)
        })?;
    let context = file
        .contexts
        .into_iter()
        .flatten()
        .find(|context| context.name == name)
        .ok_or_else(|| {
            let problem = format!("there is no context {name:?}; add it to contexts");
            missing("current-context".to_owned(), problem)
        })?
        .context;
    let cluster = file
        .clusters
        .into_iter()
        .flatten()
        .find(|cluster| cluster.name == context.cluster)
        .ok_or_else(|| {
            let problem = format!(
                "there is no cluster {:?}; add it to clusters",
                context.cluster
            );
            missing(format!("contexts[{name}].context.cluster"), problem)
        })?;
    let user_name = context.user.unwrap_or_default();
    let user = file
        .users
        .into_iter()
        .flatten()
        .find(|user| user.name == user_name);
    let user = match user {
        Some(user) => user.user.unwrap_or_default(),
        None if user_name.is_empty() => User::default(),
        None => {
            let problem = format!("there is no user {user_name:?}; add it to users");
            return Err(missing(format!("contexts[{name}].context.user"), problem));
        }
    };
    Ok((cluster.name, cluster.cluster, user_name, user))
}

/// Path of a kubeconfig entry, for errors.
pub(super) struct EntryPath<'a> {
    pub(super) path: &'a Path,
    pub(super) entry: String,
}

impl EntryPath<'_> {
    pub(super) fn cluster(
        &self,
        cluster: &Cluster,
    ) -> Result<(http::Uri, Trust, Option<ServerName<'static>>), ConfigError> {
        let server = self.server(cluster.server.as_deref().unwrap_or_default())?;
        let authorities = match (
            &cluster.certificate_authority_data,
            &cluster.certificate_authority,
        ) {
            (Some(data), _) if !data.is_empty() => {
                let field = "certificate-authority-data";
                Some(self.authorities(field, &self.decoded(field, data)?)?)
            }
            (_, Some(file)) if !file.is_empty() => {
                let field = "certificate-authority";
                let pem = read(&self.resolved(file))
                    .map_err(|error| self.wrong(field, &error.to_string()))?;
                Some(self.authorities(field, &pem)?)
            }
            _ => None,
        };
        let trust = match (cluster.insecure_skip_tls_verify, authorities) {
            (true, Some(_)) => {
                let fix = "set together with a certificate authority; remove one of the two";
                return Err(self.wrong("insecure-skip-tls-verify", fix));
            }
            (true, None) => Trust::Anything,
            (false, Some(authorities)) => authorities,
            (false, None) => Trust::System,
        };
        let name = cluster
            .tls_server_name
            .as_ref()
            .filter(|name| !name.is_empty())
            .map(|name| ServerName::try_from(name.clone()))
            .transpose()
            .map_err(|_| self.wrong("tls-server-name", "not a DNS name or IP address"))?;
        Ok((server, trust, name))
    }

    pub(super) fn proxy(&self, cluster: &Cluster) -> Result<Option<Proxy>, ConfigError> {
        let url = cluster.proxy_url.as_ref().filter(|url| !url.is_empty());
        url.map(|url| Proxy::parse(url).map_err(|problem| self.wrong("proxy-url", problem)))
            .transpose()
    }

    pub(super) fn user(&self, user: User) -> Result<(ClientIdentity, Source), ConfigError> {
        if user
            .impersonate
            .as_ref()
            .is_some_and(|name| !name.is_empty())
        {
            let fix = "impersonation is not supported; remove it, a node acts as itself";
            return Err(self.wrong("as", fix));
        }
        if user.auth_provider.is_some() {
            let fix = "not supported, nor by upstream since 1.26; use exec or a client certificate";
            return Err(self.wrong("auth-provider", fix));
        }
        let source = Source::from_user(&user).map_err(|field| {
            self.wrong(
                field,
                "has characters that are not allowed in an HTTP header",
            )
        })?;
        Ok((self.identity(&user)?, self.absolute(source)))
    }

    fn identity(&self, user: &User) -> Result<ClientIdentity, ConfigError> {
        let set = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let certificate = (
            set(&user.client_certificate_data),
            set(&user.client_certificate),
        );
        let key = (set(&user.client_key_data), set(&user.client_key));
        let unusable = |source| ConfigError::Identity {
            path: self.path.to_owned(),
            field: format!("{}.client-certificate", self.entry),
            source,
        };
        match (certificate, key) {
            ((None, None), (None, None)) => Ok(ClientIdentity::none()),
            ((None, None), _) => {
                Err(self.wrong("client-certificate", "missing; a client-key needs one"))
            }
            (_, (None, None)) => {
                Err(self.wrong("client-key", "missing; a client-certificate needs one"))
            }
            ((None, Some(certificate)), (None, Some(key))) => {
                ClientIdentity::from_files(&self.resolved(&certificate), &self.resolved(&key))
                    .map_err(unusable)
            }
            ((data, file), (key_data, key_file)) => {
                let mut pem = self.bytes("client-certificate-data", data, file)?;
                pem.push(b'\n');
                pem.extend(self.bytes("client-key-data", key_data, key_file)?);
                ClientIdentity::from_pem(&pem).map_err(unusable)
            }
        }
    }

    fn bytes(
        &self,
        field: &str,
        data: Option<String>,
        file: Option<String>,
    ) -> Result<Vec<u8>, ConfigError> {
        match (data, file) {
            (Some(data), _) => self.decoded(field, &data),
            (None, file) => read(&self.resolved(&file.unwrap_or_default())),
        }
    }

    pub(super) fn server(&self, text: &str) -> Result<http::Uri, ConfigError> {
        let fix = "must be a URL such as https://10.0.0.1:6443";
        let uri: http::Uri = text.parse().map_err(|_| self.wrong("server", fix))?;
        match (uri.scheme_str(), uri.authority()) {
            (Some("https" | "http"), Some(_)) if uri.query().is_none() => Ok(uri),
            _ => Err(self.wrong("server", fix)),
        }
    }

    pub(super) fn authorities(&self, field: &str, pem: &[u8]) -> Result<Trust, ConfigError> {
        let fix = "no certificates found; must be PEM text with CERTIFICATE blocks";
        let found: Vec<_> = CertificateDer::pem_slice_iter(pem)
            .collect::<Result<_, _>>()
            .map_err(|_| self.wrong(field, fix))?;
        if found.is_empty() {
            return Err(self.wrong(field, fix));
        }
        Ok(Trust::Authorities(found))
    }

    fn decoded(&self, field: &str, data: &str) -> Result<Vec<u8>, ConfigError> {
        // some tools wrap long values
        let packed: String = data.split_ascii_whitespace().collect();
        STANDARD
            .decode(packed)
            .map_err(|_| self.wrong(field, "not base64; encode the PEM text with base64 -w0"))
    }

    fn absolute(&self, source: Source) -> Source {
        match source {
            Source::TokenFile(path) => Source::TokenFile(self.beside(path)),
            Source::Plugin(mut exec) if exec.command.contains('/') => {
                exec.command = self.resolved(&exec.command).display().to_string();
                Source::Plugin(exec)
            }
            other => other,
        }
    }

    fn resolved(&self, file: &str) -> PathBuf {
        self.beside(PathBuf::from(file))
    }

    fn beside(&self, file: PathBuf) -> PathBuf {
        match self.path.parent() {
            Some(directory) => directory.join(file),
            None => file,
        }
    }

    fn wrong(&self, field: &str, problem: &str) -> ConfigError {
        ConfigError::Field {
            path: self.path.to_owned(),
            field: format!("{}.{field}", self.entry),
            problem: problem.to_owned(),
        }
    }
}
