//! The `Authorization` header: a fixed token, a token file, basic authentication, a plugin.
//!
//! A token file is read again after a minute, as projected tokens want it, and a plugin is asked
//! again when the server says 401: then the request that met the 401 is sent once more, if the
//! credentials changed. So no clock is compared with a token's expiry.
//!
//! One read or run is under way at a time, whoever waits for it: a request that is given up does
//! not stop it, so a plugin that takes longer than a heartbeat may still end. After a failure the
//! old token is used, and where there is none requests fail for [`FAILURE_PERIOD`] without a try.

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

/// Whether and how a request proves who sends it beyond the client certificate.
pub(crate) struct Credentials {
    source: Source,
    cached: Arc<Mutex<Option<CachedHeader>>>,
}

/// How the header is made.
#[derive(Clone)]
pub(crate) enum Source {
    /// No header: the client certificate is enough.
    None,
    /// Always this one.
    Fixed(HeaderValue),
    /// `Bearer` and what the file says.
    TokenFile(PathBuf),
    /// What the plugin of the kubeconfig prints.
    Plugin(Box<Exec>),
}

/// Credentials that cannot be had. The text never holds them.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CredentialsError {
    #[error("token file {}: {source}", path.display())]
    TokenFile {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("token file {}: no token in it", .0.display())]
    EmptyTokenFile(PathBuf),
    #[error("credential plugin {command}: {problem}")]
    Plugin { command: String, problem: String },
    #[error("the credentials were not read: the agent is shutting down")]
    Lost,
}

struct CachedHeader {
    header: Result<Option<HeaderValue>, Arc<CredentialsError>>,
    since: Instant,
}

/// How long a token file's content is used: upstream's period.
const TOKEN_FILE_PERIOD: Duration = Duration::from_secs(60);
/// A plugin that takes longer is stopped, a file that does is not waited for.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long a failure without an old token is the answer to all requests.
const FAILURE_PERIOD: Duration = Duration::from_secs(1);
/// Most of a token file or of a plugin's output that is read.
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
    /// What the user entry of a kubeconfig asks for, by upstream's precedence; the error is the
    /// field that cannot be sent in a header.
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

    /// The header for a request; a plugin may also set the client certificate.
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
            && self.serves(cached)
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
                tracing::warn!(%error, "credentials not renewed, the old ones serve");
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

    fn serves(&self, cached: &CachedHeader) -> bool {
        match (&cached.header, &self.source) {
            (Err(_), _) => cached.since.elapsed() < FAILURE_PERIOD,
            (Ok(_), Source::Plugin(_)) => true,
            (Ok(_), _) => cached.since.elapsed() < TOKEN_FILE_PERIOD,
        }
    }

    /// After a 401 to a request with the header `refused`: a new one, if there is one.
    pub(crate) async fn renewed(
        &self,
        refused: Option<&HeaderValue>,
        identity: &ClientIdentity,
    ) -> Option<HeaderValue> {
        if matches!(self.source, Source::None | Source::Fixed(_)) {
            return None;
        }
        {
            let mut cached = self.cached.lock().await;
            // another request may have renewed it already
            let same =
                |cached: &CachedHeader| cached.header.as_ref().is_ok_and(|h| h.as_ref() == refused);
            if cached.as_ref().is_some_and(same) {
                *cached = None;
            }
        }
        let header = self.header(identity).await.ok()??;
        (refused != Some(&header)).then_some(header)
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

/// What a plugin prints: `ExecCredential` of `client.authentication.k8s.io`.
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
        .map_err(|_| failed(format!("no answer in {} s", TIMEOUT.as_secs())))?
        .map_err(|error| failed(error.to_string()))?;
    if !status.success() {
        return Err(failed(status.to_string()));
    }
    let bad = || failed("its output is no ExecCredential with a status".to_owned());
    let answer: ExecCredential = serde_json::from_slice(&output).map_err(|_| bad())?;
    let status = answer.status.ok_or_else(bad)?;
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
