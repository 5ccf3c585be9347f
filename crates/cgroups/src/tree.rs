//! Port to the kernel's cgroup file system.

use std::fmt::Debug;
use std::io;

/// The hierarchies of cgroups. Paths begin with a slash at the root of a hierarchy.
///
/// cgroup v1 has a hierarchy for each controller or group of controllers; v2 has one, with the
/// empty name. What does not exist is an error of kind `NotFound`, except where said otherwise.
pub trait CgroupTree: Send + Sync + Debug + 'static {
    /// True for cgroup v2.
    fn unified(&self) -> bool;
    /// Names of the hierarchies, each once.
    fn hierarchies(&self) -> Vec<String>;
    /// The hierarchy that a controller is in; `None` if it is not available.
    fn hierarchy_of(&self, controller: &str) -> Option<String>;
    /// Makes a cgroup whose parent exists, ready to hold others; true if it was not there.
    fn make(&self, hierarchy: &str, path: &str) -> io::Result<bool>;
    /// True if there is such a cgroup.
    fn exists(&self, hierarchy: &str, path: &str) -> bool;
    /// Writes a file of a cgroup.
    fn write(&self, hierarchy: &str, path: &str, file: &str, content: &str) -> io::Result<()>;
    /// Names of the cgroups directly below; none if there is no such cgroup.
    fn children(&self, hierarchy: &str, path: &str) -> io::Result<Vec<String>>;
    /// PIDs directly in a cgroup; none if there is no such cgroup.
    fn processes(&self, hierarchy: &str, path: &str) -> io::Result<Vec<i32>>;
    /// Removes a cgroup without children and processes; fine if there is none.
    fn remove(&self, hierarchy: &str, path: &str) -> io::Result<()>;
    /// Sends SIGKILL; fine if there is no such process.
    fn kill(&self, pid: i32);
}
