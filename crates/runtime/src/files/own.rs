//! Single files of a pod: what it wrote into its volumes, and the note of its user IDs.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use windlass_core::env::LARGEST_FILE;
use windlass_core::paths::NodePaths;
use windlass_types::PodUid;

use super::FilesError;

/// Longest note of user IDs; ours has 140 bytes.
const LARGEST_NOTE: u64 = 64 * 1024;

/// Reads a file that a pod may have written. Links lead no further than the volume, for which
/// they mean what they mean to a container that has it as its root; what is no regular file is
/// refused without waiting for it.
pub(super) fn read_in_volume(volume: &Path, path: &str) -> io::Result<String> {
    let root = openat(
        CWD,
        volume,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let file = File::from(openat2(&root, path, flags, Mode::empty(), resolve)?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(LARGEST_FILE as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > LARGEST_FILE {
        return Err(io::Error::other(format!(
            "larger than {LARGEST_FILE} bytes"
        )));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The notes that there are. A pod without one has the node's IDs.
pub(super) fn user_namespaces(
    paths: &NodePaths,
    pods: impl Iterator<Item = PodUid>,
) -> Result<Vec<(PodUid, String)>, FilesError> {
    let mut notes = Vec::new();
    for uid in pods {
        let path = paths.user_namespace(&uid);
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32)
            .open(&path);
        let mut text = String::new();
        match opened.and_then(|file| file.take(LARGEST_NOTE).read_to_string(&mut text)) {
            Ok(_) => notes.push((uid, text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // a file beside the directories of pods
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {}
            Err(error) => return Err(FilesError::io("read", &path, error)),
        }
    }
    Ok(notes)
}

/// All of the text or none of it is there after a crash, and it is there once this returns.
pub(super) fn write_durably(path: &Path, text: &str) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    let new = path.with_extension("new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits() as i32)
        .open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(dir)?.sync_all()
}
