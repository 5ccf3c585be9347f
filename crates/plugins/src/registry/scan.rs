//! Which sockets lie in the directory. Blocking.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use windlass_node_rules::plugin_registration::SocketId;

/// Directories below each other that are looked into: nobody nests more than one.
const MAX_DEPTH: usize = 8;
/// Entries that are looked at; a directory with more is somebody's mistake.
const MAX_ENTRIES: usize = 4096;

/// What lies in the directory.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) sockets: BTreeMap<PathBuf, SocketId>,
    /// The directory itself and all below it.
    pub(super) directories: BTreeSet<PathBuf>,
}

/// Looks at everything but names that begin with a dot. Makes the directory if it is missing.
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
            // nobody knows what is in it: no plugin may count as gone
            Err(error) if scan.directories.is_empty() || is_shortage(&error) => return Err(error),
            // one that is gone again, or broken, has nothing in it
            Err(_) => continue,
        };
        scan.directories.insert(directory);
        for entry in entries.flatten() {
            if left == 0 {
                tracing::warn!(
                    entries = MAX_ENTRIES,
                    "more files among the plugins are not seen"
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

/// What tells a socket from another at the same path.
fn socket_id(path: &Path) -> Option<SocketId> {
    // as upstream: a link to a socket is one
    let meta = fs::metadata(path).ok()?;
    meta.file_type().is_socket().then(|| SocketId {
        inode: meta.ino(),
        modified: (meta.mtime(), meta.mtime_nsec()),
    })
}

/// The agent or the machine has no descriptor or no memory left; that passes.
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
