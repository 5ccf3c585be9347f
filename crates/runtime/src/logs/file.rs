//! Opens a log below the log directory without following a link.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use super::LogSource;

/// An open log and how far it was read.
#[derive(Debug)]
pub(super) struct LogFile {
    pub(super) file: File,
    /// Device and inode: another file under the same name has other ones.
    pub(super) id: (u64, u64),
    pub(super) position: u64,
}

impl LogFile {
    /// `None` if there is none at this moment.
    pub(super) fn open(source: &LogSource) -> io::Result<Option<Self>> {
        let file = match open_beneath(&source.root, &source.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        Ok(Some(Self {
            id: (metadata.dev(), metadata.ino()),
            file,
            position: 0,
        }))
    }
}

/// Opens `path`, which lies below `root`, for reading. The root itself may be a link, it is the
/// node's; nothing below it may.
pub(crate) fn open_beneath(root: &Path, path: &Path) -> io::Result<File> {
    let below = path.strip_prefix(root).map_err(|_| {
        io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("not below {}", root.display()),
        )
    })?;
    let root = openat(
        CWD,
        root,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match openat2(&root, below, flags, Mode::empty(), resolve) {
        Ok(fd) => Ok(File::from(fd)),
        Err(Errno::LOOP) => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "a link in the path",
        )),
        Err(error) => Err(error.into()),
    }
}
