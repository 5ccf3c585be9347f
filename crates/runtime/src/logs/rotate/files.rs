//! The files of one rotation, by the open directory of the log: a pod that exchanges directories
//! or plants links meanwhile has no file of the node renamed, compressed or removed.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};

use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, fstat, openat, renameat, renameat_with,
    statat, unlinkat,
};
use rustix::io::Errno;
use tokio_util::sync::CancellationToken;
use windlass_core::log_rotation::{COMPRESSED, UNFINISHED, rotation};
use windlass_types::Timestamp;

use crate::logs::file::directory_beneath;
use crate::logs::{BLOCK, LogSource};

/// The size of a log; `None` if there is no such file.
pub(super) fn size(source: &LogSource) -> io::Result<Option<u64>> {
    let directory = match directory_beneath(source) {
        Ok(directory) => directory,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match statat(&directory, name_of(source)?, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
            Ok(Some(u64::try_from(stat.st_size).unwrap_or_default()))
        }
        Ok(_) => Err(io::Error::other("not a regular file")),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Makes room, and gives the present file its next name.
///
/// # Errors
/// Also that the agent ends: compressing a long log is not waited for.
pub(super) fn rotate(
    source: &LogSource,
    (max_files, now): (usize, Timestamp),
    ends: &CancellationToken,
) -> io::Result<Renamed> {
    let directory = directory_beneath(source)?;
    let log = name_of(source)?;
    let names = names_in(&directory)?;
    let plan = rotation(log, names.iter().map(String::as_str), max_files, now);
    tracing::debug!(path = %source.path.display(), %plan, "container log is rotated");
    for name in &plan.remove {
        remove(&directory, name)?;
    }
    for name in &plan.compress {
        // a full disk must not be what keeps the log growing: the next rotation tries again
        if let Err(error) = compress(&directory, name, ends) {
            if ends.is_cancelled() {
                return Err(error);
            }
            let path = source.path.with_file_name(name);
            tracing::warn!(path = %path.display(), %error, "container log not compressed");
        }
    }
    let renamed = Renamed {
        log: log.to_owned(),
        name: plan.rename,
        directory,
    };
    renamed.exchange(&renamed.log, &renamed.name)?;
    Ok(renamed)
}

/// A present file that has its next name already.
#[derive(Debug)]
pub(super) struct Renamed {
    directory: OwnedFd,
    log: String,
    name: String,
}

impl Renamed {
    /// Gives the file its first name back, unless the runtime has opened a new one.
    pub(super) fn undo(&self) -> io::Result<()> {
        match self.exchange(&self.name, &self.log) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    }

    fn exchange(&self, from: &str, to: &str) -> io::Result<()> {
        let directory = &self.directory;
        renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE)?;
        Ok(())
    }
}

/// Writes the compressed file under another name first: what has the suffix is whole.
fn compress(directory: &OwnedFd, name: &str, ends: &CancellationToken) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut log = File::from(openat(directory, name, flags, Mode::empty())?);
    let stat = fstat(&log)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("not a regular file"));
    }
    let unfinished = format!("{name}{UNFINISHED}");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(directory, &unfinished, flags, Mode::from(stat.st_mode))?;
    let written = write_compressed(&mut log, File::from(file), ends).and_then(|()| {
        let compressed = format!("{name}{COMPRESSED}");
        Ok(renameat(directory, &unfinished, directory, compressed)?)
    });
    if written.is_err() {
        remove(directory, &unfinished)?;
        return written;
    }
    remove(directory, name)
}

fn write_compressed(log: &mut File, file: File, ends: &CancellationToken) -> io::Result<()> {
    let mut encoder = GzEncoder::new(file, Compression::default());
    while io::copy(&mut log.by_ref().take(BLOCK as u64), &mut encoder)? > 0 {
        if ends.is_cancelled() {
            return Err(io::Error::other("the agent ends"));
        }
    }
    // the log goes next: a power cut must not leave neither
    encoder.finish()?.sync_data()
}

fn remove(directory: &OwnedFd, name: &str) -> io::Result<()> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Names that are no UTF-8 are none of ours.
fn names_in(directory: impl AsFd) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        if let Ok(name) = entry?.file_name().to_str() {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

fn name_of(source: &LogSource) -> io::Result<&str> {
    let name = source.path.file_name().and_then(|name| name.to_str());
    name.ok_or_else(|| io::Error::other("the log has no name"))
}
