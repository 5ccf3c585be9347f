//! Executes the plugins that return credentials for images (`--image-credential-provider-config`).
//!
//! *owns* cached responses of plugins · *invariant* a plugin is executed once at a time for an image
//! and a service account · *bound* at most eight processes of each plugin, a minute and 1 MiB of
//! output each; one response for each image pulled and, with `tokenAttributes`, service account or
//! token, until it expires · *restart* plugins are executed again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::{Instant, timeout};
use windlass_client::ApiClients;
use windlass_credentials::credentials::Keyring;
use windlass_credentials::credentials::provider::{
    AccountPlan, CredentialProvider, PluginAccount, read_providers,
};
use windlass_manifests::image_name::ImageName;
use windlass_metrics::PluginMetrics;
use windlass_pacing::SharedByKey;
use windlass_runtime_config::port::ImageCredentials;
use windlass_types::{Clock, Pod, PodExt};

mod accounts;

use accounts::{AccountError, Accounts};

/// Timeout of a plugin, as upstream.
const PLUGIN_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum concurrent processes of one plugin, for bursts of pods with different images. With a
/// minute each, the hundredth image waits 100 / 8 = 13 minutes; other plugins are not affected.
const MAX_CONCURRENT_PROCESSES: usize = 8;
/// Maximum response size: that of the node's docker config file.
const MAX_RESPONSE_BYTES: u64 = 1 << 20;
/// Maximum bytes of stderr in an error.
const MAX_STDERR_BYTES: u64 = 512;
const CONFIG_EXTENSIONS: [&str; 3] = ["json", "yaml", "yml"];

/// Why the plugins cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum CredentialProvidersError {
    /// A file or directory cannot be read.
    #[error("--image-credential-provider-config: {path}: {source}")]
    Read {
        /// Path.
        path: String,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// There is no configuration file, or it has invalid settings.
    #[error("--image-credential-provider-config: {path}: {errors}")]
    Config {
        /// Path.
        path: String,
        /// All errors with their fields.
        errors: String,
    },
    /// The program of a plugin is missing.
    #[error(
        "--image-credential-provider-bin-dir: {path} is not a program; install it, or remove \
         {name} from the configuration"
    )]
    Program {
        /// Expected path.
        path: String,
        /// Name of the plugin.
        name: String,
    },
}

/// The plugins of the node.
#[derive(Debug)]
pub struct CredentialProviders {
    plugins: Vec<Plugin>,
    metrics: PluginMetrics,
    timeout: Duration,
    /// `None` in standalone mode.
    accounts: Option<Accounts>,
}

impl CredentialProviders {
    /// Reads `config`, a file or a directory of files in the order of their names, and locates the
    /// programs in `bin_dir`. Blocks on the disk. `tokens` is the gate
    /// `KubeletServiceAccountTokenForCredentialProviders`.
    ///
    /// # Errors
    /// Invalid settings, or a missing program.
    pub fn load(
        config: &Path,
        bin_dir: &Path,
        tokens: bool,
        metrics: PluginMetrics,
    ) -> Result<Self, CredentialProvidersError> {
        let mut names = BTreeSet::new();
        let mut plugins = Vec::new();
        for path in config_files(config)? {
            let text = fs::read(&path).map_err(|source| unreadable(&path, source))?;
            let read = read_providers(&text, &mut names, tokens).map_err(|errors| {
                let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
                CredentialProvidersError::Config {
                    path: path.display().to_string(),
                    errors: errors.join("; "),
                }
            })?;
            for warning in read.warnings {
                tracing::warn!(path = %path.display(), warning, "credential providers");
            }
            for provider in read.providers {
                plugins.push(Plugin::new(provider, bin_dir)?);
            }
        }
        Ok(Self {
            plugins,
            metrics,
            timeout: PLUGIN_TIMEOUT,
            accounts: None,
        })
    }

    /// Enables plugins with `tokenAttributes` to use service accounts and their tokens.
    #[must_use]
    pub fn with_api(mut self, clients: &ApiClients, clock: Arc<dyn Clock>) -> Self {
        self.accounts = Some(Accounts::new(clients, clock));
        self
    }
}

