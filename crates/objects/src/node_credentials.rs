//! The node's registry credentials: docker config files, read again every five minutes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::sync::Mutex;
use tokio::time::Instant;
use windlass_credentials::credentials::{CredentialError, DockerConfigFormat, Keyring};

/// Lifetime of a read, as upstream's default provider.
const LIFETIME: Duration = Duration::from_secs(5 * 60);
/// Timeout of a read, for hung disks.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum size of a config file: that of a Secret.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Directories of docker config files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CredentialDirs {
    /// `--root-dir`.
    pub root_dir: PathBuf,
    /// Working directory of the agent.
    pub work_dir: PathBuf,
    /// `$HOME`, if it is set.
    pub home: Option<PathBuf>,
}

impl CredentialDirs {
    /// Returns the files in upstream's order; only the first readable one is used.
    fn candidates(&self) -> Vec<(PathBuf, DockerConfigFormat)> {
        let slash = Path::new("/");
        let dirs = [Some(self.root_dir.as_path()), Some(&self.work_dir)];
        let home = self.home.as_deref();
        let docker = [home.map(|h| h.join(".docker")), Some(slash.join(".docker"))];
        let plain = [home, Some(slash)];
        let json = dirs.into_iter().flatten().map(Path::to_path_buf);
        let json = json.chain(docker.into_iter().flatten());
        let old = || dirs.into_iter().chain(plain).flatten();
        let mut files: Vec<_> = json
            .map(|dir| (dir.join("config.json"), DockerConfigFormat::ConfigJson))
            .collect();
        files.extend(old().map(|dir| (dir.join(".dockercfg"), DockerConfigFormat::Dockercfg)));
        files.extend(old().map(|dir| {
            let file = dir.join(".dockerconfigjson");
            (file, DockerConfigFormat::ConfigJson)
        }));
        files
    }
}

/// The node's credentials.
#[derive(Debug)]
pub(crate) struct NodeCredentials {
    /// `None` reads no files.
    dirs: Option<CredentialDirs>,
    read: Mutex<Option<(Instant, Keyring)>>,
}

impl NodeCredentials {
    pub(crate) fn new(dirs: Option<CredentialDirs>) -> Self {
        Self {
            dirs,
            read: Mutex::default(),
        }
    }

    /// Returns the credentials of the files, cached for [`LIFETIME`].
    pub(crate) async fn keyring(&self) -> Keyring {
        let Some(dirs) = &self.dirs else {
            return Keyring::default();
        };
        let mut read = self.read.lock().await;
        if let Some((at, keyring)) = read.as_ref()
            && at.elapsed() < LIFETIME
        {
            return keyring.clone();
        }
        let keyring = match tokio::time::timeout(READ_TIMEOUT, read_files(dirs)).await {
            Ok(keyring) => keyring,
            Err(_) => {
                tracing::warn!("docker config files not read in time");
                let old = read.take();
                old.map(|(_, keyring)| keyring).unwrap_or_default()
            }
        };
        *read = Some((Instant::now(), keyring.clone()));
        keyring
    }
}

async fn read_files(dirs: &CredentialDirs) -> Keyring {
    for (path, format) in dirs.candidates() {
        let text = match read_file(&path).await {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "reading docker config failed");
                continue;
            }
        };
        let origin = format!("file {}", path.display());
        let read = Keyring::from_file(format, &text, &origin);
        for error in &read.errors {
            tracing::warn!(%error, "docker config");
        }
        let broken = |error: &CredentialError| matches!(error, CredentialError::File { .. });
        if !read.errors.iter().any(broken) {
            return read.keyring;
        }
    }
    Keyring::default()
}

async fn read_file(path: &Path) -> std::io::Result<Vec<u8>> {
    let file = tokio::fs::File::open(path).await?;
    let mut text = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut text).await?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(std::io::Error::other("larger than 1 MiB"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docker_config_files_are_in_upstream_order() {
        let dirs = CredentialDirs {
            root_dir: "/var/lib/kubelet".into(),
            work_dir: "/work".into(),
            home: Some("/root".into()),
        };
        let files: Vec<_> = dirs
            .candidates()
            .into_iter()
            .map(|(path, _)| path.display().to_string())
            .collect();
        assert_eq!(
            files,
            [
                "/var/lib/kubelet/config.json",
                "/work/config.json",
                "/root/.docker/config.json",
                "/.docker/config.json",
                "/var/lib/kubelet/.dockercfg",
                "/work/.dockercfg",
                "/root/.dockercfg",
                "/.dockercfg",
                "/var/lib/kubelet/.dockerconfigjson",
                "/work/.dockerconfigjson",
                "/root/.dockerconfigjson",
                "/.dockerconfigjson",
            ]
        );
    }
}
