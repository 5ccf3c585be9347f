//! Executes the plugins that return credentials for images (`--image-credential-provider-config`).
//!
//! *owns* cached responses of plugins · *invariant* a plugin is executed once at a time for an image
//! and a service account · *bound* at most eight processes of each plugin, a minute and 1 MiB of
//! output each; one response for each image pulled and, with `tokenAttributes`, service account or
//! token, until it expires · *restart* plugins are executed again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::sync::{Mutex as Turn, Semaphore};
use tokio::time::{Instant, timeout};
use windlass_client::ApiClients;
use windlass_credentials::credentials::Keyring;
use windlass_credentials::credentials::provider::{
    AccountPlan, CredentialProvider, PluginAccount, read_providers,
};
use windlass_manifests::image_name::ImageName;
use windlass_metrics::PluginMetrics;
use windlass_runtime::ImageCredentials;
use windlass_types::{Clock, Pod, PodExt};

mod accounts;

use accounts::{AccountError, Accounts};

/// How long a program may take (upstream's).
const DEADLINE: Duration = Duration::from_secs(60);
/// Programs of one plugin at a time: a burst of pods with images of their own is no burst of
/// processes. If each takes its minute, the hundredth image waits 100 / 8 = 13 minutes; another
/// plugin's images do not.
const AT_A_TIME: usize = 8;
/// An answer, at most: as much as a docker config file of the node.
const MAX_ANSWER: u64 = 1 << 20;
/// Of what a program complains about, so much is told.
const MAX_COMPLAINT: u64 = 512;
const CONFIG_EXTENSIONS: [&str; 3] = ["json", "yaml", "yml"];

/// Why there are no plugins.
#[derive(Debug, thiserror::Error)]
pub enum CredentialProvidersError {
    /// A file or directory cannot be read.
    #[error("--image-credential-provider-config: {path}: {source}")]
    Read {
        /// Which.
        path: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// There is no file, or it has settings that cannot be used.
    #[error("--image-credential-provider-config: {path}: {faults}")]
    Config {
        /// Which.
        path: String,
        /// Each fault with its field.
        faults: String,
    },
    /// The program of a plugin is not there.
    #[error(
        "--image-credential-provider-bin-dir: {path} is no program: put the plugin there, or take \
         {name} out of the configuration"
    )]
    Program {
        /// Where it should be.
        path: String,
        /// The plugin.
        name: String,
    },
}

/// The plugins of the node.
#[derive(Debug)]
pub struct CredentialProviders {
    plugins: Vec<Plugin>,
    metrics: PluginMetrics,
    deadline: Duration,
    /// `None` in standalone mode.
    accounts: Option<Accounts>,
}

impl CredentialProviders {
    /// Reads `config`, a file or a directory of them in the order of their names, and looks for
    /// the programs in `bin_dir`. Blocks on the disk. `tokens` is the gate
    /// `KubeletServiceAccountTokenForCredentialProviders`.
    ///
    /// # Errors
    /// Settings that cannot be used, or a program that is not there.
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
            let read = read_providers(&text, &mut names, tokens).map_err(|faults| {
                let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
                CredentialProvidersError::Config {
                    path: path.display().to_string(),
                    faults: faults.join("; "),
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
            deadline: DEADLINE,
            accounts: None,
        })
    }

