//! Finds the OOM kills in the records of the kernel log (upstream `oomparser`).

use crate::message::{OomKill, OomMessage, Process, Scope, parse};
use crate::record::{Record, SECOND_US};

/// Time in which the processes of a group follow the first one: the kernel kills them in a loop.
const GROUP_WINDOW_US: u64 = SECOND_US;

/// State between two records.
#[derive(Clone, Debug, Default)]
pub struct OomDetector {
    dump: Dump,
    /// Process whose line of the kill is still to come.
    reported: Option<u32>,
    /// Until then killed processes belong to the group of the last victim.
    group_until: Option<u64>,
}

/// The report that the OOM killer writes before it kills. The kernel omits it if there were many.
#[derive(Clone, Debug, Default)]
enum Dump {
    #[default]
    None,
    Started,
    Cgroups {
        cgroup: String,
        limit: String,
    },
}

impl OomDetector {
    /// Takes the next record; returns the kill that it completes. Several processes of a cgroup that
    /// are killed together are one kill.
    pub fn push(&mut self, record: &Record<'_>) -> Option<OomKill> {
        if !record.is_of_kernel() {
            return None;
        }
        match parse(&record.text)? {
            OomMessage::Invoked => {
                *self = Self {
                    dump: Dump::Started,
                    ..Self::default()
                };
                None
            }
            OomMessage::Victim(kill) => {
                *self = Self {
                    reported: Some(kill.pid),
                    ..Self::default()
                };
                Some(kill)
            }
            OomMessage::Limit { cgroup, limit } => {
                if matches!(self.dump, Dump::Started) {
                    self.dump = Dump::Cgroups {
                        cgroup: cgroup.to_owned(),
                        limit: limit.to_owned(),
                    };
                }
                None
            }
            OomMessage::Group => {
                self.group_until = Some(record.at_us.saturating_add(GROUP_WINDOW_US));
                None
            }
            OomMessage::Killed { scope, process } => self.killed(scope, process, record.at_us),
        }
    }

    /// Records were lost: a report that has begun may not be continued.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    fn killed(&mut self, scope: Scope, process: Process<'_>, now: u64) -> Option<OomKill> {
        if self.reported == Some(process.pid) {
            self.reported = None;
            return None;
        }
        if self.group_until.is_some_and(|end| now <= end) {
            return None;
        }
        let (cgroup, limit) = match (std::mem::take(&mut self.dump), scope) {
            (Dump::Cgroups { cgroup, limit }, _) => (Some(cgroup), Some(limit)),
            // whose cgroup is not logged
            (_, Scope::Cgroup) | (Dump::None, Scope::Unknown) => return None,
            (Dump::None | Dump::Started, _) => (None, None),
        };
        Some(OomKill {
            pid: process.pid,
            process: process.name.to_owned(),
            cgroup,
            limit,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::records;

    const END: &str = "total-vm:4kB, anon-rss:1kB, file-rss:0kB, UID:0 oom_score_adj:0";

    /// Compares the kills in messages of the kernel, one per millisecond.
    #[track_caller]
    fn check(messages: &[&str], expected: &[&str]) {
        let mut detector = OomDetector::default();
        let mut found = Vec::new();
        for (number, message) in messages.iter().enumerate() {
            match *message {
                "lost" => detector.reset(),
                "wait" => {}
                message => {
                    let (before, user) = match message.strip_prefix("user: ") {
                        Some(message) => (message, true),
                        None => (message, false),
                    };
                    let waited = messages
                        .iter()
                        .take(number)
                        .filter(|it| **it == "wait")
                        .count();
                    let at = number as u64 * 1000 + waited as u64 * 2 * SECOND_US;
                    let priority = if user { 12 } else { 6 };
                    let bytes = format!("{priority},{number},{at},-;{before}\n");
                    let kills = records(bytes.as_bytes()).filter_map(|it| detector.push(&it));
                    found.extend(kills.map(|kill| kill.to_string()));
                }
            }
        }
        assert_eq!(found, expected);
    }

    fn victim(pid: u32, cgroups: &str) -> String {
        format!(
            "oom-kill:constraint=C,nodemask=(null),cpuset=/,mems_allowed=0,{cgroups},\
             task=dd,pid={pid},uid=0"
        )
    }

    fn killed(start: &str, pid: u32) -> String {
        format!("{start}Killed process {pid} (dd) {END}")
    }

    const INVOKED: &str = "dd invoked oom-killer: gfp_mask=0x0, order=0, oom_score_adj=0";
    const MEMCG: &str = "Memory cgroup out of memory: ";
    const SYSTEM: &str = "Out of memory: ";

    #[test]
    fn victim_line_and_kill_are_one_kill() {
        let cgroup = victim(7, "oom_memcg=/a,task_memcg=/a/b");
        check(
            &[INVOKED, "CPU: 0 PID: 7", &cgroup, &killed(MEMCG, 7)],
            &["dd[7] of /a/b, limit of /a"],
        );
        let system = victim(8, "global_oom,task_memcg=/a/b");
        check(
            &[INVOKED, &system, &killed(SYSTEM, 8)],
            &["dd[8] of /a/b, system"],
        );
        // without the first line, as if the watcher started in between
        check(&[&system, &killed(SYSTEM, 8)], &["dd[8] of /a/b, system"]);
    }

    #[test]
    fn kills_without_report_count_if_host_memory_was_short() {
        check(
            &[&killed(SYSTEM, 7), &killed(SYSTEM, 8), &killed(MEMCG, 9)],
            &["dd[7], system", "dd[8], system"],
        );
        // the same process ID again
        let system = victim(7, "global_oom,task_memcg=/a");
        check(
            &[&system, &killed(SYSTEM, 7), &killed(SYSTEM, 7)],
            &["dd[7] of /a, system", "dd[7], system"],
        );
    }

    #[test]
    fn group_is_one_kill() {
        let group = "Tasks in /a are going to be killed due to memory.oom.group set";
        let system = victim(7, "global_oom,task_memcg=/a");
        check(
            &[
                INVOKED,
                &system,
                &killed(SYSTEM, 7),
                group,
                &killed(SYSTEM, 7),
                &killed(SYSTEM, 8),
                &killed(SYSTEM, 9),
                "wait",
                &killed(SYSTEM, 10),
            ],
            &["dd[7] of /a, system", "dd[10], system"],
        );
    }

    #[test]
    fn old_kernels_report_in_several_lines() {
        let limit = "Task in /a/b killed as a result of limit of /a";
        check(
            &[
                INVOKED,
                limit,
                "memory: usage 1kB, limit 1kB, failcnt 9",
                "Memory cgroup out of memory: Kill process 7 (dd) score 1 or sacrifice child",
                &killed("", 7),
                &killed("", 8),
            ],
            &["dd[7] of /a/b, limit of /a"],
        );
        check(&[INVOKED, &killed("", 7)], &["dd[7], system"]);
        let root = "Task in /a killed as a result of limit of /";
        check(&[INVOKED, root, &killed("", 7)], &["dd[7] of /a, system"]);
    }

    #[test]
    fn messages_of_processes_and_lost_records_report_nothing() {
        let forged = victim(7, "global_oom,task_memcg=/a");
        check(
            &[
                &format!("user: {forged}"),
                &format!("user: {}", killed(SYSTEM, 7)),
            ],
            &[],
        );
        check(&[INVOKED, "lost", &killed("", 7)], &[]);
        let limit = "Task in /a killed as a result of limit of /a";
        check(&[limit, &killed("", 7)], &[]);
    }
}
