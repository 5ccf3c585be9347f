//! Certificates in files, read again when they change.
//!
//! The directory of each file is watched (inotify), so that a file that is replaced, also by a
//! link that is turned elsewhere, is noticed at once; once a minute, upstream's period, the files
//! are read in any case. What cannot be used is told once, and the last good one stays.

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

/// How long after an event the files are read: a pair is written one after the other.
const SETTLE_DELAY: Duration = Duration::from_millis(100);
/// The files are read in any case this often.
const POLL_INTERVAL: Duration = Duration::from_secs(60);
/// Longest file: a bundle of 500 authorities.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Files that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// One cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Their content cannot be used.
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
    /// The files; nothing is read yet.
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self {
            certificate: certificate.into(),
            key: key.into(),
        }
    }

    /// Reads them.
    ///
    /// # Errors
    /// They cannot be read, or do not belong together.
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

    /// Reads them again for as long as somebody listens.
    pub async fn follow(self, current: watch::Sender<Option<ServingCertificate>>) {
        let paths = [self.certificate.as_path(), self.key.as_path()];
        let take = |pem: &[u8]| {
            self.parse(pem)
                .map(|it| drop(current.send_replace(Some(it))))
        };
        follow("serving certificate", &paths, take, current.closed()).await;
    }
}

/// A bundle of authorities: `authentication.x509.clientCAFile`.
#[derive(Clone, Debug)]
pub struct Bundle {
    path: PathBuf,
}

impl Bundle {
    /// The file; nothing is read yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Reads it.
    ///
    /// # Errors
    /// It cannot be read, or there is no usable certificate in it.
    pub async fn read(&self) -> Result<ClientCa, FileError> {
        self.parse(&read_all(&[&self.path]).await?)
    }

    fn parse(&self, pem: &[u8]) -> Result<ClientCa, FileError> {
        ClientCa::from_pem(pem).map_err(|source| FileError::Content {
            path: self.path.clone(),
            source,
        })
    }

    /// Reads it again for as long as somebody listens.
    pub async fn follow(self, current: watch::Sender<ClientCa>) {
        let take = |pem: &[u8]| self.parse(pem).map(|it| drop(current.send_replace(it)));
        follow("client CA", &[&self.path], take, current.closed()).await;
    }
}

/// Turns each pair that somebody else obtains (PEM) into a certificate. Ends when nobody obtains or
/// listens any more.
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
                Err(error) => tracing::error!(%error, "serving certificate cannot be used"),
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

/// Calls `take` with the files' content whenever it is another, the first time with what differs
/// from nothing.
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
            // armed before the read, so that nothing happens between the two unnoticed
            directories.arm();
            let read = read_all(paths).await;
            let seen = read.as_ref().map(Clone::clone).map_err(ToString::to_string);
            if last.as_ref() != Some(&seen) {
                let first = last.is_none();
                last = Some(seen);
                match read.and_then(|pem| take(&pem)) {
                    Ok(()) if first => {}
                    Ok(()) => tracing::info!(what, file = %Listed(paths), "read again"),
                    Err(error) => tracing::warn!(what, %error, "the last good one stays in use"),
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

/// The files, one after the other, each with a line break behind it.
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
    /// `None` if the user has no inotify instance left.
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
            reason = "the constructor that replaces it is unsafe code; an OwnedFd is all that it asks for"
        )]
        let events = inotify::init(flags)
            .map_err(io::Error::from)
            .and_then(AsyncFd::new);
        let events = events
            .inspect_err(|error| tracing::warn!(%error, "certificates are read once a minute"))
            .ok();
        Self { paths, events }
    }

    /// Watches the directories that there are now; one that is watched already is not watched twice.
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
                tracing::debug!(directory = %path.display(), %error, "not watched");
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
        // which one does not matter: all that there are at present are one change
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
