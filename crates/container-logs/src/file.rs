//! Opens a log in the log directory without following links, and finds the next file after a
//! rotation.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IoSliceMut, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, openat, openat2, statat,
};
use rustix::io::{Errno, ReadWriteFlags, preadv2, retry_on_intr};

use super::{BLOCK_BYTES, LogSource};

/// An open log and its read position.
#[derive(Debug)]
pub(super) struct LogFile {
    file: File,
    /// Device and inode, which identify the file.
    id: (u64, u64),
    position: u64,
}

impl LogFile {
    /// Opens a log; `None` if it does not exist.
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

    /// Moves to the start of the last `lines` lines.
    pub(super) fn seek_to_tail(&mut self, lines: u64) -> io::Result<()> {
        self.position = start_of_tail(&mut self.file, lines)?;
        Ok(())
    }

    /// Reads into `block`; returns the number of bytes, 0 at the end.
    pub(super) fn read(&mut self, block: &mut [u8]) -> io::Result<usize> {
        Ok(self.read_with(block, ReadWriteFlags::empty())?)
    }

    /// Like [`Self::read`], but fails with `WouldBlock` if the data is not cached or the file
    /// system does not support the check.
    pub(super) fn read_cached(&mut self, block: &mut [u8]) -> io::Result<usize> {
        match self.read_with(block, ReadWriteFlags::NOWAIT) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Err(Errno::AGAIN.into()),
            read => Ok(read?),
        }
    }

    fn read_with(&mut self, block: &mut [u8], flags: ReadWriteFlags) -> rustix::io::Result<usize> {
        let read = retry_on_intr(|| {
            let mut block = [IoSliceMut::new(block)];
            preadv2(&self.file, &mut block, self.position, flags)
        })?;
        self.position += read as u64;
        Ok(read)
    }

    /// True for the same file, which was truncated then.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.id == other.id
    }

    /// State for finding the next file.
    pub(super) fn read_so_far(&self) -> io::Result<ReadSoFar> {
        Ok(ReadSoFar {
            id: self.id,
            position: self.position,
            written: written(&self.file)?,
        })
    }
}

/// A file that was read to its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadSoFar {
    id: (u64, u64),
    position: u64,
    /// Modification time in nanoseconds.
    written: i128,
}

impl ReadSoFar {
    /// The next file: the oldest uncompressed one that was rotated after it, or the current log.
    /// None during a rotation; a truncated file follows itself.
    pub(super) fn next(&self, source: &LogSource) -> io::Result<Option<LogFile>> {
        let Some(now) = LogFile::open(source)? else {
            return Ok(None);
        };
        if now.id == self.id {
            let truncated = now.file.metadata()?.len() < self.position;
            return Ok(truncated.then_some(now));
        }
        Ok(Some(self.skipped(source)?.unwrap_or(now)))
    }

    /// A rotated file between this one and the current log, which a slow reader has missed.
    fn skipped(&self, source: &LogSource) -> io::Result<Option<LogFile>> {
        let directory = directory_beneath(source)?;
        let name = source.path.file_name().unwrap_or_default();
        let mut found: Option<Vec<u8>> = None;
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let other = entry.file_name().to_bytes();
            if !is_rotated(name.as_bytes(), other) {
                continue;
            }
            let Ok(stat) = statat(&directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let written =
                i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec);
            let later = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
                && (stat.st_dev, stat.st_ino) != self.id
                && written > self.written;
            // names sort by the time of the rotation
            if later && found.as_deref().is_none_or(|found| other < found) {
                found = Some(other.to_vec());
            }
        }
        let Some(found) = found else {
            return Ok(None);
        };
        LogFile::open(&LogSource {
            root: source.root.clone(),
            path: source.path.with_file_name(OsStr::from_bytes(&found)),
        })
    }
}

/// True if `other` is an uncompressed rotated file of `name`: `0.log.20260101-000000`.
fn is_rotated(name: &[u8], other: &[u8]) -> bool {
    let stamp = other
        .strip_prefix(name)
        .and_then(|it| it.strip_prefix(b"."));
    stamp.is_some_and(|stamp| {
        stamp.len() == "20260101-000000".len()
            && stamp.iter().all(|b| b.is_ascii_digit() || *b == b'-')
    })
}

fn written(file: &File) -> io::Result<i128> {
    let metadata = file.metadata()?;
    Ok(i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec()))
}

/// Opens `path` below `root` for reading. The root may be a link, nothing below it may. A pipe is
/// opened without waiting for its writer.
///
/// # Errors
/// The path is not below `root`, contains a link, or cannot be opened.
pub fn open_beneath(root: &Path, path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    beneath(root, path, flags).map(File::from)
}

/// The directory of a log.
pub(super) fn directory_beneath(source: &LogSource) -> io::Result<OwnedFd> {
    let directory = source.path.parent().unwrap_or(&source.root);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    beneath(&source.root, directory, flags)
}

fn beneath(root: &Path, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let below = path.strip_prefix(root).map_err(|_| {
        io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("not below {}", root.display()),
        )
    })?;
    let below = match below.as_os_str().is_empty() {
        true => Path::new("."),
        false => below,
    };
    let root = openat(
        CWD,
        root,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match openat2(&root, below, flags, Mode::empty(), resolve) {
        Ok(fd) => Ok(fd),
        Err(Errno::LOOP) => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "a link in the path",
        )),
        Err(error) => Err(error.into()),
    }
}

/// Offset at which the last `lines` lines begin, found from the end.
fn start_of_tail(file: &mut File, lines: u64) -> io::Result<u64> {
    let end = file.metadata()?.len();
    if lines == 0 {
        return Ok(end);
    }
    let mut block = vec![0; BLOCK_BYTES];
    let mut found = 0;
    let mut start = end;
    while start > 0 {
        let from = start.saturating_sub(BLOCK_BYTES as u64);
        let length = usize::try_from(start - from).unwrap_or(BLOCK_BYTES);
        let part = &mut block[..length];
        file.seek(SeekFrom::Start(from))?;
        file.read_exact(part)?;
        for at in memchr::memrchr_iter(b'\n', part) {
            let after = from + at as u64 + 1;
            // the newline at the end of the file ends its last line
            if after == end {
                continue;
            }
            found += 1;
            if found == lines {
                return Ok(after);
            }
        }
        start = from;
    }
    Ok(0)
}
