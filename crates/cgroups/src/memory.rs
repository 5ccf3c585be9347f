//! In-memory cgroup file system for simulations and tests.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::tree::CgroupTree;

/// Hierarchy and path.
type CgroupKey = (String, String);

/// Implementation of [`CgroupTree`] in memory. Clones share the content.
#[derive(Clone, Debug)]
pub struct MemoryTree {
    unified: bool,
    hierarchies: Vec<String>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    cgroups: BTreeSet<CgroupKey>,
    /// Last content of each file.
    files: BTreeMap<String, String>,
    writes: usize,
    processes: BTreeMap<i32, CgroupKey>,
    /// Processes that survive SIGKILL.
    immortal: BTreeSet<i32>,
    /// Hierarchies that reject changes.
    read_only: BTreeSet<String>,
    /// Names of files that cgroups do not have.
    missing: BTreeSet<String>,
}

impl MemoryTree {
    /// cgroup v1 with one hierarchy for each of these controllers.
    pub fn v1(controllers: &[&str]) -> Self {
        Self {
            unified: false,
            hierarchies: controllers.iter().map(|c| (*c).to_owned()).collect(),
            state: Arc::default(),
        }
    }

    /// cgroup v2 with every controller.
    pub fn v2() -> Self {
        Self {
            unified: true,
            hierarchies: vec![String::new()],
            state: Arc::default(),
        }
    }

    /// Makes a hierarchy reject changes.
    pub fn set_read_only(&self, hierarchy: &str) {
        self.state.lock().read_only.insert(hierarchy.to_owned());
    }

    /// Makes a hierarchy accept changes again.
    pub fn set_writable(&self, hierarchy: &str) {
        self.state.lock().read_only.remove(hierarchy);
    }

    /// Removes a file from every cgroup, as a controller that is not delegated.
    #[cfg(test)]
    pub(crate) fn lose_file(&self, name: &str) {
        self.state.lock().missing.insert(name.to_owned());
    }

    /// Puts a process into a cgroup; creates the cgroup and its parents if missing.
    pub fn enter(&self, hierarchy: &str, path: &str, pid: i32, immortal: bool) {
        let mut state = self.state.lock();
        let ends = path.match_indices('/').skip(1).map(|(end, _)| end);
        for end in ends.chain([path.len()]) {
            let key = (hierarchy.to_owned(), path[..end].to_owned());
            state.cgroups.insert(key);
        }
        let key = (hierarchy.to_owned(), path.to_owned());
        state.processes.insert(pid, key);
        if immortal {
            state.immortal.insert(pid);
        }
    }

    /// Removes a cgroup with its content, as another program might.
    pub fn lose(&self, path: &str) {
        let mut state = self.state.lock();
        let below = format!("{path}/");
        let is_in = |key: &CgroupKey| key.1 == path || key.1.starts_with(&below);
        state.cgroups.retain(|key| !is_in(key));
        state.processes.retain(|_, key| !is_in(key));
    }

    /// Every cgroup, `hierarchy:path`.
    pub fn cgroups(&self) -> Vec<String> {
        let state = self.state.lock();
        let keys = state.cgroups.iter();
        keys.map(|(h, path)| format!("{h}:{path}")).collect()
    }

    /// Content of a file, by `path/file`.
    pub fn file(&self, path: &str) -> Option<String> {
        self.state.lock().files.get(path).cloned()
    }

    /// Number of writes.
    pub fn writes(&self) -> usize {
        self.state.lock().writes
    }

    fn change(&self, hierarchy: &str) -> io::Result<MutexGuard<'_, State>> {
        let state = self.state.lock();
        if state.read_only.contains(hierarchy) {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        Ok(state)
    }
}

fn key(hierarchy: &str, path: &str) -> CgroupKey {
    (hierarchy.to_owned(), path.to_owned())
}

impl CgroupTree for MemoryTree {
    fn unified(&self) -> bool {
        self.unified
    }

    fn hierarchies(&self) -> Vec<String> {
        self.hierarchies.clone()
    }

    fn hierarchy_of(&self, controller: &str) -> Option<String> {
        if self.unified {
            return Some(String::new());
        }
        self.hierarchies.iter().find(|h| *h == controller).cloned()
    }

    fn make(&self, hierarchy: &str, path: &str) -> io::Result<bool> {
        let mut state = self.change(hierarchy)?;
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        if !parent.is_empty() && !state.cgroups.contains(&key(hierarchy, parent)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(state.cgroups.insert(key(hierarchy, path)))
    }

    fn exists(&self, hierarchy: &str, path: &str) -> bool {
        self.state.lock().cgroups.contains(&key(hierarchy, path))
    }

    fn write(&self, hierarchy: &str, path: &str, file: &str, content: &str) -> io::Result<()> {
        let mut state = self.change(hierarchy)?;
        if !state.cgroups.contains(&key(hierarchy, path)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if state.missing.contains(file) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let file = format!("{path}/{file}");
        state.files.insert(file, content.to_owned());
        state.writes += 1;
        Ok(())
    }

    fn read(&self, _: &str, path: &str, file: &str) -> io::Result<String> {
        let content = self.file(&format!("{path}/{file}"));
        content.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn children(&self, hierarchy: &str, path: &str) -> io::Result<Vec<String>> {
        let state = self.state.lock();
        let below = state.cgroups.iter().filter_map(|(h, child)| {
            let name = child.strip_prefix(path)?.strip_prefix('/')?;
            (h == hierarchy && !name.contains('/')).then(|| name.to_owned())
        });
        Ok(below.collect())
    }

    fn processes(&self, hierarchy: &str, path: &str) -> io::Result<Vec<i32>> {
        let state = self.state.lock();
        let here = key(hierarchy, path);
        let inside = state.processes.iter().filter(|(_, at)| **at == here);
        Ok(inside.map(|(pid, _)| *pid).collect())
    }

    fn remove(&self, hierarchy: &str, path: &str) -> io::Result<()> {
        let here = key(hierarchy, path);
        let below = format!("{path}/");
        let mut state = self.change(hierarchy)?;
        let children = state.cgroups.iter();
        let has_children = children.filter(|(h, _)| h == hierarchy);
        let has_children = { has_children }.any(|(_, child)| child.starts_with(&below));
        if has_children || state.processes.values().any(|at| *at == here) {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        state.cgroups.remove(&here);
        let file = format!("{path}/");
        state.files.retain(|name, _| !name.starts_with(&file));
        Ok(())
    }

    fn kill(&self, pid: i32) {
        let mut state = self.state.lock();
        if !state.immortal.contains(&pid) {
            state.processes.remove(&pid);
        }
    }
}
