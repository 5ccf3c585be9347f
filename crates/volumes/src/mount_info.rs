//! The mount table of this process, `/proc/self/mountinfo`.
//!
//! Reading it accesses no file system, so mounts of lost servers are listed too.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountPoint {
    /// Mount point.
    pub path: PathBuf,
    /// File system type, `tmpfs` for a memory volume.
    pub fs_type: String,
    /// The file system, as `major:minor`.
    pub device: String,
    /// Mounted directory of the file system; `/` unless it is a bind mount.
    pub root: PathBuf,
    /// Options of the mount itself, such as `ro,nosuid`.
    pub options: String,
    /// Whether mounts below it propagate to its peers (`shared`).
    pub shared: bool,
}

/// Mounts at or below a directory, in order of their creation.
pub fn mounts_beneath(dir: &Path) -> io::Result<Vec<MountPoint>> {
    let dir = resolved(dir);
    Ok(table()?
        .into_iter()
        .filter(|mount| mount.path.starts_with(&dir))
        .collect())
}

/// The topmost mount exactly at a path; `None` if there is none.
pub(crate) fn mount_at(dir: &Path) -> io::Result<Option<MountPoint>> {
    let dir = resolved(dir);
    Ok(table()?.into_iter().rfind(|mount| mount.path == dir))
}

/// Other mounts of the same directory (upstream `GetMountRefs`).
pub(crate) fn mounts_of(dir: &Path) -> io::Result<Vec<MountPoint>> {
    let dir = dir.canonicalize()?;
    Ok(same_directory(&table()?, &dir))
}

/// Other mounts of the file system mounted exactly at a path, without accessing it.
pub(crate) fn mounts_like(dir: &Path) -> io::Result<Vec<MountPoint>> {
    let (dir, table) = (resolved(dir), table()?);
    match table.iter().any(|mount| mount.path == dir) {
        true => Ok(same_directory(&table, &dir)),
        false => Ok(Vec::new()),
    }
}

/// Mounts of the same directory as `dir`, a resolved path, at other places.
pub(crate) fn same_directory(table: &[MountPoint], dir: &Path) -> Vec<MountPoint> {
    let above = table.iter().filter(|mount| dir.starts_with(&mount.path));
    // the later of two mounts at one path is visible
    let Some(shown) = above.max_by_key(|mount| mount.path.components().count()) else {
        return Vec::new();
    };
    let below = dir.strip_prefix(&shown.path).unwrap_or(Path::new(""));
    let root = shown.root.join(below);
    let same = |mount: &&MountPoint| {
        mount.device == shown.device && mount.root == root && mount.path != dir
    };
    table.iter().filter(same).cloned().collect()
}

/// The mount that contains `dir`.
pub(crate) fn mount_above(dir: &Path) -> io::Result<Option<MountPoint>> {
    let dir = dir.canonicalize()?;
    let mut above = table()?;
    above.retain(|mount| dir.starts_with(&mount.path));
    // the later of two mounts at one path is visible
    Ok(above
        .into_iter()
        .max_by_key(|mount| mount.path.components().count()))
}

fn table() -> io::Result<Vec<MountPoint>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    Ok(parse(&table).collect())
}

/// Resolves the parent of a path, as the kernel writes resolved paths; not the path itself, which may
/// be a mount of a lost server.
fn resolved(dir: &Path) -> PathBuf {
    let parent = dir.parent().and_then(|parent| parent.canonicalize().ok());
    match (parent, dir.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => dir.to_owned(),
    }
}

/// Parses the table; skips unknown lines.
pub(crate) fn parse(table: &[u8]) -> impl Iterator<Item = MountPoint> {
    table.split(|b| *b == b'\n').filter_map(|line| {
        let mut fields = line.split(|b| *b == b' ').skip(2);
        let device = text(fields.next()?);
        let root = path(fields.next()?);
        let place = path(fields.next()?);
        let options = text(fields.next()?);
        // optional fields end with a lone dash
        let mut shared = false;
        for field in fields.by_ref().take_while(|f| *f != b"-") {
            shared |= field.starts_with(b"shared:");
        }
        let fs_type = text(fields.next()?);
        Some(MountPoint {
            path: place,
            fs_type,
            device,
            root,
            options,
            shared,
        })
    })
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(field).into_owned()
}

fn path(field: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescape(field)))
}

/// Decodes space, tab, newline and backslash, which the kernel writes as octal escapes.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let octal = after.get(..3).and_then(|digits| {
            let text = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(text, 8).ok()
        });
        match octal {
            Some(value) if byte == b'\\' => {
                out.push(value);
                rest = &after[3..];
            }
            _ => {
                out.push(byte);
                rest = after;
            }
        }
    }
    out
}
