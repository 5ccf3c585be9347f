//! Port to the kernel's cgroup file system.

use std::fmt::Debug;
use std::io;

/// The hierarchies of cgroups. Paths begin with a slash at the root of a hierarchy.
///
/// cgroup v1 has a hierarchy for each controller or group of controllers; v2 has one, with an empty
/// name. A missing cgroup is an error of kind `NotFound` unless stated otherwise.
pub trait CgroupTree: Send + Sync + Debug + 'static {
    /// True for cgroup v2.
    fn unified(&self) -> bool;
    /// Names of the hierarchies.
    fn hierarchies(&self) -> Vec<String>;
    /// The hierarchy of a controller; `None` if it is not available.
    fn hierarchy_of(&self, controller: &str) -> Option<String>;
    /// Creates a cgroup in an existing parent, ready for children; false if it exists.
    fn make(&self, hierarchy: &str, path: &str) -> io::Result<bool>;
    /// True if the cgroup exists.
    fn exists(&self, hierarchy: &str, path: &str) -> bool;
    /// Writes a file of a cgroup.
    fn write(&self, hierarchy: &str, path: &str, file: &str, content: &str) -> io::Result<()>;
    /// Reads a file of a cgroup.
    fn read(&self, hierarchy: &str, path: &str, file: &str) -> io::Result<String>;
    /// Names of the direct children; empty if the cgroup does not exist.
    fn children(&self, hierarchy: &str, path: &str) -> io::Result<Vec<String>>;
    /// PIDs directly in a cgroup; empty if it does not exist.
    fn processes(&self, hierarchy: &str, path: &str) -> io::Result<Vec<i32>>;
    /// Removes a cgroup without children and processes. Succeeds if it does not exist.
    fn remove(&self, hierarchy: &str, path: &str) -> io::Result<()>;
    /// Sends SIGKILL. Succeeds if the process does not exist.
    fn kill(&self, pid: i32);
}
