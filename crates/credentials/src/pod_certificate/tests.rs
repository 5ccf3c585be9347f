//! Steps of a source with their times, such as `0s request`.

use std::time::Duration;

use serde_json::{Value, json};
use windlass_types::ClockReading;

use super::*;

const HOUR: u64 = 3600;

/// One source, a signer that decides at given times, and a clock.
struct Fixture {
    issuance: Issuance,
    wall: Timestamp,
    monotonic: u64,
    seen: ObservedRequest,
    lines: Vec<String>,
    requests: u32,
    /// The watch does not deliver created requests.
    lost: bool,
}

impl Fixture {
    fn new() -> Self {
        Self {
            issuance: Issuance::new("u1/v[0]".to_owned()),
            wall: "2026-11-22T00:00:00Z".parse().expect("time"),
            monotonic: 0,
            seen: ObservedRequest::NotRead,
            lines: Vec::new(),
            requests: 0,
            lost: false,
        }
    }

    fn now(&self) -> ClockReading {
        ClockReading {
            wall: self.wall,
            monotonic: Duration::from_millis(self.monotonic),
        }
    }

    fn advance(&mut self, millis: u64) {
        self.monotonic += millis;
        self.wall = windlass_types::later(self.wall, Duration::from_millis(millis));
    }

    /// Executes the steps of this many seconds; requests succeed, or fail with `error`.
    fn run(&mut self, seconds: u64, error: Option<&str>) -> &mut Self {
        let end = self.monotonic + seconds * 1000;
        while self.monotonic < end {
            let (now, seen) = (self.now(), self.seen.clone());
            let step = self.issuance.step(now, &seen);
            match &step {
                Step::Wait(left) => {
                    let left = u64::try_from(left.as_millis()).expect("short").max(1);
                    self.advance(left.min(end - self.monotonic));
                    continue;
                }
                Step::Finished => {
                    self.advance(end - self.monotonic);
                    continue;
                }
                Step::Request => match error {
                    Some(error) => {
                        let error = error.to_owned();
                        self.issuance.failed(now, error, None);
                    }
                    None => {
                        self.requests += 1;
                        let (name, key) = (format!("ns/r{}", self.requests), b"k".as_slice());
                        self.issuance.requested(now, name, key.into());
                        self.seen = match self.lost {
                            true => ObservedRequest::Absent,
                            false => ObservedRequest::Found(Arc::new(RequestOutcome::Pending)),
                        };
                    }
                },
                Step::Issued | Step::Rejected(_) | Step::Notify(_) => {}
            }
            let at = self.monotonic / 1000;
            self.lines.push(format!("{at}s {step}"));
        }
        self
    }

    fn sees(&mut self, outcome: RequestOutcome) -> &mut Self {
        self.seen = ObservedRequest::Found(Arc::new(outcome));
        self
    }

    /// Issues a certificate for a day, to be renewed after half of it.
    fn issued(&mut self) -> &mut Self {
        let at = |hours: u64| windlass_types::later(self.wall, Duration::from_secs(hours * HOUR));
        let issued = Issued {
            chain: b"chain".as_slice().into(),
            begin_refresh_at: at(12),
            not_after: at(24),
        };
        self.sees(RequestOutcome::Issued(issued))
    }

