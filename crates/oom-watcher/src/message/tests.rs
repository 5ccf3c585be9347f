//! Messages of kernels from 3.10 to 6.x, and names that imitate their separators.

use super::*;

/// Prints a message as one line.
fn line(text: &str) -> String {
    match parse(text) {
        None => "-".to_owned(),
        Some(OomMessage::Invoked) => "invoked".to_owned(),
        Some(OomMessage::Group) => "group".to_owned(),
        Some(OomMessage::Victim(kill)) => kill.to_string(),
        Some(OomMessage::Limit { cgroup, limit }) => format!("{cgroup}, limit of {limit}"),
        Some(OomMessage::Killed { scope, process }) => {
            format!("{scope:?} {}[{}]", process.name, process.pid)
        }
    }
}

#[track_caller]
fn check(text: &str, expected: &str) {
    assert_eq!(line(text), expected, "{text}");
}

/// Line of the victim since Linux 5.0 with these cgroups, process and cpuset.
fn victim_line(cpuset: &str, cgroups: &str, process: &str) -> String {
    format!(
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset={cpuset},mems_allowed=0,\
         {cgroups},task={process},pid=123,uid=0"
    )
}

#[test]
fn victim_of_cgroup_limit_has_both_cgroups() {
    check(
        &victim_line(
            "c",
            "oom_memcg=/kubepods/podu/c,task_memcg=/kubepods/podu/c",
            "dd",
        ),
        "dd[123] of /kubepods/podu/c, limit of /kubepods/podu/c",
    );
    check(
        &victim_line(
            "c",
            "oom_memcg=/kubepods,task_memcg=/kubepods/podu/c/nested",
            "a b",
        ),
        "a b[123] of /kubepods/podu/c/nested, limit of /kubepods",
    );
}

#[test]
fn victim_of_host_memory_has_its_cgroup() {
    check(
        &victim_line("/", "global_oom,task_memcg=/kubepods/podu/c", "dd"),
        "dd[123] of /kubepods/podu/c, system",
    );
    check(
        &victim_line("/", "global_oom,task_memcg=/", "init"),
        "init[123] of /, system",
    );
    // a kernel without memory cgroups
    let text = "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),task=dd,pid=1,uid=0";
    check(text, "dd[1], system");
}

#[test]
fn names_cannot_attribute_a_kill_to_another_container() {
    let own = "oom_memcg=/kubepods/podu/c,task_memcg=/kubepods/podu/c";
    // process names
    check(
        &victim_line("c", own, "a,task=b"),
        "a,task=b[123] of /kubepods/podu/c, limit of /kubepods/podu/c",
    );
    check(
        &victim_line("c", own, ",pid=1,uid=0"),
        ",pid=1,uid=0[123] of /kubepods/podu/c, limit of /kubepods/podu/c",
    );
    check(
        &victim_line("c", own, ",task_memcg=/x"),
        ",task_memcg=/x[123] of /kubepods/podu/c, limit of /kubepods/podu/c",
    );
    // cgroups that a container makes below its own
    let nested = format!("{own}/a,task_memcg=/kubepods/podv/d");
    check(
        &victim_line("c", &nested, "dd"),
        "dd[123] of /kubepods/podu/c/a,task_memcg=/kubepods/podv/d, limit of /kubepods/podu/c",
    );
    let limit = "/kubepods/podu/c/a,task_memcg=/kubepods/podv/d";
    check(
        &victim_line(
            "c",
            &format!("oom_memcg={limit},task_memcg={limit}/e"),
            "dd",
        ),
        &format!("dd[123] of {limit}/e, limit of {limit}"),
    );
    let system = "global_oom,task_memcg=/kubepods/podu/c/a,oom_memcg=/kubepods/podv";
    check(
        &victim_line("x,oom_memcg=", system, "dd"),
        "dd[123] of /kubepods/podu/c/a,oom_memcg=/kubepods/podv, system",
    );
}

#[test]
fn old_kernels_log_cgroups_in_a_line_of_their_own() {
    check(
        "Task in /docker/c killed as a result of limit of /docker/c",
        "/docker/c, limit of /docker/c",
    );
    check(
        "Task in /a/b killed as a result of limit of /",
        "/a/b, limit of /",
    );
    let split = "Task in /a killed as a result of limit of /b";
    check(split, "-");
    let imitated = "/a/x killed as a result of limit of /b";
    check(
        &format!("Task in {imitated} killed as a result of limit of /a"),
        &format!("{imitated}, limit of /a"),
    );
}

#[test]
fn killed_process_has_scope_and_name() {
    let end = "total-vm:460kB, anon-rss:1kB, file-rss:2kB, shmem-rss:0kB, UID:0 oom_score_adj:0";
    for (start, expected) in [
        (
            "Memory cgroup out of memory: Killed process 7 (dd)",
            "Cgroup dd[7]",
        ),
        ("Out of memory: Killed process 7 (dd)", "System dd[7]"),
        (
            "Out of memory (oom_kill_allocating_task): Killed process 7 (dd)",
            "System dd[7]",
        ),
        ("Killed process 7 (dd)", "Unknown dd[7]"),
        ("Killed process 7, UID 33, (dd)", "Unknown dd[7]"),
        ("Killed process 7 (a) (b)", "Unknown a) (b[7]"),
        ("Killed process 7 (ünïcödé)", "Unknown ünïcödé[7]"),
        ("Killed process 7 ()", "Unknown [7]"),
    ] {
        check(&format!("{start} {end}"), expected);
        check(&format!("{start}, {end}"), expected);
    }
}

#[test]
fn start_and_group_are_recognized() {
    check(
        "dd invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0",
        "invoked",
    );
    let group = "Tasks in /a b are going to be killed due to memory.oom.group set";
    check(group, "group");
}

#[test]
fn other_and_broken_messages_are_ignored() {
    for text in [
        "",
        "EXT4-fs (sda1): mounted",
        "oom-kill:constraint=",
        "oom-kill:constraint=CONSTRAINT_MEMCG,task=dd,pid=x,uid=0",
        "oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/a,task_memcg=/b,task=dd,pid=1,uid=0",
        "Task in /a killed",
        "Out of memory: Kill process 7 (dd) score 900 or sacrifice child",
        "Killed process",
        "Killed process 7",
        "Killed process 99999999999 (dd) total-vm:1kB",
        "Killed process [12]: segfault at 0",
        "Killed process 7 (a name that is longer than any) total-vm:1kB",
        "a: Out of memory: Killed process 7 (dd) total-vm:1kB",
        "oom_reaper: reaped process 7 (dd), now anon-rss:0kB",
    ] {
        check(text, "-");
    }
}
