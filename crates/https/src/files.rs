//! Certificates from files, read again on change.
//!
//! The directory of each file is watched with inotify, so replaced files and links are noticed at
//! once. As upstream, the files are also read every minute. An unusable file is logged once, and
//! the last valid content stays in use.

use std::fmt;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify;
use tokio::io::AsyncReadExt;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::tls::{ClientCa, ServingCertificate, TlsError};

/// Delay between an event and the read: the two files of a pair are written one after the other.
const SETTLE_DELAY: Duration = Duration::from_millis(100);
/// Interval of reads without an event.
const POLL_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum file size: a bundle of 500 CAs.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Unusable certificate files.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The content of a file is unusable.
    #[error("{}: {source}", path.display())]
    Content {
        /// The file with the certificates.
        path: PathBuf,
        /// Why.
        #[source]
        source: TlsError,
    },
}

/// A certificate chain and its key: `tlsCertFile`, `tlsPrivateKeyFile`. May be the same file.
#[derive(Clone, Debug)]
pub struct Pair {
    certificate: PathBuf,
    key: PathBuf,
}

impl Pair {
    /// Does not read the files.
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self {
            certificate: certificate.into(),
            key: key.into(),
        }
    }

    /// Reads the pair.
    ///
    /// # Errors
    /// The files cannot be read, or do not match.
    pub async fn read(&self) -> Result<ServingCertificate, FileError> {
        let pem = read_all(&[&self.certificate, &self.key]).await?;
        self.parse(&pem)
    }

    fn parse(&self, pem: &[u8]) -> Result<ServingCertificate, FileError> {
        ServingCertificate::from_pem(pem).map_err(|source| FileError::Content {
            path: self.certificate.clone(),
            source,
        })
    }

    /// Sends each new pair until all receivers are dropped.
    pub async fn follow(self, current: watch::Sender<Option<ServingCertificate>>) {
        let paths = [self.certificate.as_path(), self.key.as_path()];
        let take = |pem: &[u8]| {
            self.parse(pem)
                .map(|it| drop(current.send_replace(Some(it))))
        };
        follow("serving certificate", &paths, take, current.closed()).await;
    }
}

/// A CA bundle: `authentication.x509.clientCAFile`.
#[derive(Clone, Debug)]
pub struct Bundle {
    path: PathBuf,
}

impl Bundle {
    /// Does not read the file.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Reads the bundle.
    ///
    /// # Errors
    /// The file cannot be read, or has no usable certificate.
    pub async fn read(&self) -> Result<ClientCa, FileError> {
        self.parse(&read_all(&[&self.path]).await?)
    }

    fn parse(&self, pem: &[u8]) -> Result<ClientCa, FileError> {
        ClientCa::from_pem(pem).map_err(|source| FileError::Content {
            path: self.path.clone(),
            source,
        })
    }

    /// Sends each new bundle until all receivers are dropped.
    pub async fn follow(self, current: watch::Sender<ClientCa>) {
        let take = |pem: &[u8]| self.parse(pem).map(|it| drop(current.send_replace(it)));
        follow("client CA", &[&self.path], take, current.closed()).await;
    }
}

/// Parses each pair (PEM) of `pairs` and sends it to `current`. Ends when one of the two closes.
pub async fn parse_each<T: Clone + Send + Sync>(
    mut pairs: watch::Receiver<Option<T>>,
    pem: impl Fn(&T) -> Vec<u8> + Send,
    current: watch::Sender<Option<ServingCertificate>>,
) {
    loop {
        let pair = pairs.borrow_and_update().clone();
        if let Some(pair) = pair {
            match ServingCertificate::from_pem(&pem(&pair)) {
                Ok(certificate) => drop(current.send_replace(Some(certificate))),
                Err(error) => tracing::error!(%error, "serving certificate unusable"),
            }
        }
        tokio::select! {
            biased;
            () = current.closed() => return,
            changed = pairs.changed() => if changed.is_err() {
                return;
            },
        }
    }
}

