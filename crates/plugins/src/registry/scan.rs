//! Scans the directory for sockets. Blocking.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use windlass_node_rules::plugin_registration::SocketId;

/// Maximum depth of nested directories; one is usual.
const MAX_DEPTH: usize = 8;
/// Maximum number of scanned entries.
const MAX_ENTRIES: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) sockets: BTreeMap<PathBuf, SocketId>,
    /// The directory and all directories below it.
    pub(super) directories: BTreeSet<PathBuf>,
}

/// Scans all entries but names that begin with a dot. Creates the directory if missing.
pub(super) fn scan(directory: &Path) -> io::Result<Scan> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o750)
        .create(directory)?;
    let mut scan = Scan::default();
    let mut left = MAX_ENTRIES;
    let mut open = vec![(directory.to_owned(), MAX_DEPTH)];
    while let Some((directory, depth)) = open.pop() {
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            // unknown content: no plugin may count as removed
            Err(error) if scan.directories.is_empty() || is_shortage(&error) => return Err(error),
            // a removed or broken directory counts as empty
            Err(_) => continue,
        };
        scan.directories.insert(directory);
        for entry in entries.flatten() {
            if left == 0 {
                tracing::warn!(
                    entries = MAX_ENTRIES,
                    "plugin directory has too many entries, ignoring the rest"
                );
                return Ok(scan);
            }
            left -= 1;
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if depth > 0 {
                    open.push((path, depth - 1));
                }
            } else if let Some(id) = socket_id(&path) {
                scan.sockets.insert(path, id);
            }
        }
    }
    Ok(scan)
}

/// Identity of the socket at a path; `None` for other files.
fn socket_id(path: &Path) -> Option<SocketId> {
    // follows links, as upstream
    let meta = fs::metadata(path).ok()?;
    meta.file_type().is_socket().then(|| SocketId {
        inode: meta.ino(),
        modified: (meta.mtime(), meta.mtime_nsec()),
    })
}

/// True for a temporary shortage of file descriptors or memory.
fn is_shortage(error: &io::Error) -> bool {
    const ENOMEM: i32 = 12;
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(error.raw_os_error(), Some(ENOMEM | ENFILE | EMFILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_directory_is_an_error() {
        let temp = tempfile::tempdir().expect("temp dir");
        let registry = temp.path().join("registry");
        assert_eq!(scan(&registry).expect("made").directories.len(), 1);
        fs::remove_dir(&registry).expect("removed");
        fs::write(&registry, "").expect("a file");
        assert!(scan(&registry).is_err());
        assert!(is_shortage(&io::Error::from_raw_os_error(24)));
    }
}
