//! The list on paused time.

use tokio::time::{advance, sleep};
use windlass_mailboxes::SimClock;

use super::*;
use crate::operation::OperationKind;

const SECOND: Duration = Duration::from_secs(1);
const THRESHOLD: Duration = Duration::from_secs(4);

fn list() -> HungOperations {
    let clock = SimClock::starting_at(Timestamp::UNIX_EPOCH);
    HungOperations::new(Arc::new(clock))
}

fn mount() -> Operation {
    Operation::of_pod(OperationKind::Volume, &"u".into(), "mount of volume data")
}

fn lines(list: &HungOperations) -> Vec<String> {
    list.list().iter().map(ToString::to_string).collect()
}

const SINCE_START: &str = "mount of volume data hung since 1970-01-01T00:00:00Z";

/// An attempt that takes this long, in the background.
fn attempt(list: &HungOperations, takes: Duration, is_answered: bool) {
    let list = list.clone();
    tokio::spawn(async move {
        list.track(THRESHOLD, mount, |_| is_answered, sleep(takes))
            .await
    });
}

#[tokio::test(start_paused = true)]
async fn operation_is_listed_from_threshold_to_end() {
    let list = list();
    let mut changes = list.subscribe();
    attempt(&list, 10 * SECOND, true);
    sleep(3 * SECOND).await;
    assert_eq!(lines(&list), [""; 0]);
    sleep(2 * SECOND).await;
    assert_eq!(lines(&list), [SINCE_START]);
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    sleep(6 * SECOND).await;
    assert_eq!(lines(&list), [""; 0]);
    assert!(changes.has_changed().unwrap());
}

#[tokio::test(start_paused = true)]
async fn operation_within_threshold_wakes_no_reader() {
    let list = list();
    let changes = list.subscribe();
    attempt(&list, 3 * SECOND, true);
    sleep(10 * SECOND).await;
    assert!(!changes.has_changed().unwrap());
}

#[tokio::test(start_paused = true)]
async fn unanswered_attempt_stays_until_a_retry_is_answered() {
    let list = list();
    attempt(&list, 10 * SECOND, false);
    sleep(60 * SECOND).await;
    assert_eq!(lines(&list), [SINCE_START], "between two attempts");
    attempt(&list, 10 * SECOND, false);
    sleep(70 * SECOND).await;
    assert_eq!(lines(&list), [SINCE_START], "since the first attempt");
    attempt(&list, SECOND, true);
    sleep(2 * SECOND).await;
    assert_eq!(lines(&list), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn operation_without_a_retry_expires() {
    let list = list();
    attempt(&list, 10 * SECOND, false);
    sleep(11 * SECOND).await;
    let expiry = list.next_expiry().expect("idle");
    assert_eq!(expiry - Instant::now(), RETRY_WINDOW - SECOND);
    advance(RETRY_WINDOW).await;
    assert_eq!(lines(&list), [""; 0]);
    assert_eq!(list.next_expiry(), None);
}

#[tokio::test(start_paused = true)]
async fn dropped_attempt_is_not_listed() {
    let list = list();
    let of_task = list.clone();
    let task = tokio::spawn(async move {
        let hangs = std::future::pending::<()>();
        of_task.track(THRESHOLD, mount, |()| true, hangs).await;
    });
    sleep(5 * SECOND).await;
    assert_eq!(lines(&list), [SINCE_START]);
    task.abort();
    sleep(SECOND).await;
    assert_eq!(lines(&list), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn concurrent_attempts_are_listed_once_until_the_last_ends() {
    let list = list();
    attempt(&list, 6 * SECOND, true);
    attempt(&list, 9 * SECOND, true);
    sleep(7 * SECOND).await;
    assert_eq!(lines(&list), [SINCE_START]);
    sleep(3 * SECOND).await;
    assert_eq!(lines(&list), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn pod_that_is_gone_keeps_only_attempts_in_progress() {
    let list = list();
    attempt(&list, 20 * SECOND, false);
    sleep(10 * SECOND).await;
    list.forget(&"u".into());
    assert_eq!(lines(&list), [SINCE_START], "in progress");
    sleep(11 * SECOND).await;
    list.forget(&"other".into());
    assert_eq!(lines(&list), [SINCE_START], "of another pod");
    list.forget(&"u".into());
    assert_eq!(lines(&list), [""; 0]);
}
