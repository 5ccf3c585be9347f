//! Messages of the kernel's OOM killer.
//!
//! Since Linux 5.0 one line has victim and cgroups; before, they are in several lines. Process
//! names and cgroup names may contain anything, also the separators.

use std::fmt;

/// Maximum length of a process name (`TASK_COMM_LEN` without the terminator).
const MAX_PROCESS_NAME: usize = 15;
/// Separator in the line of old kernels.
const LIMIT_OF: &str = " killed as a result of limit of ";

/// A process that the OOM killer killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OomKill {
    /// Process ID, in the host's namespace.
    pub pid: u32,
    /// Name of the process.
    pub process: String,
    /// Its memory cgroup; `None` if the kernel did not log it.
    pub cgroup: Option<String>,
    /// The cgroup whose limit was reached; `None` for the memory of the host.
    pub limit: Option<String>,
}

impl OomKill {
    /// True if the memory of the host was short, not that of a cgroup.
    pub fn is_system(&self) -> bool {
        self.limit.as_deref().is_none_or(|limit| limit == "/")
    }
}

impl fmt::Display for OomKill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.process, self.pid)?;
        if let Some(cgroup) = &self.cgroup {
            write!(f, " of {cgroup}")?;
        }
        match self.limit.as_deref() {
            None | Some("/") => f.write_str(", system"),
            Some(limit) => write!(f, ", limit of {limit}"),
        }
    }
}

/// One line of the OOM killer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OomMessage<'a> {
    /// It starts; lines about the victim follow.
    Invoked,
    /// The victim, since Linux 5.0.
    Victim(OomKill),
    /// The cgroups of the victim and of the limit, before Linux 5.0.
    Limit { cgroup: &'a str, limit: &'a str },
    /// A process was killed.
    Killed { scope: Scope, process: Process<'a> },
    /// All other processes of a cgroup are killed, too (`memory.oom.group`).
    Group,
}

/// What ran out of memory, as far as the line of the killed process says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    System,
    Cgroup,
    /// Before Linux 5.0.
    Unknown,
}

/// A killed process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process<'a> {
    pub(crate) pid: u32,
    pub(crate) name: &'a str,
}

/// Parses a message of the kernel; `None` if it is not one of the OOM killer.
pub(crate) fn parse(text: &str) -> Option<OomMessage<'_>> {
    if let Some(rest) = text.strip_prefix("oom-kill:constraint=") {
        return victim(rest).map(OomMessage::Victim);
    }
    if let Some(rest) = text.strip_prefix("Task in ") {
        let (cgroup, limit) = cgroup_and_limit(rest)?;
        return Some(OomMessage::Limit { cgroup, limit });
    }
    if text.starts_with("Tasks in ") && text.ends_with("killed due to memory.oom.group set") {
        return Some(OomMessage::Group);
    }
    for (start, scope) in [
        ("Memory cgroup out of memory", Scope::Cgroup),
        ("Out of memory", Scope::System),
        ("Killed process ", Scope::Unknown),
    ] {
        if text.starts_with(start) {
            let (_, rest) = text.split_once("Killed process ")?;
            let process = killed(rest)?;
            return Some(OomMessage::Killed { scope, process });
        }
    }
    text.contains("invoked oom-killer:")
        .then_some(OomMessage::Invoked)
}

/// Parses what follows `oom-kill:constraint=`. The last fields come first: only the process name
/// and the cgroups before them may contain separators.
fn victim(text: &str) -> Option<OomKill> {
    const GLOBAL: &str = ",global_oom,task_memcg=/";
    const MEMCG: &str = ",oom_memcg=/";
    let (rest, _uid) = text.rsplit_once(",uid=")?;
    let (rest, pid) = rest.rsplit_once(",pid=")?;
    let pid = pid.parse().ok()?;
    let global = rest.find(GLOBAL);
    let memcg = rest
        .find(MEMCG)
        .filter(|at| global.is_none_or(|it| *at < it));
    let (cgroup, limit, process) = match (memcg, global) {
        (Some(at), _) => {
            let (limit, rest) = limit_and_task(rest.get(at + MEMCG.len() - 1..)?)?;
            let (cgroup, process) = task(rest)?;
            (cgroup, Some(limit), process)
        }
        (None, Some(at)) => {
            let (cgroup, process) = task(rest.get(at + GLOBAL.len() - 1..)?)?;
            (cgroup, None, process)
        }
        (None, None) => {
            // compiled without memory cgroups
            let (_, process) = task(rest)?;
            return Some(OomKill {
                pid,
                process: process.to_owned(),
                cgroup: None,
                limit: None,
            });
        }
    };
    Some(OomKill {
        pid,
        process: process.to_owned(),
        cgroup: Some(cgroup.to_owned()),
        limit: limit.map(str::to_owned),
    })
}

/// Splits `limit,task_memcg=/cgroup…`, such that the victim is below the limit.
fn limit_and_task(text: &str) -> Option<(&str, &str)> {
    const TASK: &str = ",task_memcg=/";
    let splits = text.match_indices(TASK).map(|(at, _)| {
        let (limit, rest) = text.split_at(at);
        (limit, rest.get(TASK.len() - 1..).unwrap_or_default())
    });
    let mut fitting = splits.filter(|(limit, task)| is_within(task, limit));
    fitting.next()
}

/// Splits `cgroup,task=process` at the first separator that a process name can follow.
fn task(text: &str) -> Option<(&str, &str)> {
    const TASK: &str = ",task=";
    let splits = text.match_indices(TASK).map(|(at, _)| {
        let (cgroup, rest) = text.split_at(at);
        (cgroup, rest.get(TASK.len()..).unwrap_or_default())
    });
    let mut fitting = splits.filter(|(_, process)| process.len() <= MAX_PROCESS_NAME);
    fitting.next()
}

/// Splits `cgroup killed as a result of limit of limit`, such that the victim is below the limit.
fn cgroup_and_limit(text: &str) -> Option<(&str, &str)> {
    let splits = text.match_indices(LIMIT_OF).map(|(at, _)| {
        let (cgroup, rest) = text.split_at(at);
        (cgroup, rest.get(LIMIT_OF.len()..).unwrap_or_default())
    });
    let mut fitting = splits.filter(|(cgroup, limit)| is_within(cgroup, limit));
    fitting.next()
}

/// True if the beginning of `text` is the cgroup `parent` or one below it.
fn is_within(text: &str, parent: &str) -> bool {
    let parent = parent.trim_end_matches('/');
    text.strip_prefix(parent)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || rest.starts_with(",task="))
}

/// Parses `123 (name) …`, or `123, UID 0, (name) …` of old kernels.
fn killed(text: &str) -> Option<Process<'_>> {
    let end = text.find(|it: char| !it.is_ascii_digit())?;
    let (pid, rest) = text.split_at(end);
    let name = match rest.strip_prefix(" (") {
        Some(name) => name,
        None => {
            let rest = rest.strip_prefix(", UID ")?;
            let rest = rest.trim_start_matches(|it: char| it.is_ascii_digit());
            rest.strip_prefix(", (")?
        }
    };
    // the name may contain parentheses, and has at most 15 bytes
    let longest = name.char_indices().map(|(at, _)| at);
    let longest = longest.take_while(|at| *at <= MAX_PROCESS_NAME);
    let end = longest
        .filter(|at| name.as_bytes().get(*at) == Some(&b')'))
        .last()?;
    Some(Process {
        pid: pid.parse().ok()?,
        name: name.get(..end)?,
    })
}

#[cfg(test)]
mod tests;
