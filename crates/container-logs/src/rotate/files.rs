//! File operations of one rotation, relative to the open log directory: a pod that swaps
//! directories or creates links cannot affect files of the node.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;

use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, fstat, openat, renameat, renameat_with,
    statat, unlinkat,
};
use rustix::io::Errno;
use tokio_util::sync::CancellationToken;
use windlass_pod_lifecycle::log_rotation::{COMPRESSED, UNFINISHED, last_of, older_of, rotation};
use windlass_types::Timestamp;

use super::writes::WriteWatches;
use crate::file::directory_beneath;
use crate::{BLOCK_BYTES, LogSource};

/// Size of a log, `None` if it does not exist, and the watch of its next write.
pub(super) fn check(
    source: &LogSource,
    watches: &WriteWatches,
) -> io::Result<(Option<u64>, Option<i32>)> {
    let Some(directory) = directory_if_any(source)? else {
        return Ok((None, None));
    };
    let name = name_of(source)?;
    // before the size: a write in between is noticed
    let watch = watches.add(&directory, name);
    Ok((size_in(&directory, name)?, watch))
}

/// Removes excess files, and renames the current one. Returns the files to compress. `compresses`:
/// a compression is in progress, whose unfinished file stays.
///
/// # Errors
/// Also at shutdown, before the rename: the runtime would not reopen the log.
pub(super) fn rotate(
    source: &LogSource,
    (max_files, now): (usize, Timestamp),
    compresses: bool,
    shutdown: &CancellationToken,
) -> io::Result<(Renamed, Vec<String>)> {
    let directory = directory_beneath(source)?;
    let log = name_of(source)?;
    let names = names_in(&directory)?;
    let plan = rotation(log, names.iter().map(String::as_str), max_files, now);
    tracing::debug!(path = %source.path.display(), %plan, "rotating container log");
    // a failed removal must not block the rotation; the next one retries
    let stays = |name: &String| compresses && name.ends_with(UNFINISHED);
    for name in plan.remove.iter().filter(|name| !stays(name)) {
        if let Err(error) = remove(&directory, name) {
            let path = source.path.with_file_name(name);
            tracing::warn!(path = %path.display(), %error, "removing rotated container log failed");
        }
    }
    check_shutdown(shutdown)?;
    let renamed = Renamed {
        log: log.to_owned(),
        name: plan.rename,
        directory,
    };
    renamed.exchange(&renamed.log, &renamed.name)?;
    Ok((renamed, plan.compress))
}

/// Compresses the rotated files but the newest. A file that cannot be compressed stays.
pub(super) fn compress_older(source: &LogSource, shutdown: &CancellationToken) -> io::Result<()> {
    let directory = directory_beneath(source)?;
    let names = names_in(&directory)?;
    for name in older_of(name_of(source)?, names.iter().map(String::as_str)) {
        match compress(&directory, name, shutdown) {
            // removed by a rotation
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let path = source.path.with_file_name(name);
                tracing::warn!(path = %path.display(), %error, "compressing container log failed");
            }
            Ok(()) => {}
        }
    }
    Ok(())
}

/// Restores the log of an exited container after an interrupted rotation.
pub(super) fn give_back(source: &LogSource) -> io::Result<()> {
    let Some(directory) = directory_if_any(source)? else {
        return Ok(());
    };
    let log = name_of(source)?;
    let names = names_in(&directory)?;
    let Some(name) = last_of(log, names.iter().map(String::as_str)) else {
        return Ok(());
    };
    let renamed = Renamed {
        log: log.to_owned(),
        name: name.to_owned(),
        directory,
    };
    renamed.undo()?;
    let path = source.path.display();
    tracing::info!(%path, name, "interrupted container log rotation undone");
    Ok(())
}

/// The current log after its rename.
#[derive(Debug)]
pub(super) struct Renamed {
    directory: OwnedFd,
    log: String,
    name: String,
}

impl Renamed {
    /// Undoes the rename, unless the runtime has opened a new file.
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

/// Compresses a file to a temporary name first, so that a compressed file is always complete.
fn compress(directory: &OwnedFd, name: &str, shutdown: &CancellationToken) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut log = File::from(openat(directory, name, flags, Mode::empty())?);
    let stat = fstat(&log)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("not a regular file"));
    }
    let unfinished = format!("{name}{UNFINISHED}");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(directory, &unfinished, flags, Mode::from(stat.st_mode))?;
    let written = write_compressed(&mut log, File::from(file), shutdown).and_then(|()| {
        // a rotation may have removed it
        size_in(directory, name)?.ok_or(Errno::NOENT)?;
        let compressed = format!("{name}{COMPRESSED}");
        Ok(renameat(directory, &unfinished, directory, compressed)?)
    });
    if written.is_err() {
        remove(directory, &unfinished)?;
        return written;
    }
    remove(directory, name)
}

fn write_compressed(log: &mut File, file: File, shutdown: &CancellationToken) -> io::Result<()> {
    let mut encoder = GzEncoder::new(file, Compression::default());
    while io::copy(&mut log.by_ref().take(BLOCK_BYTES as u64), &mut encoder)? > 0 {
        check_shutdown(shutdown)?;
    }
    // before the removal of the log: a power failure must leave one of them
    encoder.finish()?.sync_data()
}

fn check_shutdown(shutdown: &CancellationToken) -> io::Result<()> {
    match shutdown.is_cancelled() {
        true => Err(io::Error::other("the agent is shutting down")),
        false => Ok(()),
    }
}

fn remove(directory: &OwnedFd, name: &str) -> io::Result<()> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Names of the regular files. Names that are not UTF-8 are ignored.
fn names_in(directory: &OwnedFd) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else {
            continue;
        };
        if let Ok(Some(_)) = size_in(directory, name) {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

fn size_in(directory: &OwnedFd, name: &str) -> io::Result<Option<u64>> {
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
            Ok(Some(u64::try_from(stat.st_size).unwrap_or_default()))
        }
        Ok(_) => Err(io::Error::other("not a regular file")),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn directory_if_any(source: &LogSource) -> io::Result<Option<OwnedFd>> {
    match directory_beneath(source) {
        Ok(directory) => Ok(Some(directory)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn name_of(source: &LogSource) -> io::Result<&str> {
    let name = source.path.file_name().and_then(|name| name.to_str());
    name.ok_or_else(|| io::Error::other("the log has no name"))
}