    /// Gives plugins with `tokenAttributes` access to service accounts and their tokens.
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
            faults: "no *.json, *.yaml or *.yml in this directory".to_owned(),
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
    places: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By key of the cache, until when.
    good: BTreeMap<String, (Instant, Keyring)>,
    /// By key of the image: callers that wait for a response.
    turns: HashMap<String, Weak<Turn<()>>>,
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
            places: Semaphore::new(AT_A_TIME),
            state: Mutex::default(),
        })
    }

    /// Returns cached credentials, or those that the program returns; empty if it fails, which is
    /// logged.
    async fn keyring(&self, image: &ImageName, pod: &Pod, all: &CredentialProviders) -> Keyring {
        // before a permit is taken: an API server that hangs delays no other pod's plugin
        let account = match self.account(pod, all).await {
            Ok(account) => account,
            Err(error) => {
                self.skipped(image, pod, &error);
                return Keyring::default();
            }
        };
        let account = account.as_ref();
        let keys = self.provider.cache_keys(image, account);
        if let Some(keyring) = self.known(&keys) {
            return keyring;
        }
        let turn = self.turn(&keys);
        let _turn = turn.lock().await;
        if let Some(keyring) = self.known(&keys) {
            return keyring;
        }
        let Ok(_place) = self.places.acquire().await else {
            return Keyring::default();
        };
        let name = &self.provider.name;
        let begun = Instant::now();
        let output = timeout(all.deadline, self.run(image, account)).await;
        let output = output.unwrap_or_else(|_| Err(format!("no answer in {:?}", all.deadline)));
        let answer = output.and_then(|output| self.provider.answer(image, account, &output));
        let seconds = begun.elapsed().as_secs_f64();
        let metrics = &all.metrics;
        metrics.observe_credential_provider(name, seconds, answer.is_err());
        match answer {
            Ok(answer) => {
                let mut state = self.lock();
                let now = Instant::now();
                state.good.retain(|_, (until, _)| *until > now);
                state.turns.retain(|_, turn| turn.strong_count() > 0);
                if let Some(until) = now.checked_add(answer.lifetime) {
                    let good = (until, answer.keyring.clone());
                    state.good.insert(answer.key, good);
                }
                answer.keyring
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

    fn skipped(&self, image: &ImageName, pod: &Pod, error: &AccountError) {
        let plugin = &self.provider.name;
        let (image, pod) = (&image.reference, pod.full_name());
        if error.is_configured() {
            tracing::debug!(plugin, image, %pod, %error, "credential provider skipped");
        } else {
            tracing::warn!(plugin, image, %pod, %error, "credential provider skipped");
        }
    }

    fn known(&self, keys: &[String; 3]) -> Option<Keyring> {
        let state = self.lock();
        let now = Instant::now();
        let kept = keys.iter().filter_map(|key| state.good.get(key));
        let mut good = kept.filter(|(until, _)| *until > now);
        good.next().map(|(_, keyring)| keyring.clone())
    }

    fn turn(&self, [key, ..]: &[String; 3]) -> Arc<Turn<()>> {
        let mut state = self.lock();
        if let Some(turn) = state.turns.get(key).and_then(Weak::upgrade) {
            return turn;
        }
        let turn = Arc::new(Turn::new(()));
        state.turns.insert(key.clone(), Arc::downgrade(&turn));
        turn
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
        let (input, output, complaint) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let request = self.provider.request(image, account);
        let write = async move {
            if let Some(mut input) = input {
                // one that does not read says so by its answer
                let _ = input.write_all(request.as_bytes()).await;
            }
        };
        let ((), output, complaint) = tokio::join!(
            write,
            read(output, MAX_ANSWER + 1),
            read(complaint, MAX_COMPLAINT)
        );
        let status = child.wait().await;
        match (status, output) {
            (Ok(status), Ok(output)) => judge(status, output, &complaint.unwrap_or_default()),
            (Err(error), _) | (_, Err(error)) => Err(error.to_string()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn judge(status: ExitStatus, output: Vec<u8>, complaint: &[u8]) -> Result<Vec<u8>, String> {
    if !status.success() {
        let complaint = String::from_utf8_lossy(complaint);
        return Err(format!("{status}: {}", complaint.trim()));
    }
    if output.len() as u64 > MAX_ANSWER {
        return Err(format!("an answer of more than {MAX_ANSWER} bytes"));
    }
    Ok(output)
}

/// The beginning of a stream; the rest is read and dropped, so that nobody writes in vain.
async fn read(stream: Option<impl AsyncRead + Unpin>, most: u64) -> io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    if let Some(mut stream) = stream {
        (&mut stream).take(most).read_to_end(&mut kept).await?;
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    }
    Ok(kept)
}

#[cfg(test)]
mod tests;
