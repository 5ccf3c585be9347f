//! The `Authorization` header from a fixed token, a token file, basic authentication or a plugin.
//!
//! A token file is read again after a minute, as projected tokens require. A plugin is executed
//! again on a 401, and the request is retried if the credentials changed. No clock is compared
//! with a token's expiry.
//!
//! At most one read or execution is in progress. A canceled request does not stop it, so a plugin
//! that takes longer than a heartbeat may still finish. After a failure the old token is used;
//! without one, requests fail for [`FAILURE_TTL`] without another attempt.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use http::HeaderValue;
use serde::Deserialize;
use tokio::io::AsyncReadExt;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::config::file::{Exec, User};
use crate::identity::ClientIdentity;

/// Credentials besides the client certificate.
pub(crate) struct Credentials {
    source: Source,
    cached: Arc<Mutex<Option<CachedHeader>>>,
}

#[derive(Clone)]
pub(crate) enum Source {
    /// No header: the client certificate is enough.
    None,
    Fixed(HeaderValue),
    /// A bearer token from a file.
    TokenFile(PathBuf),
    /// The output of the kubeconfig's credential plugin.
    Plugin(Box<Exec>),
}

/// Unavailable credentials. The text never contains them.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CredentialsError {
    #[error("token file {}: {source}", path.display())]
    TokenFile {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("token file {}: the file has no token", .0.display())]
    EmptyTokenFile(PathBuf),
    #[error("credential plugin {command}: {problem}")]
    Plugin { command: String, problem: String },
    #[error("credentials not read: the agent is shutting down")]
    Lost,
}

struct CachedHeader {
    header: Result<Option<HeaderValue>, Arc<CredentialsError>>,
    since: Instant,
}

/// How long the content of a token file is used, upstream's.
const TOKEN_FILE_TTL: Duration = Duration::from_secs(60);
/// Timeout of a plugin or a file.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long a failure without an old token applies to all requests.
const FAILURE_TTL: Duration = Duration::from_secs(1);
/// Maximum size of a token file or of a plugin's output.
const MAX_CREDENTIAL_BYTES: u64 = 1 << 20;

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Fixed(_) => f.write_str("Fixed(..)"),
            Self::TokenFile(path) => write!(f, "TokenFile({})", path.display()),
            Self::Plugin(exec) => write!(f, "Plugin({})", exec.command),
        }
    }
}

impl Source {
    /// Returns the source for a user of a kubeconfig, in upstream's precedence. The error is the
    /// field that is not valid in a header.
    pub(crate) fn from_user(user: &User) -> Result<Self, &'static str> {
        let set = |text: &'_ Option<String>| text.clone().filter(|text| !text.is_empty());
        if let Some(path) = set(&user.token_file) {
            return Ok(Self::TokenFile(PathBuf::from(path)));
        }
        if let Some(token) = set(&user.token) {
            return bearer(&token).map(Self::Fixed).ok_or("token");
        }
        if let Some(name) = set(&user.username) {
            let password = user.password.as_deref().unwrap_or_default();
            let pair =
                base64::engine::general_purpose::STANDARD.encode(format!("{name}:{password}"));
            return sensitive(&format!("Basic {pair}"))
                .map(Self::Fixed)
                .ok_or("username");
        }
        Ok(match &user.exec {
            Some(exec) => Self::Plugin(Box::new(exec.clone())),
            None => Self::None,
        })
    }
}

impl Credentials {
    pub(crate) fn new(source: Source) -> Self {
        Self {
            source,
            cached: Arc::default(),
        }
    }

    /// Returns the header for a request; a plugin may also set the client certificate.
    pub(crate) async fn header(
        &self,
        identity: &ClientIdentity,
    ) -> Result<Option<HeaderValue>, Arc<CredentialsError>> {
        match &self.source {
            Source::None => return Ok(None),
            Source::Fixed(header) => return Ok(Some(header.clone())),
            Source::TokenFile(_) | Source::Plugin(_) => {}
        }
        let mut cached = self.cached.clone().lock_owned().await;
        if let Some(cached) = cached.as_ref()
            && self.is_fresh(cached)
        {
            return cached.header.clone();
        }
        let (source, identity) = (self.source.clone(), identity.clone());
        let read = tokio::spawn(async move {
            let mut header = source.obtain(&identity).await.map_err(Arc::new);
            if let (
                Err(error),
                Some(CachedHeader {
                    header: Ok(old), ..
                }),
            ) = (&header, cached.as_ref())
            {
                tracing::warn!(%error, "renewing credentials failed, using the old ones");
                header = Ok(old.clone());
            }
            *cached = Some(CachedHeader {
                header: header.clone(),
                since: Instant::now(),
            });
            header
        });
        read.await
            .unwrap_or_else(|_| Err(Arc::new(CredentialsError::Lost)))
    }