fn config_files(config: &Path) -> Result<Vec<PathBuf>, CredentialProvidersError> {
    let failed = |source| unreadable(config, source);
    if !fs::metadata(config).map_err(failed)?.is_dir() {
        return Ok(vec![config.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(config).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let extension = path.extension().and_then(|e| e.to_str());
        if extension.is_some_and(|e| CONFIG_EXTENSIONS.contains(&e)) {
            files.push(path);
        }
    }
    if files.is_empty() {
        return Err(CredentialProvidersError::Config {
            path: config.display().to_string(),
            errors: "no *.json, *.yaml or *.yml in this directory".to_owned(),
        });
    }
    files.sort();
    Ok(files)
}

fn unreadable(path: &Path, source: io::Error) -> CredentialProvidersError {
    CredentialProvidersError::Read {
        path: path.display().to_string(),
        source,
    }
}

#[async_trait]
impl ImageCredentials for CredentialProviders {
    async fn keyring(&self, image: &ImageName, pod: &Pod) -> Keyring {
        let plugins = self.plugins.iter();
        let plugins = plugins.filter(|plugin| plugin.provider.is_for(image));
        let keyrings = join_all(plugins.map(|plugin| plugin.keyring(image, pod, self))).await;
        let all = Keyring::default();
        keyrings.iter().fold(all, |all, keyring| all.then(keyring))
    }
}

#[derive(Debug)]
struct Plugin {
    provider: CredentialProvider,
    program: PathBuf,
    permits: Semaphore,
    /// Credentials and their expiry, by cache key.
    cached: Mutex<BTreeMap<String, (Instant, Keyring)>>,
    /// Executions in progress, by key of the image. Callers of one share its response, also if
    /// that is not to be cached.
    executions: SharedByKey<String, OnceCell<Keyring>>,
}

impl Plugin {
    fn new(provider: CredentialProvider, bin_dir: &Path) -> Result<Self, CredentialProvidersError> {
        let program = bin_dir.join(&provider.name);
        if !program.is_file() {
            return Err(CredentialProvidersError::Program {
                path: program.display().to_string(),
                name: provider.name,
            });
        }
        Ok(Self {
            provider,
            program,
            permits: Semaphore::new(MAX_CONCURRENT_PROCESSES),
            cached: Mutex::default(),
            executions: SharedByKey::default(),
        })
    }

    /// Returns cached credentials, or those that the program returns; empty if it fails, which is
    /// logged.
    async fn keyring(&self, image: &ImageName, pod: &Pod, all: &CredentialProviders) -> Keyring {
        // before a permit is acquired: a hung API server delays no plugin of another pod
        let account = match self.account(pod, all).await {
            Ok(account) => account,
            Err(error) => {
                self.log_skipped(image, pod, &error);
                return Keyring::default();
            }
        };
        let account = account.as_ref();
        let keys = self.provider.cache_keys(image, account);
        if let Some(keyring) = self.cached(&keys) {
            return keyring;
        }
        let [key, ..] = &keys;
        let execution = self
            .executions
            .get_or_insert_with(key.clone(), OnceCell::new);
        let keyring = execution.get_or_init(|| self.execute(image, account, &keys, all));
        let keyring = keyring.await.clone();
        drop(execution);
        self.executions.remove_unused();
        keyring
    }

    async fn execute(
        &self,
        image: &ImageName,
        account: Option<&PluginAccount>,
        keys: &[String; 3],
        all: &CredentialProviders,
    ) -> Keyring {
        // an execution that ended since the caller looked
        if let Some(keyring) = self.cached(keys) {
            return keyring;
        }
        let Ok(_permit) = self.permits.acquire().await else {
            return Keyring::default();
        };
        let name = &self.provider.name;
        let started_at = Instant::now();
        let output = timeout(all.timeout, self.run(image, account)).await;
        let output = output.unwrap_or_else(|_| Err(format!("timeout after {:?}", all.timeout)));
        let response =
            output.and_then(|output| self.provider.read_response(image, account, &output));
        let seconds = started_at.elapsed().as_secs_f64();
        let metrics = &all.metrics;
        metrics.observe_credential_provider(name, seconds, response.is_err());
        match response {
            Ok(response) => {
                let mut cached = self.cached.lock();
                let now = Instant::now();
                cached.retain(|_, (until, _)| *until > now);
                if let Some(until) = now.checked_add(response.lifetime) {
                    cached.insert(response.key, (until, response.keyring.clone()));
                }
                response.keyring
            }
            Err(reason) => {
                let image = &image.reference;
                tracing::warn!(plugin = name, image, reason, "credential provider");
                Keyring::default()
            }
        }
    }

    /// Returns the pod's service account with a token, if the plugin receives one.
    async fn account(
        &self,
        pod: &Pod,
        all: &CredentialProviders,
    ) -> Result<Option<PluginAccount>, AccountError> {
        let name = PodExt::spec(pod).service_account_name.as_deref();
        let attributes = self.provider.token_attributes();
        match AccountPlan::new(attributes, name.unwrap_or_default()) {
            AccountPlan::WithoutToken => Ok(None),
            AccountPlan::Skip => Err(AccountError::None),
            AccountPlan::WithToken(name) => {
                let accounts = all.accounts.as_ref().zip(attributes);
                let (accounts, attributes) = accounts.ok_or(AccountError::Standalone)?;
                accounts.account(pod, name, attributes).await.map(Some)
            }
        }
    }

    fn log_skipped(&self, image: &ImageName, pod: &Pod, error: &AccountError) {
        let plugin = &self.provider.name;
        let (image, pod) = (&image.reference, pod.full_name());
        if error.is_configured() {
            tracing::debug!(plugin, image, %pod, %error, "credential provider skipped");
        } else {
            tracing::warn!(plugin, image, %pod, %error, "credential provider skipped");
        }
    }

    fn cached(&self, keys: &[String; 3]) -> Option<Keyring> {
        let all = self.cached.lock();
        let now = Instant::now();
        let kept = keys.iter().filter_map(|key| all.get(key));
        let mut cached = kept.filter(|(until, _)| *until > now);
        cached.next().map(|(_, keyring)| keyring.clone())
    }

    /// Returns the program's output. The program is killed if the future is dropped.
    async fn run(
        &self,
        image: &ImageName,
        account: Option<&PluginAccount>,
    ) -> Result<Vec<u8>, String> {
        let mut program = Command::new(&self.program);
        program.args(&self.provider.args);
        program.envs(self.provider.env.iter().map(|(name, value)| (name, value)));
        program.stdin(Stdio::piped());
        program.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = program.kill_on_drop(true).spawn();
        let mut child = child.map_err(|error| format!("{}: {error}", self.program.display()))?;
        let (input, output, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let request = self.provider.request(image, account);
        let write = async move {
            if let Some(mut input) = input {
                // a program that does not read fails by its response
                let _ = input.write_all(request.as_bytes()).await;
            }
        };
        let ((), output, stderr) = tokio::join!(
            write,
            read(output, MAX_RESPONSE_BYTES + 1),
            read(stderr, MAX_STDERR_BYTES)
        );
        let status = child.wait().await;
        match (status, output) {
            (Ok(status), Ok(output)) => check_output(status, output, &stderr.unwrap_or_default()),
            (Err(error), _) | (_, Err(error)) => Err(error.to_string()),
        }
    }
}

fn check_output(status: ExitStatus, output: Vec<u8>, stderr: &[u8]) -> Result<Vec<u8>, String> {
    if !status.success() {
        let stderr = String::from_utf8_lossy(stderr);
        return Err(format!("{status}: {}", stderr.trim()));
    }
    if output.len() as u64 > MAX_RESPONSE_BYTES {
        return Err(format!("response of more than {MAX_RESPONSE_BYTES} bytes"));
    }
    Ok(output)
}

/// Reads the beginning of a stream and discards the rest, so that the writer does not block.
async fn read(stream: Option<impl AsyncRead + Unpin>, max: u64) -> io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    if let Some(mut stream) = stream {
        (&mut stream).take(max).read_to_end(&mut kept).await?;
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    }
    Ok(kept)
}

#[cfg(test)]
mod tests;