    fn done(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    /// Returns the time of the first line, and the lines without times.
    fn done_at(&mut self) -> (u64, Vec<String>) {
        let lines = self.done();
        let (at, _) = lines[0].split_once('s').expect("a time");
        let at = at.parse().expect("seconds");
        let words = lines.iter().map(|line| {
            let (_, words) = line.split_once(' ').expect("words");
            words.to_owned()
        });
        (at, words.collect())
    }

    fn check_state(&self, state: &str, credential: &str) {
        assert_eq!(self.issuance.state(self.now()), state);
        let text = match self.issuance.credential() {
            Ok(credential) => format!("{credential:?}"),
            Err(error) => error,
        };
        assert_eq!(text, credential);
    }
}

const SERVES: &str = "credential with 5 bytes of chain";
const NOT_YET: &str = "credential bundle is not issued yet";

#[test]
fn certificate_is_requested_once_and_renewed_at_refresh_time() {
    let mut fixture = Fixture::new();
    fixture.check_state("not_yet_issued", NOT_YET);
    fixture.run(30, None);
    assert_eq!(fixture.done(), ["0s request"]);
    fixture.sees(RequestOutcome::Pending).run(1000, None);
    assert_eq!(fixture.done(), [""; 0]);
    fixture.check_state("not_yet_issued", NOT_YET);
    fixture.issued().run(11 * HOUR, None);
    assert_eq!(fixture.done(), ["1030s issued"]);
    fixture.check_state("fresh", SERVES);
    fixture.run(2 * HOUR, None);
    let (at, words) = fixture.done_at();
    let jitter = at - 1030 - 12 * HOUR;
    assert!(jitter < 300, "{jitter}");
    assert_eq!(words[0], "request");
}

#[test]
fn sources_renew_at_different_times() {
    let renewed = |seed: &str| {
        let mut fixture = Fixture::new();
        fixture.issuance = Issuance::new(seed.to_owned());
        fixture.run(1, None).issued().run(12 * HOUR - 1, None);
        fixture.done();
        fixture.run(310, None);
        fixture.done_at().0
    };
    let times: std::collections::BTreeSet<_> = ["a", "b", "c", "d"].map(renewed).into();
    assert_eq!(times.len(), 4, "{times:?}");
}

#[test]
fn missing_renewal_has_one_overdue_and_one_expired_event() {
    let mut fixture = Fixture::new();
    fixture.run(1, None).issued().run(12 * HOUR - 2, None);
    assert_eq!(fixture.done(), ["0s request", "1s issued"]);
    fixture.run(HOUR, None);
    let (at, words) = fixture.done_at();
    assert_eq!(
        words,
        [
            "request",
            "event CertificateOverdueForRefresh: PodCertificate refresh overdue",
        ]
    );
    assert!(at < 12 * HOUR + 301, "{at}");
    fixture.check_state("overdue_for_refresh", SERVES);
    fixture.run(13 * HOUR, None);
    let (at, words) = fixture.done_at();
    assert_eq!(words, ["event CertificateExpired: PodCertificate expired"]);
    assert_eq!(at, 24 * HOUR + 1);
    fixture.check_state("expired", SERVES);
    fixture.issued().run(60, None);
    assert_eq!(fixture.done().len(), 1);
    fixture.check_state("fresh", SERVES);
}

#[test]
fn rejection_is_permanent_with_signer_message() {
    let rejected = |kind| {
        RequestOutcome::Rejected(CertificateRejection {
            kind,
            reason: "UnsupportedKeyType".to_owned(),
            message: "try \"ED25519\"".to_owned(),
        })
    };
    let words = r#"reason="UnsupportedKeyType" message="try \"ED25519\"""#;
    let text = r#"reason="UnsupportedKeyType", message="try \"ED25519\"""#;
    let mut fixture = Fixture::new();
    fixture.run(1, None);
    fixture
        .sees(rejected(RejectionKind::Denied))
        .run(9 * HOUR, None);
    let event = format!("1s event Denied: PodCertificateRequest ns/r1 was denied, {text}");
    assert_eq!(fixture.done(), ["0s request", &event]);
    let error = format!("PodCertificateRequest was permanently denied: {words}");
    fixture.check_state("denied", &error);
    // also for a renewal, as upstream
    let mut fixture = Fixture::new();
    fixture.run(1, None).issued().run(13 * HOUR, None);
    fixture.done();
    fixture
        .sees(rejected(RejectionKind::Failed))
        .run(99 * HOUR, None);
    let (_, lines) = fixture.done_at();
    let event = format!("event Failed: PodCertificateRequest ns/r2 failed, {text}");
    assert_eq!(lines, [event]);
    let error = format!("PodCertificateRequest was permanently failed: {words}");
    fixture.check_state("failed", &error);
}

#[test]
fn deleted_request_is_repeated_after_observation_or_threshold() {
    let mut fixture = Fixture::new();
    fixture.lost = true;
    fixture.run(599, None);
    assert_eq!(fixture.done(), ["0s request"]);
    fixture.run(302, None);
    let (at, words) = fixture.done_at();
    assert_eq!(words, ["request"]);
    assert!((600..900).contains(&at), "{at}");
    fixture.sees(RequestOutcome::Pending).run(99, None);
    fixture.seen = ObservedRequest::Absent;
    fixture.run(99, None);
    assert_eq!(fixture.done(), ["1000s request"]);
    // without a list the request may exist
    fixture.seen = ObservedRequest::NotRead;
    fixture.run(599, None);
    assert_eq!(fixture.done(), [""; 0]);
}

#[test]
fn failed_requests_back_off_to_max() {
    let mut fixture = Fixture::new();
    fixture.run(2 * HOUR, Some("no"));
    fixture.check_state("not_yet_issued", &format!("{NOT_YET}: no"));
    let mut times: Vec<u64> = Vec::new();
    for line in fixture.done() {
        let (at, words) = line.split_once("s ").expect("a time");
        assert_eq!(words, "request");
        times.push(at.parse().expect("seconds"));
    }
    assert!(
        times[5] == 0 && times[8] == 1 && times[12] == 20,
        "{times:?}"
    );
    let late = times.windows(2).rev().take(50);
    assert!(
        late.into_iter()
            .all(|w| (60..=120).contains(&(w[1] - w[0]))),
        "{times:?}"
    );
    let now = fixture.now();
    fixture
        .issuance
        .failed(now, "busy".to_owned(), Some(Duration::from_secs(1000)));
    fixture.run(999, None);
    assert_eq!(fixture.done(), [""; 0]);
    fixture.run(2, None).issued().run(1, None);
    fixture.check_state("fresh", SERVES);
}

#[test]
fn wall_clock_step_neither_delays_nor_repeats_renewal() {
    // the clock is set back by a day
    let mut fixture = Fixture::new();
    fixture.run(1, None).issued().run(1, None);
    fixture.wall = "2026-11-21T00:00:00Z".parse().expect("time");
    fixture.done();
    fixture.run(13 * HOUR, None);
    assert!(fixture.done()[0].ends_with(" request"));
    // the clock of the signer is slow: its certificates are expired when issued
    let mut fixture = Fixture::new();
    fixture.run(1, None);
    for _ in 0..3 {
        let past: Timestamp = "2020-01-01T00:00:00Z".parse().expect("time");
        fixture.sees(RequestOutcome::Issued(Issued {
            chain: b"chain".as_slice().into(),
            begin_refresh_at: past,
            not_after: past,
        }));
        fixture.done();
        fixture.run(59, None);
        let requests = fixture
            .done()
            .iter()
            .filter(|line| line.ends_with("request"))
            .count();
        assert_eq!(requests, 0);
        fixture.run(400, None);
    }
}

#[test]
fn first_deciding_condition_is_the_outcome() {
    let check = |status: Value, expected: &str| {
        let request: PodCertificateRequest = serde_json::from_value(json!({
            "metadata": {}, "status": status,
            "spec": {
                "signerName": "", "podName": "", "podUID": "", "nodeName": "", "nodeUID": "",
                "serviceAccountName": "", "serviceAccountUID": "",
            },
        }))
        .expect("request");
        assert_eq!(
            format!("{:?}", RequestOutcome::from_request(&request)),
            expected
        );
    };
    let condition = |kind: &str| {
        json!({
            "type": kind, "status": "True", "reason": "r", "message": "m",
            "lastTransitionTime": "2026-11-22T00:00:00Z",
        })
    };
    check(json!({}), "Pending");
    check(json!({"conditions": [condition("Other")]}), "Pending");
    check(
        json!({"conditions": [condition("Other"), condition("Denied"), condition("Issued")]}),
        "Rejected(CertificateRejection { kind: Denied, reason: \"r\", message: \"m\" })",
    );
    check(json!({"conditions": [condition("Issued")]}), "Pending");
    check(
        json!({
            "conditions": [condition("Issued")],
            "certificateChain": "",
            "notAfter": "2026-11-23T00:00:00Z",
            "beginRefreshAt": "2026-11-22T12:00:00Z",
        }),
        "Issued(issued until 2026-11-23T00:00:00Z)",
    );
}