    fn is_fresh(&self, cached: &CachedHeader) -> bool {
        match (&cached.header, &self.source) {
            (Err(_), _) => cached.since.elapsed() < FAILURE_TTL,
            (Ok(_), Source::Plugin(_)) => true,
            (Ok(_), _) => cached.since.elapsed() < TOKEN_FILE_TTL,
        }
    }

    /// Returns a new header after a 401 to a request with the header `rejected`, if there is one.
    pub(crate) async fn renewed(
        &self,
        rejected: Option<&HeaderValue>,
        identity: &ClientIdentity,
    ) -> Option<HeaderValue> {
        if matches!(self.source, Source::None | Source::Fixed(_)) {
            return None;
        }
        {
            let mut cached = self.cached.lock().await;
            // another request may have renewed it already
            let same = |cached: &CachedHeader| {
                cached.header.as_ref().is_ok_and(|h| h.as_ref() == rejected)
            };
            if cached.as_ref().is_some_and(same) {
                *cached = None;
            }
        }
        let header = self.header(identity).await.ok()??;
        (rejected != Some(&header)).then_some(header)
    }
}

impl Source {
    async fn obtain(
        &self,
        identity: &ClientIdentity,
    ) -> Result<Option<HeaderValue>, CredentialsError> {
        match self {
            Self::None => Ok(None),
            Self::Fixed(header) => Ok(Some(header.clone())),
            Self::TokenFile(path) => {
                let read = tokio::time::timeout(TIMEOUT, read_token(path)).await;
                let read = read.unwrap_or_else(|elapsed| Err(elapsed.into()));
                let text = read.map_err(|source| CredentialsError::TokenFile {
                    path: path.clone(),
                    source,
                })?;
                bearer(text.trim())
                    .map(Some)
                    .ok_or_else(|| CredentialsError::EmptyTokenFile(path.clone()))
            }
            Self::Plugin(exec) => run_plugin(exec, identity).await,
        }
    }
}

async fn read_token(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let file = tokio::fs::File::open(path).await?;
    file.take(MAX_CREDENTIAL_BYTES)
        .read_to_string(&mut text)
        .await?;
    Ok(text)
}

/// The output of a plugin: `ExecCredential` of `client.authentication.k8s.io`.
#[derive(Deserialize)]
struct ExecCredential {
    status: Option<ExecStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecStatus {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

async fn run_plugin(
    exec: &Exec,
    identity: &ClientIdentity,
) -> Result<Option<HeaderValue>, CredentialsError> {
    let name = exec.command.clone();
    let failed = |problem: String| CredentialsError::Plugin {
        command: name.clone(),
        problem,
    };
    let exec_info = serde_json::json!({
        "apiVersion": exec.api_version, "kind": "ExecCredential", "spec": { "interactive": false },
    });
    let mut command = tokio::process::Command::new(&name);
    command
        .args(exec.args.iter().flatten())
        .env("KUBERNETES_EXEC_INFO", exec_info.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    command.envs(exec.env.iter().flatten().map(|v| (&v.name, &v.value)));
    let run = async {
        let mut child = command.spawn()?;
        let mut output = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            stdout
                .take(MAX_CREDENTIAL_BYTES)
                .read_to_end(&mut output)
                .await?;
        }
        Ok::<_, std::io::Error>((child.wait().await?, output))
    };
    let (status, output) = tokio::time::timeout(TIMEOUT, run)
        .await
        .map_err(|_| failed(format!("no output within {} s", TIMEOUT.as_secs())))?
        .map_err(|error| failed(error.to_string()))?;
    if !status.success() {
        return Err(failed(status.to_string()));
    }
    let bad = || failed("invalid output: not an ExecCredential with a status".to_owned());
    let credential: ExecCredential = serde_json::from_slice(&output).map_err(|_| bad())?;
    let status = credential.status.ok_or_else(bad)?;
    if let (Some(certificate), Some(key)) = (status.client_certificate_data, status.client_key_data)
    {
        identity
            .replace_pem(format!("{certificate}\n{key}").as_bytes())
            .map_err(|error| failed(error.to_string()))?;
    }
    match status.token.filter(|token| !token.is_empty()) {
        Some(token) => bearer(&token).map(Some).ok_or_else(bad),
        None => Ok(None),
    }
}

fn bearer(token: &str) -> Option<HeaderValue> {
    (!token.is_empty()).then_some(())?;
    sensitive(&format!("Bearer {token}"))
}

fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests;
