//! Which pods are named when: one line per step.

use super::*;

fn pod(name: &str) -> HungPod {
    HungPod {
        pod: format!("default/{name}"),
        operation: format!("mount of {name} hung since T"),
        others: 0,
        has_event: true,
    }
}

/// A pod is named at once.
const NAMED: &str = "pods with hung operations: default/a: mount of a hung since T \
                     [default/a: mount of a hung since T] wait 0";

fn pods(names: &str) -> Vec<HungPod> {
    names.split_whitespace().map(pod).collect()
}

fn line(naming: &HungPodNaming) -> String {
    let message = match &naming.message {
        None => "-".to_owned(),
        Some(None) => "none".to_owned(),
        Some(Some(text)) => text.clone(),
    };
    let events = naming.events.join(" | ");
    let wait = naming.wait.map_or(0, |wait| wait.as_secs());
    format!("{message} [{events}] wait {wait}")
}

/// The changed names and events at each second, with the pods that hang from then on.
fn check(steps: &[(u64, &str, &str)]) {
    let mut names = HungPodNames::default();
    for (second, hung, expected) in steps {
        let naming = names.update(&pods(hung), Duration::from_secs(*second));
        assert_eq!(line(&naming), *expected, "at {second}");
    }
}

#[test]
fn pod_is_named_at_once_and_no_longer_after_its_end() {
    check(&[
        (0, "", "- [] wait 0"),
        (5, "a", NAMED),
        (6, "a", "- [] wait 0"),
        (40, "", "none [] wait 0"),
    ]);
}

#[test]
fn end_waits_for_the_message_interval() {
    check(&[
        (100, "a", NAMED),
        (103, "", "- [] wait 7"),
        (110, "", "none [] wait 0"),
    ]);
}

#[test]
fn burst_names_further_pods_at_once() {
    let mut names = HungPodNames::default();
    let mut at = |second, hung: &str| {
        let naming = names.update(&pods(hung), Duration::from_secs(second));
        (naming.message.is_some(), naming.events.len(), naming.wait)
    };
    assert_eq!(at(100, "a"), (true, 1, None));
    assert_eq!(at(101, "a b"), (true, 1, None));
    assert_eq!(at(102, "a b c"), (true, 1, None));
    // the message waits, the event does not
    let wait = Some(Duration::from_secs(7));
    assert_eq!(at(103, "a b c d"), (false, 1, wait));
    assert_eq!(at(110, "a b c d"), (true, 0, None));
}

#[test]
fn flapping_pod_changes_the_message_every_interval() {
    let mut names = HungPodNames::default();
    let (mut messages, mut events) = (0, 0);
    for second in 0..3600 {
        let hung = if second % 2 == 0 { "a" } else { "" };
        let naming = names.update(&pods(hung), Duration::from_secs(second));
        messages += u32::from(naming.message.is_some());
        events += naming.events.len();
    }
    assert!(messages <= 3600 / 10 + MESSAGE_BURST, "{messages}");
    assert!(events <= 3600 / 300 + 10, "{events}");
}

#[test]
fn message_names_five_pods_and_counts_the_others() {
    let text = message(&pods("a b c d e f g")).expect("pods");
    assert!(text.starts_with("pods with hung operations: default/a: "));
    assert!(
        text.ends_with("; default/e: mount of e hung since T; and 2 more"),
        "{text}"
    );
    let text = message(&pods("a b c d e")).expect("pods");
    assert!(!text.contains("more"), "{text}");
}

#[test]
fn slow_pull_is_named_without_an_event() {
    let slow = HungPod {
        has_event: false,
        ..pod("a")
    };
    let naming = HungPodNames::default().update(&[slow], Duration::ZERO);
    assert!(naming.message.is_some());
    assert!(naming.events.is_empty());
}

#[test]
fn further_operations_of_a_pod_are_counted() {
    let check = |others, expected: &str| {
        let pod = HungPod { others, ..pod("a") };
        assert_eq!(pod.text(), expected);
    };
    check(0, "mount of a hung since T");
    check(1, "mount of a hung since T and 1 other operation");
    check(2, "mount of a hung since T and 2 other operations");
}

#[test]
fn events_of_many_pods_are_limited() {
    let many: Vec<String> = (0..50).map(|n| format!("p{n}")).collect();
    let many = pods(&many.join(" "));
    let mut names = HungPodNames::default();
    let naming = names.update(&many, Duration::ZERO);
    assert_eq!(naming.events.len(), EVENT_BURST as usize);
    assert_eq!(naming.wait, Some(EVENT_INTERVAL));
    let naming = names.update(&many, EVENT_INTERVAL);
    assert_eq!(naming.events.len(), 1);
}
