//! A disk of state files in memory, which survives the agent.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Fault of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskFault {
    /// Writes fail: the disk is full.
    NoSpace,
    /// Writes fail with an I/O error.
    Io,
    /// Writes succeed, and a crash of the host reverts them.
    Lost,
    /// Writes succeed, and after a crash of the host the file has only a part.
    Torn,
}

/// Files by path; clones share them.
#[derive(Clone, Debug, Default)]
pub struct FakeStateDisk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<PathBuf, Vec<u8>>,
    /// What a crash of the host changes: the content after it, or no file.
    at_crash: BTreeMap<PathBuf, Option<Vec<u8>>>,
    fault: Option<DiskFault>,
}

impl FakeStateDisk {
    /// Sets the fault of further writes.
    pub fn set_fault(&self, fault: Option<DiskFault>) {
        self.lock().fault = fault;
    }

    /// The host crashes.
    pub fn crash(&self) {
        let mut state = self.lock();
        for (path, content) in std::mem::take(&mut state.at_crash) {
            match content {
                Some(content) => state.files.insert(path, content),
                None => state.files.remove(&path),
            };
        }
    }

    /// Returns the content of the file with this name.
    pub fn file(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.lock();
        let mut files = state.files.iter();
        let found = files.find(|(path, _)| path.file_name().is_some_and(|it| it == name));
        found.map(|(_, content)| content.clone())
    }

    /// Changes the content of the file with this name; `None` removes it.
    pub fn rewrite(&self, name: &str, change: impl FnOnce(&[u8]) -> Option<Vec<u8>>) {
        let mut state = self.lock();
        let found = state
            .files
            .iter_mut()
            .find(|(path, _)| path.file_name().is_some_and(|it| it == name));
        let Some((path, content)) = found else {
            return;
        };
        match change(content) {
            Some(changed) => *content = changed,
            None => {
                let path = path.clone();
                state.files.remove(&path);
            }
        }
    }

    pub(crate) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let found = self.lock().files.get(path).cloned();
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(crate) fn replace(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let mut state = self.lock();
        let failure = match state.fault {
            Some(DiskFault::NoSpace) => Some(io::ErrorKind::StorageFull.into()),
            Some(DiskFault::Io) => Some(io::Error::other("input/output error")),
            Some(DiskFault::Lost | DiskFault::Torn) | None => None,
        };
        if let Some(error) = failure {
            return Err(error);
        }
        let path = path.to_owned();
        match state.fault {
            Some(DiskFault::Torn) => {
                let part = content.get(..content.len() / 2).unwrap_or_default();
                state.at_crash.insert(path.clone(), Some(part.to_owned()));
            }
            Some(DiskFault::Lost) => {
                let durable = state.files.get(&path).cloned();
                state.at_crash.entry(path.clone()).or_insert(durable);
            }
            _ => {
                state.at_crash.remove(&path);
            }
        }
        state.files.insert(path, content.to_owned());
        Ok(())
    }

    pub(crate) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.lock();
        let content = state.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.files.insert(to.to_owned(), content);
        Ok(())
    }

    pub(crate) fn remove(&self, path: &Path) -> io::Result<()> {
        let removed = self.lock().files.remove(path);
        removed
            .map(drop)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(crate) fn exists(&self, path: &Path) -> bool {
        self.lock().files.contains_key(path)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
