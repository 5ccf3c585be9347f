//! The mount table of this process, `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountPoint {
    /// Where it is mounted.
    pub path: PathBuf,
    /// File system type, `tmpfs` for a memory volume.
    pub fs_type: String,
}

/// Mounts at or below a directory, in the order they were made.
pub fn mounts_beneath(dir: &Path) -> io::Result<Vec<MountPoint>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    // the kernel writes resolved paths, so a root directory behind a symlink is resolved too
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    Ok(parse(&table)
        .filter(|mount| mount.path.starts_with(&dir))
        .collect())
}

/// Lines that are not understood are left out: the format only ever gained fields.
pub(crate) fn parse(table: &[u8]) -> impl Iterator<Item = MountPoint> {
    table.split(|b| *b == b'\n').filter_map(|line| {
        let mut fields = line.split(|b| *b == b' ');
        let path = unescape(fields.nth(4)?);
        // optional fields end with a lone dash
        let fs_type = fields.skip_while(|f| *f != b"-").nth(1)?;
        Some(MountPoint {
            path: PathBuf::from(OsString::from_vec(path)),
            fs_type: String::from_utf8_lossy(fs_type).into_owned(),
        })
    })
}

/// The kernel writes space, tab, newline and backslash as a backslash and three octal digits.
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
