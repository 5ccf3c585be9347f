//! Tables of runtime objects with the garbage collection plan.

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).expect("in range")
}

/// Oldest first: `s:uid/id[!]` is a sandbox (`!`: not ready), `uid/name/id=state@sandbox` a
/// container.
fn node(text: &str) -> (Vec<SandboxSummary>, Vec<ContainerSummary>) {
    let (mut sandboxes, mut containers) = (Vec::new(), Vec::new());
    for (i, word) in text.split_whitespace().enumerate() {
        if let Some(rest) = word.strip_prefix("s:") {
            let (uid, id) = rest.split_once('/').expect("uid/id");
            sandboxes.push(SandboxSummary {
                id: SandboxId::from(id.trim_end_matches('!')),
                uid: PodUid::from(uid),
                name: String::new(),
                namespace: String::new(),
                attempt: sandboxes.len() as u32,
                ready: !id.ends_with('!'),
                created_at: at(i as i64),
            });
            continue;
        }
        let (name, rest) = word.split_once('=').expect("name=state");
        let (state, sandbox) = rest.split_once('@').expect("state@sandbox");
        let [uid, name, id] = name.split('/').collect::<Vec<_>>()[..] else {
            panic!("uid/name/id");
        };
        containers.push(ContainerSummary {
            id: ContainerId::from(id),
            sandbox_id: SandboxId::from(sandbox),
            uid: PodUid::from(uid),
            name: name.to_owned(),
            attempt: i as u32,
            state: match state {
                "run" => ContainerState::Running,
                "created" => ContainerState::Created,
                "exit" => ContainerState::Exited,
                _ => ContainerState::Unknown,
            },
            created_at: at(i as i64),
            image_id: String::new(),
        });
    }
    (sandboxes, containers)
}

fn uids(text: &str) -> BTreeSet<PodUid> {
    text.split_whitespace().map(PodUid::from).collect()
}

fn plan_with(text: &str, known: &str, change: impl Fn(&mut GcInput<'_>)) -> String {
    let (sandboxes, containers) = node(text);
    let (known, finished) = (uids(known), uids(""));
    let mut input = GcInput {
        containers: &containers,
        sandboxes: &sandboxes,
        known: &known,
        finished: &finished,
        sources_ready: true,
        log_dirs: &[],
        dangling_links: &[],
        policy: GcPolicy::DEFAULT,
        now: at(1000),
    };
    change(&mut input);
    let plan = plan(input);
    assert_eq!(plan.is_empty(), plan.to_string() == "nothing");
    plan.to_string()
}

fn check(text: &str, known: &str, expected: &str) {
    assert_eq!(plan_with(text, known, |_| {}), expected, "{text} | {known}");
}

#[test]
fn newest_dead_instance_of_container_is_kept() {
    check(
        "s:u/s u/a/1=exit@s u/a/2=exit@s u/a/3=exit@s",
        "u",
        "containers(1 2)",
    );
    check("s:u/s u/a/1=exit@s u/b/2=exit@s", "u", "nothing");
    check("s:u/s u/a/1=exit@s u/a/2=run@s", "u", "nothing");
    check(
        "s:u/s u/a/1=exit@s u/a/2=exit@s u/a/3=run@s",
        "u",
        "containers(1)",
    );
    check("s:u/s u/a/1=unknown@s u/a/2=unknown@s", "u", "nothing");
}

#[test]
fn starting_container_is_not_collected() {
    check("s:u/s u/a/1=exit@s u/a/2=created@s", "u", "nothing");
    check("s:u/s u/a/1=created@s u/a/2=run@s", "u", "containers(1)");
}

#[test]
fn orphaned_pod_is_collected_once_sources_are_ready() {
    let text = "s:u/s! u/a/1=exit@s u/a/2=exit@s u/b/3=created@s";
    check(text, "", "containers(1 2 3) sandboxes(s)");
    assert_eq!(
        plan_with(text, "", |i| i.sources_ready = false),
        "containers(1)"
    );
    check("s:u/s u/a/1=run@s u/b/2=exit@s", "", "containers(2)");
    let done = uids("u");
    let (sandboxes, containers) = node(text);
    let finished = plan(GcInput {
        containers: &containers,
        sandboxes: &sandboxes,
        known: &done,
        finished: &done,
        sources_ready: true,
        log_dirs: &["ns_p_u".to_owned()],
        dangling_links: &[],
        policy: GcPolicy::DEFAULT,
        now: at(1000),
    });
    // logs of a finished pod are kept until its deletion
    assert_eq!(finished.to_string(), "containers(1 2 3) sandboxes(s)");
}

#[test]
fn stopped_empty_sandboxes_are_removed_except_newest() {
    check("s:u/s0! s:u/s1!", "u", "sandboxes(s0)");
    check("s:u/s0! s:u/s1", "u", "sandboxes(s0)");
    check("s:u/s0 s:u/s1", "u", "nothing");
    check("s:u/s0! u/a/1=exit@s0 s:u/s1", "u", "nothing");
    // its only container is removed in the same run
    check(
        "s:u/s0! u/a/1=exit@s0 s:u/s1 u/a/2=exit@s1",
        "u",
        "containers(1) sandboxes(s0)",
    );
    check("s:u/s0!", "u", "nothing");
    check("s:u/s0!", "", "sandboxes(s0)");
    check("s:u/s0", "", "nothing");
}

#[test]
fn foreign_containers_are_not_collected() {
    check("s:/s! /a/1=exit@s /a/2=exit@s", "", "nothing");
}

#[test]
fn age_and_total_limits_hold() {
    let three = "u/a/1=exit@s u/b/2=exit@s v/a/3=exit@s";
    let limited = |max| {
        plan_with(three, "u v", move |i| {
            i.policy.max_total = Some(max);
        })
    };
    assert_eq!(limited(3), "nothing");
    assert_eq!(limited(2), "containers(1)");
    assert_eq!(limited(0), "containers(1 2 3)");
    let young = plan_with("u/a/1=exit@s u/a/2=exit@s", "", |i| {
        i.policy.min_age = Duration::from_secs(1000);
    });
    assert_eq!(young, "containers(1)");
    let two = plan_with("u/a/1=exit@s u/a/2=exit@s u/a/3=exit@s", "u", |i| {
        i.policy.max_per_container = 2;
    });
    assert_eq!(two, "containers(1)");
}

#[test]
fn logs_are_removed_with_their_pod() {
    let dirs: Vec<String> = ["ns_p_u", "ns_q_gone", "ns_r_dying", "lost+found"]
        .map(str::to_owned)
        .into();
    let links: Vec<String> = ["p_ns_a-1.log", "q_ns_a-9.log", "p_ns_a-2.log", "README"]
        .map(str::to_owned)
        .into();
    let (sandboxes, containers) = node("u/a/1=run@s u/a/2=exit@s dying/a/3=run@s");
    let known = uids("u");
    let mut input = GcInput {
        containers: &containers,
        sandboxes: &sandboxes,
        known: &known,
        finished: &BTreeSet::new(),
        sources_ready: true,
        log_dirs: &dirs,
        dangling_links: &links,
        policy: GcPolicy::DEFAULT,
        now: at(1000),
    };
    assert_eq!(
        plan(input).to_string(),
        "log-dirs(ns_q_gone) links(q_ns_a-9.log p_ns_a-2.log)"
    );
    input.sources_ready = false;
    assert_eq!(plan(input).to_string(), "links(q_ns_a-9.log p_ns_a-2.log)");
}
