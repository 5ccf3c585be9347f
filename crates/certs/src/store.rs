//! Certificate files with upstream's layout: `<name>-2006-01-02-15-04-05.pem` (UTC) holds a
//! certificate and its key, `<name>-current.pem` is a link to the newest one.
//!
//! Files are written beside their path and renamed, so readers and killed agents see the old pair
//! or the new one. Unlike upstream, only the last three old files are kept.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use windlass_types::Timestamp;

/// Maximum number of old files.
const MAX_OLD_FILES: usize = 3;

/// The certificates of one purpose in one directory.
#[derive(Clone, Debug)]
pub struct CertificateStore {
    directory: PathBuf,
    name: &'static str,
}

/// A file that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("--cert-dir: {}: {source}", path.display())]
pub struct StoreError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

impl CertificateStore {
    /// Client certificates: `kubelet-client-*.pem`.
    pub fn client(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            name: "kubelet-client",
        }
    }

    /// Serving certificates: `kubelet-server-*.pem`.
    pub fn serving(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            name: "kubelet-server",
        }
    }

    /// The link to the newest certificate.
    pub fn current_path(&self) -> PathBuf {
        self.directory.join(format!("{}-current.pem", self.name))
    }

    /// The private key of the pending CSR.
    fn pending_path(&self) -> PathBuf {
        self.directory.join(format!("{}.key.tmp", self.name))
    }

    /// Reads certificate and key; `None` without a file or with a broken link.
    ///
    /// # Errors
    /// The file exists and cannot be read.
    pub fn current(&self) -> Result<Option<Vec<u8>>, StoreError> {
        read(self.current_path())
    }

    /// Makes `certificate` (the chain) and `key`, both PEM, the current pair.
    ///
    /// # Errors
    /// The files cannot be written; the old pair stays current.
    pub fn replace(&self, certificate: &str, key: &str, now: Timestamp) -> Result<(), StoreError> {
        let stamp = now.strftime("%Y-%m-%d-%H-%M-%S").to_string();
        let name = format!("{}-{stamp}.pem", self.name);
        let path = self.directory.join(&name);
        let text = format!("{}\n{}\n", certificate.trim_end(), key.trim_end());
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| StoreError { path, source }
        };
        make_directory(&self.directory).map_err(failed(&self.directory))?;
        // a second one within the same second replaces the first atomically
        let half = self.directory.join(format!(".{}-new.tmp", self.name));
        write_private(&half, text.as_bytes())
            .and_then(|()| fs::rename(&half, &path))
            .map_err(failed(&path))?;
        let current = self.current_path();
        // the link is replaced atomically
        let link = self.directory.join(format!(".{}-current.tmp", self.name));
        let _ = fs::remove_file(&link);
        symlink(&name, &link)
            .and_then(|()| fs::rename(&link, &current))
            .and_then(|()| File::open(&self.directory)?.sync_all())
            .map_err(failed(&current))?;
        let _ = fs::remove_file(self.pending_path());
        self.remove_old(&name);
        Ok(())
    }

    /// Reads the key of the pending CSR, to continue it after an agent restart.
    ///
    /// # Errors
    /// The file exists and cannot be read.
    pub fn pending_key(&self) -> Result<Option<String>, StoreError> {
        let text = read(self.pending_path())?;
        Ok(text.and_then(|bytes| String::from_utf8(bytes).ok()))
    }

    /// Writes the key of a CSR before it is created.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save_pending_key(&self, key: &str) -> Result<(), StoreError> {
        let path = self.pending_path();
        make_directory(&self.directory)
            .and_then(|()| write_private(&path, key.as_bytes()))
            .map_err(|source| StoreError { path, source })
    }

    /// Deletes the key of a rejected CSR.
    pub(crate) fn delete_pending_key(&self) {
        // a remaining file is replaced by the next key
        let _ = fs::remove_file(self.pending_path());
    }

    /// Removes old files, best effort.
    fn remove_old(&self, newest: &str) {
        let Ok(entries) = fs::read_dir(&self.directory) else {
            return;
        };
        let prefix = format!("{}-2", self.name);
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name.starts_with(&prefix) && name != newest)
            .collect();
        names.sort();
        let surplus = names.len().saturating_sub(MAX_OLD_FILES);
        for name in &names[..surplus] {
            let _ = fs::remove_file(self.directory.join(name));
        }
    }
}

/// `None` if there is no such file.
pub(crate) fn read(path: PathBuf) -> Result<Option<Vec<u8>>, StoreError> {
    match fs::read(&path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(StoreError { path, source }),
    }
}

/// Writes beside `path`, then renames; makes the directory if there is none.
pub(crate) fn write_beside(path: &Path, text: &[u8], mode: u32) -> Result<(), StoreError> {
    let half = path.with_extension("tmp");
    let directory = path.parent().unwrap_or(path);
    make_directory(directory)
        .and_then(|()| write(&half, text, mode))
        .and_then(|()| fs::rename(&half, path))
        .and_then(|()| File::open(directory)?.sync_all())
        .map_err(|source| StoreError {
            path: path.to_owned(),
            source,
        })
}

fn make_directory(directory: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
}

fn write_private(path: &Path, text: &[u8]) -> io::Result<()> {
    write(path, text, 0o600)
}

/// On the disk when it returns.
fn write(path: &Path, text: &[u8], mode: u32) -> io::Result<()> {
    // one that an agent left half written may have another mode
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(mode)
        .open(path)?;
    file.write_all(text)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + second).expect("in range")
    }

    #[test]
    fn the_link_names_the_newest_pair_and_only_a_few_old_ones_stay() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = CertificateStore::client(dir.path().join("pki"));
        assert!(store.current().expect("readable").is_none());
        for second in 0..6 {
            store
                .replace(&format!("cert{second}"), "key", at(second))
                .expect("written");
        }
        let current = store.current().expect("readable").expect("there");
        assert_eq!(current, b"cert5\nkey\n");
        let link = fs::read_link(store.current_path()).expect("a link");
        assert_eq!(link, Path::new("kubelet-client-2026-01-01-00-00-05.pem"));
        let mode = fs::metadata(store.current_path())
            .expect("there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let files = fs::read_dir(dir.path().join("pki"))
            .expect("readable")
            .count();
        assert_eq!(
            files,
            1 + MAX_OLD_FILES + 1,
            "the newest, those kept, the link"
        );
    }

    #[test]
    fn pending_key_is_kept_until_its_certificate_is_written() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = CertificateStore::client(dir.path());
        assert!(store.pending_key().expect("readable").is_none());
        store.save_pending_key("secret").expect("written");
        assert_eq!(
            store.pending_key().expect("readable").as_deref(),
            Some("secret")
        );
        store.replace("cert", "secret", at(0)).expect("written");
        assert!(store.pending_key().expect("readable").is_none());
    }

    #[test]
    fn error_names_directory_and_flag() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("file");
        fs::write(&file, "").expect("written");
        let error = CertificateStore::serving(file.join("pki"))
            .replace("cert", "key", at(0))
            .expect_err("a file is in the way");
        assert!(error.to_string().starts_with("--cert-dir: "), "{error}");
    }
}
