//! `memory.events` of the containers (cgroup v2), for hosts without access to the kernel log.
//!
//! inotify notifies of new cgroups and of each event, so that an idle host costs nothing. The file
//! counts kills below its cgroup, too. A cgroup that is removed right after the event may be gone
//! before it is read; then the kill is not counted.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::inotify::{
    CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init, remove_watch,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::spawn_blocking;

use crate::events::OomReporter;
use crate::path::is_pod;

/// Interval of attempts to find the cgroup of all pods.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of watches: 250 pods with 15 containers each, and a reserve.
const MAX_WATCHES: usize = 8192;
/// Maximum depth below the cgroup of all pods: QoS class, pod, container.
const MAX_DEPTH: usize = 3;
/// Size of `memory.events` with a reserve for new counters.
const MAX_FILE_BYTES: usize = 4096;
const FILE: &str = "memory.events";
const DIRECTORY: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::ONLYDIR);

/// A watched cgroup, by the number of its watch.
#[derive(Debug)]
enum Watched {
    /// Cgroup of all pods, a QoS class or a pod: its children are watched.
    Parent { path: PathBuf, depth: usize },
    /// Cgroup of a container, and its kills so far.
    Container { path: PathBuf, kills: u64 },
}

impl Watched {
    fn path(&self) -> &Path {
        match self {
            Self::Parent { path, .. } | Self::Container { path, .. } => path,
        }
    }
}

/// Watches of all containers below a cgroup of all pods. The methods block on cgroupfs.
#[derive(Debug)]
struct Watches {
    inotify: Arc<AsyncFd<OwnedFd>>,
    mount: PathBuf,
    watched: HashMap<i32, Watched>,
}

/// Kills of a container's cgroup since the last event.
type Kills = (String, u64);