/// Calls `take` with the content of the files, first at once and then after each change.
async fn follow(
    what: &'static str,
    paths: &[&Path],
    take: impl Fn(&[u8]) -> Result<(), FileError>,
    closed: impl Future<Output = ()>,
) {
    let watching = async {
        let mut last: Option<Result<Vec<u8>, String>> = None;
        let directories = Directories::new(paths);
        loop {
            // armed before the read, so that no change is missed
            directories.arm();
            let read = read_all(paths).await;
            let seen = read.as_ref().map(Clone::clone).map_err(ToString::to_string);
            if last.as_ref() != Some(&seen) {
                let first = last.is_none();
                last = Some(seen);
                match read.and_then(|pem| take(&pem)) {
                    Ok(()) if first => {}
                    Ok(()) => {
                        tracing::info!(what, file = %Listed(paths), "certificate file reloaded")
                    }
                    Err(error) => {
                        tracing::warn!(what, %error, "certificate file unusable, old one kept")
                    }
                }
            }
            if timeout(POLL_INTERVAL, directories.changed()).await.is_ok() {
                sleep(SETTLE_DELAY).await;
            }
        }
    };
    tokio::select! {
        biased;
        () = closed => {}
        () = watching => {}
    }
}

/// Reads the files one after the other, each followed by a line break.
async fn read_all(paths: &[&Path]) -> Result<Vec<u8>, FileError> {
    let mut all = Vec::new();
    for path in paths {
        let read = async {
            let file = tokio::fs::File::open(path).await?;
            let length = file.take(MAX_FILE_BYTES + 1).read_to_end(&mut all).await?;
            match u64::try_from(length).is_ok_and(|length| length <= MAX_FILE_BYTES) {
                true => Ok(()),
                false => Err(io::Error::other(format!(
                    "larger than {MAX_FILE_BYTES} bytes"
                ))),
            }
        };
        read.await.map_err(|source| FileError::Read {
            path: path.to_path_buf(),
            source,
        })?;
        all.push(b'\n');
    }
    Ok(all)
}

/// The directories of some files.
struct Directories {
    paths: Vec<PathBuf>,
    /// `None` if no inotify instance is available.
    events: Option<AsyncFd<OwnedFd>>,
}

impl Directories {
    fn new(files: &[&Path]) -> Self {
        let directory = |file: &&Path| match file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let mut paths: Vec<_> = files.iter().map(directory).collect();
        paths.dedup();
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        #[expect(
            deprecated,
            reason = "the constructor that replaces it is unsafe code; it only needs an OwnedFd"
        )]
        let events = inotify::init(flags)
            .map_err(io::Error::from)
            .and_then(AsyncFd::new);
        let events = events
            .inspect_err(|error| tracing::warn!(%error, "inotify not available, polling files"))
            .ok();
        Self { paths, events }
    }

    /// Watches the directories that exist now; watching one twice has no effect.
    fn arm(&self) {
        let Some(events) = &self.events else { return };
        let flags = inotify::WatchFlags::CLOSE_WRITE
            | inotify::WatchFlags::CREATE
            | inotify::WatchFlags::DELETE
            | inotify::WatchFlags::MOVED_TO
            | inotify::WatchFlags::MOVED_FROM
            | inotify::WatchFlags::ONLYDIR;
        for path in &self.paths {
            if let Err(error) = inotify::add_watch(events.get_ref(), path, flags) {
                tracing::debug!(directory = %path.display(), %error, "directory not watched");
            }
        }
    }

    /// Waits for an event in one of them.
    async fn changed(&self) {
        let Some(events) = &self.events else {
            return std::future::pending().await;
        };
        let Ok(mut ready) = events.readable().await else {
            return std::future::pending().await;
        };
        let mut buffer = [0_u8; 4096];
        // all pending events are one change
        while rustix::io::read(events.get_ref(), &mut buffer).is_ok_and(|length| length > 0) {}
        ready.clear_ready();
    }
}

struct Listed<'a>(&'a [&'a Path]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, path) in self.0.iter().enumerate() {
            f.write_str(if index > 0 { ", " } else { "" })?;
            write!(f, "{}", path.display())?;
        }
        Ok(())
    }
}
