//! Two relists and the events between them, by their `Display` lines.

use windlass_types::{ContainerId, ObservedContainer, SandboxId};

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).expect("in range")
}

fn sandbox(uid: &str, id: &str, attempt: u32, ready: bool) -> SandboxSummary {
    SandboxSummary {
        id: SandboxId::from(id),
        uid: PodUid::from(uid),
        name: format!("pod-{uid}"),
        namespace: "ns".to_owned(),
        attempt,
        ready,
        created_at: at(i64::from(attempt)),
    }
}

/// `uid/id=state`, a sandbox if the ID begins with `s`.
fn relist(text: &str) -> RuntimePods {
    let (mut sandboxes, mut containers) = (Vec::new(), Vec::new());
    for word in text.split_whitespace() {
        let (uid, rest) = word.split_once('/').expect("uid/id=state");
        let (id, state) = rest.split_once('=').expect("id=state");
        if id.starts_with('s') {
            sandboxes.push(sandbox(uid, id, 0, state == "ready"));
            continue;
        }
        containers.push(ContainerSummary {
            id: ContainerId::from(id),
            sandbox_id: SandboxId::from("s"),
            uid: PodUid::from(uid),
            name: "c".to_owned(),
            attempt: 0,
            state: match state {
                "run" => ContainerState::Running,
                "created" => ContainerState::Created,
                "exit" => ContainerState::Exited,
                _ => ContainerState::Unknown,
            },
            created_at: at(0),
        });
    }
    RuntimePods::new(&sandboxes, &containers)
}

fn check(old: &str, new: &str, expected: &[&str]) {
    let events: Vec<String> = diff(&relist(old), &relist(new))
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(events, expected, "{old} -> {new}");
}

#[test]
fn each_change_of_a_container_is_one_kind_of_event() {
    check("", "u/c=run", &["ContainerStarted pod=u id=c"]);
    check("", "u/c=exit", &["ContainerDied pod=u id=c"]);
    check("", "u/c=created", &["ContainerChanged pod=u id=c"]);
    check("u/c=created", "u/c=run", &["ContainerStarted pod=u id=c"]);
    check("u/c=run", "u/c=exit", &["ContainerDied pod=u id=c"]);
    check("u/c=run", "u/c=unknown", &["ContainerChanged pod=u id=c"]);
    check("u/c=unknown", "u/c=run", &["ContainerStarted pod=u id=c"]);
    check("u/c=exit", "", &["ContainerRemoved pod=u id=c"]);
}

#[test]
fn nothing_is_said_of_what_stays_the_same() {
    check("u/c=run u/s=ready", "u/c=run u/s=ready", &[]);
    check("u/c=created", "u/c=unknown", &[]);
    check("", "", &[]);
}

#[test]
fn a_container_that_vanished_while_running_died_and_was_removed() {
    check(
        "u/c=run",
        "",
        &[
            "ContainerDied pod=u id=c",
            "ContainerRemoved pod=u id=c",
        ],
    );
}

#[test]
fn sandboxes_count_like_containers() {
    check("", "u/s=ready", &["ContainerStarted pod=u id=s"]);
    check("u/s=ready", "u/s=gone", &["ContainerDied pod=u id=s"]);
    check("u/s=gone", "", &["ContainerRemoved pod=u id=s"]);
}

#[test]
fn events_come_ordered_by_pod_and_id() {
    check(
        "v/c=run",
        "u/d=run u/c=run v/c=exit",
        &[
            "ContainerStarted pod=u id=c",
            "ContainerStarted pod=u id=d",
            "ContainerDied pod=v id=c",
        ],
    );
}

#[test]
fn objects_without_a_pod_belong_to_someone_else() {
    assert!(relist("/c=run /s=ready").is_empty());
}

#[test]
fn a_targeted_look_replaces_one_pod() {
    let mut pods = relist("u/c=run v/c2=run");
    assert_eq!(pods.owner_of("c2").map(PodUid::as_str), Some("v"));
    pods.replace(&PodUid::from("u"), &[sandbox("u", "s1", 0, true)], &[]);
    assert_eq!(pods, relist("u/s1=ready v/c2=run"));
    pods.replace(&PodUid::from("u"), &[], &[]);
    assert_eq!(pods, relist("v/c2=run"));
    assert!(!relist("u/c=exit u/s=gone").get(&"u".into()).expect("known").is_running());
}

#[test]
fn an_inspection_is_ordered_newest_first_with_the_ips_of_the_ready_sandbox() {
    let detail = |id: &str, attempt, ready, ip: &str| SandboxDetail {
        summary: sandbox("u", id, attempt, ready),
        ips: vec![ip.parse().expect("ip")],
        host_network: false,
    };
    let container = |id: &str, created: i64, count| ContainerDetail {
        observed: ObservedContainer {
            id: ContainerId::from(id),
            name: "c".to_owned(),
            sandbox_id: SandboxId::from("s1"),
            state: ContainerState::Running,
            created_at: at(created),
            started_at: None,
            finished_at: None,
            exit_code: 0,
            reason: String::new(),
            message: String::new(),
            image: String::new(),
            image_id: String::new(),
            hash: None,
            restart_count: count,
            log_path: String::new(),
            user: None,
            stop_signal: String::new(),
            resources: None,
        },
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
    };
    let pod = observe(
        PodUid::from("u"),
        vec![detail("s0", 0, true, "10.0.0.1"), detail("s1", 1, false, "10.0.0.2")],
        vec![container("a", 1, 0), container("b", 5, 2), container("c", 5, 3)],
        at(9),
    );
    let ids: Vec<&str> = pod.containers.iter().map(|c| c.id.as_str()).collect();
    assert_eq!(ids, ["c", "b", "a"]);
    let sandboxes: Vec<&str> = pod.sandboxes.iter().map(|s| s.id.as_str()).collect();
    assert_eq!(sandboxes, ["s1", "s0"]);
    assert_eq!(pod.ips, ["10.0.0.1".parse::<std::net::IpAddr>().expect("ip")]);
    assert_eq!((pod.name.as_str(), pod.observed_at), ("pod-u", Some(at(9))));
}

#[test]
fn a_listing_that_is_too_old_is_told_in_upstreams_words() {
    let check = |age: ListingAge, expected: Option<&str>| {
        assert_eq!(age.error().as_deref(), expected, "{age:?}");
    };
    let seconds = Duration::from_secs;
    check(ListingAge::Never(seconds(180)), None);
    check(
        ListingAge::Never(seconds(181)),
        Some("pleg has yet to be successful"),
    );
    check(ListingAge::Last(seconds(180)), None);
    check(
        ListingAge::Last(seconds(185)),
        Some("pleg was last seen active 3m0s ago; threshold is 3m0s"),
    );
    check(
        ListingAge::Last(seconds(3725)),
        Some("pleg was last seen active 1h2m0s ago; threshold is 3m0s"),
    );
}