/// Counts kills of the containers below `kubepods`, directories below `mount`, of which the first
/// that exists is used. Ends if inotify fails.
pub(crate) async fn follow(
    mount: PathBuf,
    kubepods: Vec<PathBuf>,
    reporter: &OomReporter,
) -> io::Error {
    match try_follow(mount, kubepods, reporter).await {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

async fn try_follow(
    mount: PathBuf,
    kubepods: Vec<PathBuf>,
    reporter: &OomReporter,
) -> io::Result<Infallible> {
    let inotify = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    #[expect(deprecated, reason = "the descriptor of an OwnedFd does not change")]
    let inotify = AsyncFd::with_interest(inotify, Interest::READABLE)?;
    let inotify = Arc::new(inotify);
    let mut watches = Watches {
        inotify: Arc::clone(&inotify),
        mount,
        watched: HashMap::new(),
    };
    loop {
        let (kubepods, begun) = (kubepods.clone(), watches);
        let started = spawn_blocking(move || begun.start(&kubepods));
        let (begun, found) = started.await.map_err(io::Error::other)?;
        watches = begun;
        if found {
            break;
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
    let mut buffer = [MaybeUninit::uninit(); 4096];
    loop {
        inotify.readable().await?.clear_ready();
        let mut changed: Vec<(i32, ReadFlags)> = Vec::new();
        let mut reader = Reader::new(inotify.get_ref(), &mut buffer);
        // ends with EAGAIN; other errors recur with the next read
        while let Ok(event) = reader.next() {
            let event = (event.wd(), event.events());
            if changed.last() != Some(&event) {
                changed.push(event);
            }
        }
        let handled = spawn_blocking(move || watches.handle_all(&changed));
        let (handled, kills) = handled.await.map_err(io::Error::other)?;
        watches = handled;
        for (cgroup, count) in kills {
            tracing::info!(cgroup, kills = count, "OOM kill");
            reporter.count(&cgroup, count);
        }
    }
}

impl Watches {
    /// Watches the first of these cgroups that exists.
    fn start(mut self, kubepods: &[PathBuf]) -> (Self, bool) {
        let found = kubepods.iter().find(|path| path.is_dir());
        if let Some(path) = found {
            self.watch_tree(path, 0);
        }
        (self, found.is_some())
    }

    /// Watches a cgroup and, above containers, its children.
    fn watch_tree(&mut self, path: &Path, depth: usize) {
        if self.watched.len() >= MAX_WATCHES {
            tracing::debug!(path = %path.display(), "too many cgroups, OOM kills not counted");
            return;
        }
        let parent = path.parent().and_then(Path::file_name);
        let in_pod = depth > 1 && parent.is_some_and(|it| is_pod(&it.to_string_lossy()));
        let added = match in_pod {
            true => add_watch(self.inotify.get_ref(), path.join(FILE), WatchFlags::MODIFY),
            false => add_watch(self.inotify.get_ref(), path, DIRECTORY),
        };
        let number = match added {
            Ok(number) => number,
            Err(error) => {
                // removed in between
                tracing::debug!(path = %path.display(), %error, "cgroup not watched");
                return;
            }
        };
        let path = path.to_owned();
        if in_pod {
            let kills = oom_kills(&path).unwrap_or(0);
            self.watched
                .entry(number)
                .or_insert(Watched::Container { path, kills });
            return;
        }
        let children = if depth < MAX_DEPTH {
            directories(&path)
        } else {
            Vec::new()
        };
        self.watched.insert(number, Watched::Parent { path, depth });
        for child in children {
            if !self.watched.values().any(|it| it.path() == child) {
                self.watch_tree(&child, depth + 1);
            }
        }
    }

    fn handle_all(mut self, changed: &[(i32, ReadFlags)]) -> (Self, Vec<Kills>) {
        let events = changed.iter();
        let kills: Vec<Kills> = events
            .filter_map(|(number, flags)| self.handle(*number, *flags))
            .collect();
        (self, kills)
    }

    /// Handles one event; returns new kills.
    fn handle(&mut self, number: i32, flags: ReadFlags) -> Option<Kills> {
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.watch_again();
            return None;
        }
        if flags.contains(ReadFlags::IGNORED) {
            self.watched.remove(&number);
            return None;
        }
        match self.watched.get_mut(&number)? {
            Watched::Container { path, kills } => {
                let now = oom_kills(path)?;
                let more = now.saturating_sub(*kills);
                *kills = now;
                let below = path.strip_prefix(&self.mount).unwrap_or(path);
                (more > 0).then(|| (format!("/{}", below.display()), more))
            }
            Watched::Parent { path, depth } => {
                let (path, depth) = (path.clone(), *depth);
                if flags.contains(ReadFlags::DELETE) {
                    self.forget_removed(&path);
                }
                if flags.contains(ReadFlags::CREATE) {
                    self.watch_tree(&path, depth);
                }
                None
            }
        }
    }

    /// Watches what was created while events were lost.
    fn watch_again(&mut self) {
        let parents = self.watched.values().filter_map(|it| match it {
            Watched::Parent { path, depth } => Some((path.clone(), *depth)),
            Watched::Container { .. } => None,
        });
        let parents: Vec<(PathBuf, usize)> = parents.collect();
        for (path, depth) in parents {
            self.forget_removed(&path);
            self.watch_tree(&path, depth);
        }
    }

    /// Ends the watches of removed children: the kernel keeps those of files of cgroups.
    fn forget_removed(&mut self, parent: &Path) {
        let removed = self.watched.iter().filter(|(_, it)| {
            it.path() != parent && it.path().starts_with(parent) && !it.path().is_dir()
        });
        let removed: Vec<i32> = removed.map(|(number, _)| *number).collect();
        for number in removed {
            // fails if the kernel has removed it
            let _ = remove_watch(self.inotify.get_ref(), number);
            self.watched.remove(&number);
        }
    }
}

/// Directories in a cgroup; empty if it was removed.
fn directories(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let directories = entries.filter(|it| it.file_type().is_ok_and(|it| it.is_dir()));
    directories.map(|it| it.path()).collect()
}

/// Number of killed processes of a cgroup; `None` if it was removed.
fn oom_kills(cgroup: &Path) -> Option<u64> {
    let text = std::fs::read(cgroup.join(FILE)).ok()?;
    parse_oom_kills(&text)
}

/// Parses `oom_kill` of `memory.events`.
fn parse_oom_kills(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text.get(..text.len().min(MAX_FILE_BYTES))?).ok()?;
    let mut lines = text.lines();
    lines.find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oom_kill_is_read_from_memory_events() {
        for (text, expected) in [
            (
                "low 0\nhigh 0\nmax 9\noom 3\noom_kill 2\noom_group_kill 1\n",
                Some(2),
            ),
            ("oom_kill 0", Some(0)),
            ("oom_group_kill 1\n", None),
            ("oom_kill x\n", None),
            ("", None),
        ] {
            assert_eq!(parse_oom_kills(text.as_bytes()), expected, "{text:?}");
        }
        assert_eq!(parse_oom_kills(b"\xff"), None);
    }
}
