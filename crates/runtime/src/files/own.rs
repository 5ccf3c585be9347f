//! Single files of a pod: files in its volumes, and its user namespace file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;
use windlass_pod_inputs::env::MAX_ENV_FILE_BYTES;
use windlass_pod_inputs::paths::NodePaths;
use windlass_types::PodUid;

use super::FilesError;

/// Maximum bytes of a user namespace file; the agent writes 140.
const LARGEST_NOTE: u64 = 64 * 1024;

/// Max number of attempts to open a file: about 0.1 s. The kernel gives up on `..` if anything on the
/// host is renamed or mounted meanwhile, and a pod may rename its files without a pause.
const MAX_ATTEMPTS: usize = 10_000;

/// Reads a file that a pod may have written. Links are resolved with the volume as root directory.
/// Only a regular file is opened: opening a device node that the pod created may have side effects
/// (a watchdog).
pub(super) fn read_in_volume(volume: &Path, path: &str) -> io::Result<String> {
    let root = openat(
        CWD,
        volume,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let found = OFlags::PATH | OFlags::CLOEXEC;
    let mut attempts =
        (0..MAX_ATTEMPTS).map(|_| openat2(&root, path, found, Mode::empty(), resolve));
    let found = attempts
        .find(|opened| !matches!(opened, Err(Errno::AGAIN)))
        .unwrap_or(Err(Errno::AGAIN))?;
    let mode = fstat(&found)?.st_mode;
    if FileType::from_raw_mode(mode) != FileType::RegularFile {
        return Err(io::Error::other("not a regular file"));
    }
    // by descriptor: the path may have changed after the check
    let found = format!("/proc/self/fd/{}", found.as_raw_fd());
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(found)?;
    let mut bytes = Vec::new();
    file.take(MAX_ENV_FILE_BYTES as u64 + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() > MAX_ENV_FILE_BYTES {
        return Err(io::Error::other(format!(
            "larger than {MAX_ENV_FILE_BYTES} bytes"
        )));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads the user namespace files. A pod without one has the node's IDs.
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
        let mut text = Vec::new();
        match opened.and_then(|file| file.take(LARGEST_NOTE).read_to_end(&mut text)) {
            // invalid content affects only its own pod
            Ok(_) => notes.push((uid, String::from_utf8_lossy(&text).into_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // not a pod directory
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {}
            Err(error) => return Err(FilesError::io("read", &path, error)),
        }
    }
    Ok(notes)
}

/// Writes atomically and durably.
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
