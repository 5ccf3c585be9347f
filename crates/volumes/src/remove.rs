//! Removal of a directory tree that a pod has written to.
//!
//! Works only with directory descriptors: links are removed, never followed, and a mount stops the
//! removal with its content untouched (`RESOLVE_NO_XDEV`). A tree of any depth needs at most
//! [`MAX_OPEN`] descriptors: deeper directories are first moved to the top.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, openat, openat2,
    renameat_with, unlinkat,
};
use rustix::io::Errno;

use crate::error::RemoveError;

/// Max open directories.
const MAX_OPEN: usize = 32;

/// Removes a file or a tree. A missing path is not an error. If entries fail, the others are removed
/// and the first error is returned.
pub fn remove_tree(path: &Path) -> Result<(), RemoveError> {
    let io = |source: Errno| RemoveError::Io {
        path: path.to_owned(),
        source: source.into(),
    };
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io(Errno::INVAL));
    };
    let parent = match openat(
        CWD,
        parent,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    ) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(io(error)),
    };
    let name = CString::new(name.as_encoded_bytes()).map_err(|_| io(Errno::INVAL))?;
    let mut removal = Removal {
        path: path.to_owned(),
        moved: 0,
        first_error: None,
    };
    removal.run(&parent, name);
    removal.first_error.map_or(Ok(()), Err)
}

struct Removal {
    path: PathBuf,
    /// Number of directories moved to the top; makes their names unique.
    moved: u64,
    first_error: Option<RemoveError>,
}

/// A directory on the way down.
struct Frame {
    fd: OwnedFd,
    entries: Dir,
    name: CString,
    /// Entries removed or moved away since the directory was (re)read.
    progress: bool,
    /// An entry could not be removed, so the directory cannot be either.
    blocked: bool,
}

impl Removal {
    fn run(&mut self, parent: &OwnedFd, name: CString) {
        let mut stack: Vec<Frame> = Vec::new();
        match self.enter(parent, name, &[]) {
            Some(frame) => stack.push(frame),
            None => return,
        }
        while let Some(frame) = stack.last_mut() {
            match frame.entries.read() {
                Some(Ok(entry)) => {
                    let name = entry.file_name().to_owned();
                    if matches!(name.to_bytes(), b"." | b"..") {
                        continue;
                    }
                    self.remove_entry(&mut stack, name, entry.file_type());
                }
                Some(Err(error)) => {
                    frame.blocked = true;
                    self.fail(&stack, None, error);
                }
                None => self.leave(parent, &mut stack),
            }
        }
    }

    fn remove_entry(&mut self, stack: &mut Vec<Frame>, name: CString, kind: FileType) {
        let depth = stack.len();
        let (Some(top), Some(frame)) = (stack.first(), stack.last()) else {
            return;
        };
        if kind != FileType::Directory {
            match unlinkat(&frame.fd, &name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => return progress(stack),
                // the type was unknown or has changed
                Err(Errno::ISDIR) => {}
                Err(error) => return self.block(stack, &name, error),
            }
        }
        if depth >= MAX_OPEN {
            match self.move_up(&top.fd, &frame.fd, &name) {
                Ok(()) => {
                    // the top is not empty and is read again
                    if let Some(top) = stack.first_mut() {
                        top.progress = true;
                    }
                    progress(stack);
                }
                Err(error) => self.block(stack, &name, error),
            }
            return;
        }
        let fd = rustix::io::dup(&frame.fd);
        match fd {
            Ok(fd) => match self.enter(&fd, name, stack) {
                Some(next) => stack.push(next),
                None => {
                    if let Some(frame) = stack.last_mut() {
                        frame.blocked |= self.first_error.is_some();
                        frame.progress = true;
                    }
                }
            },
            Err(error) => self.block(stack, &name, error),
        }
    }

    fn move_up(&mut self, top: &OwnedFd, from: &OwnedFd, name: &CString) -> Result<(), Errno> {
        loop {
            self.moved += 1;
            let up = format!(".windlass-removing-{}", self.moved);
            match renameat_with(from, name, top, &up, RenameFlags::NOREPLACE) {
                // left by an interrupted removal: use the next number
                Err(Errno::EXIST) => {}
                result => return result,
            }
        }
    }

    /// Opens a directory; removes any other file and returns `None`.
    fn enter(&mut self, parent: &OwnedFd, name: CString, stack: &[Frame]) -> Option<Frame> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH
            | ResolveFlags::NO_SYMLINKS
            | ResolveFlags::NO_MAGICLINKS
            | ResolveFlags::NO_XDEV;
        let opened = openat2(parent, &name, flags, Mode::empty(), resolve)
            .and_then(|fd| Dir::read_from(&fd).map(|entries| (fd, entries)));
        match opened {
            Ok((fd, entries)) => Some(Frame {
                fd,
                entries,
                name,
                progress: false,
                blocked: false,
            }),
            Err(Errno::NOENT) => None,
            Err(Errno::NOTDIR | Errno::LOOP) => {
                match unlinkat(parent, &name, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(error) => self.fail(stack, Some(&name), error),
                }
                None
            }
            Err(error) => {
                self.fail(stack, Some(&name), error);
                None
            }
        }
    }

    /// Removes the emptied directory at the top of the stack. If it is not empty although entries were
    /// removed, it is read again: directories were moved into it.
    fn leave(&mut self, root_parent: &OwnedFd, stack: &mut Vec<Frame>) {
        let Some(mut frame) = stack.pop() else {
            return;
        };
        let parent = stack.last().map_or(root_parent, |above| &above.fd);
        let result = unlinkat(parent, &frame.name, AtFlags::REMOVEDIR);
        match result {
            Ok(()) | Err(Errno::NOENT) => progress(stack),
            Err(Errno::NOTEMPTY | Errno::EXIST) if frame.progress && !frame.blocked => {
                frame.progress = false;
                frame.entries.rewind();
                stack.push(frame);
            }
            Err(error) => {
                if let Some(above) = stack.last_mut() {
                    above.blocked = true;
                }
                if !frame.blocked {
                    self.fail(stack, Some(&frame.name), error);
                }
            }
        }
    }

    fn block(&mut self, stack: &mut [Frame], name: &CString, error: Errno) {
        if let Some(frame) = stack.last_mut() {
            frame.blocked = true;
        }
        self.fail(stack, Some(name), error);
    }

    fn fail(&mut self, stack: &[Frame], name: Option<&CString>, error: Errno) {
        if self.first_error.is_some() {
            return;
        }
        let mut path = self.path.clone();
        let below = stack.iter().skip(1).map(|frame| &frame.name);
        // the path already names the top
        let last = name.filter(|_| !stack.is_empty());
        for part in below.chain(last) {
            path.push(part.to_string_lossy().as_ref());
        }
        self.first_error = Some(match error {
            Errno::XDEV | Errno::BUSY => RemoveError::Mounted { path },
            error => RemoveError::Io {
                path,
                source: io::Error::from(error),
            },
        });
    }
}

fn progress(stack: &mut [Frame]) {
    if let Some(frame) = stack.last_mut() {
        frame.progress = true;
    }
}
