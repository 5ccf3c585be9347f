//! A source's life as what was done when: `0s ask` and so on.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;

const HOUR: u64 = 3600;

/// One source, a signer that decides at given times, and a clock.
struct Scene {
    issuance: Issuance,
    wall: Timestamp,
    steady: u64,
    seen: Seen,
    lines: Vec<String>,
    requests: u32,
    /// The watch does not show requests that are made.
    lost: bool,
}

impl Scene {
    fn new() -> Self {
        Self {
            issuance: Issuance::new("u1/v[0]".to_owned()),
            wall: "2026-11-22T00:00:00Z".parse().expect("time"),
            steady: 0,
            seen: Seen::NotRead,
            lines: Vec::new(),
            requests: 0,
            lost: false,
        }
    }

    fn now(&self) -> Moment {
        Moment {
            wall: self.wall,
            steady: Duration::from_millis(self.steady),
        }
    }

    fn advance(&mut self, millis: u64) {
        self.steady += millis;
        self.wall = windlass_types::later(self.wall, Duration::from_millis(millis));
    }

    /// Does what is to be done for so many seconds; requests are accepted, or fail as `error` says.
    fn run(&mut self, seconds: u64, error: Option<&str>) -> &mut Self {
        let end = self.steady + seconds * 1000;
        while self.steady < end {
            let (now, seen) = (self.now(), self.seen.clone());
            let step = self.issuance.step(now, &seen);
            match &step {
                Step::Wait(left) => {
                    let left = u64::try_from(left.as_millis()).expect("short").max(1);
                    self.advance(left.min(end - self.steady));
                    continue;
                }
                Step::Over => {
                    self.advance(end - self.steady);
                    continue;
                }
                Step::Ask => match error {
                    Some(error) => {
                        let error = error.to_owned();
                        self.issuance.failed(now, error, None);
                    }
                    None => {
                        self.requests += 1;
                        let (name, key) = (format!("ns/r{}", self.requests), b"k".as_slice());
                        self.issuance.asked(now, name, key.into());
                        self.seen = match self.lost {
                            true => Seen::Absent,
                            false => Seen::Found(Arc::new(Outcome::Pending)),
                        };
                    }
                },
                Step::Issued | Step::Refused(_) | Step::Tell(_) => {}
            }
            let at = self.steady / 1000;
            self.lines.push(format!("{at}s {step}"));
        }
        self
    }

    fn sees(&mut self, outcome: Outcome) -> &mut Self {
        self.seen = Seen::Found(Arc::new(outcome));
        self
    }

    /// A certificate that lives a day and is to be renewed after half of it.
    fn issued(&mut self) -> &mut Self {
        let at = |hours: u64| windlass_types::later(self.wall, Duration::from_secs(hours * HOUR));
        let issued = Issued {
            chain: b"chain".as_slice().into(),
            begin_refresh_at: at(12),
            not_after: at(24),
        };
        self.sees(Outcome::Issued(issued))
    }

    fn done(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    /// The second of the first line, without which the lines are the same each time.
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
        let shown = match self.issuance.credential() {
            Ok(credential) => format!("{credential:?}"),
            Err(why) => why,
        };
        assert_eq!(shown, credential);
    }
}

const SERVES: &str = "credential with 5 bytes of chain";
const NOT_YET: &str = "credential bundle is not issued yet";

#[test]
fn a_certificate_is_asked_for_once_and_again_when_its_signer_says_so() {
    let mut scene = Scene::new();
    scene.check_state("not_yet_issued", NOT_YET);
    scene.run(30, None);
    assert_eq!(scene.done(), ["0s ask"]);
    scene.sees(Outcome::Pending).run(1000, None);
    assert_eq!(scene.done(), [""; 0]);
    scene.check_state("not_yet_issued", NOT_YET);
    scene.issued().run(11 * HOUR, None);
    assert_eq!(scene.done(), ["1030s issued"]);
    scene.check_state("fresh", SERVES);
    scene.run(2 * HOUR, None);
    let (at, words) = scene.done_at();
    let jitter = at - 1030 - 12 * HOUR;
    assert!(jitter < 300, "{jitter}");
    assert_eq!(words[0], "ask");
}

#[test]
fn sources_are_renewed_at_different_times() {
    let renewed = |seed: &str| {
        let mut scene = Scene::new();
        scene.issuance = Issuance::new(seed.to_owned());
        scene.run(1, None).issued().run(12 * HOUR - 1, None);
        scene.done();
        scene.run(310, None);
        scene.done_at().0
    };
    let times: std::collections::BTreeSet<_> = ["a", "b", "c", "d"].map(renewed).into();
    assert_eq!(times.len(), 4, "{times:?}");
}

#[test]
fn a_renewal_that_does_not_come_is_told_once_overdue_and_once_expired() {
    let mut scene = Scene::new();
    scene.run(1, None).issued().run(12 * HOUR - 2, None);
    assert_eq!(scene.done(), ["0s ask", "1s issued"]);
    scene.run(HOUR, None);
    let (at, words) = scene.done_at();
    assert_eq!(
        words,
        [
            "ask",
            "tell CertificateOverdueForRefresh: PodCertificate refresh overdue",
        ]
    );
    assert!(at < 12 * HOUR + 301, "{at}");
    scene.check_state("overdue_for_refresh", SERVES);
    scene.run(13 * HOUR, None);
    let (at, words) = scene.done_at();
    assert_eq!(words, ["tell CertificateExpired: PodCertificate expired"]);
    assert_eq!(at, 24 * HOUR + 1);
    scene.check_state("expired", SERVES);
    scene.issued().run(60, None);
    assert_eq!(scene.done().len(), 1);
    scene.check_state("fresh", SERVES);
}

#[test]
fn a_refusal_is_for_good_and_in_the_signers_words() {
    let refused = |verdict| {
        Outcome::Refused(Refusal {
            verdict,
            reason: "UnsupportedKeyType".to_owned(),
            message: "try \"ED25519\"".to_owned(),
        })
    };
    let words = r#"reason="UnsupportedKeyType" message="try \"ED25519\"""#;
    let told = r#"reason="UnsupportedKeyType", message="try \"ED25519\"""#;
    let mut scene = Scene::new();
    scene.run(1, None);
    scene.sees(refused(Verdict::Denied)).run(9 * HOUR, None);
    let event = format!("1s tell Denied: PodCertificateRequest ns/r1 was denied, {told}");
    assert_eq!(scene.done(), ["0s ask", &event]);
    let why = format!("PodCertificateRequest was permanently denied: {words}");
    scene.check_state("denied", &why);
    // of a renewal too, as upstream
    let mut scene = Scene::new();
    scene.run(1, None).issued().run(13 * HOUR, None);
    scene.done();
    scene.sees(refused(Verdict::Failed)).run(99 * HOUR, None);
    let (_, lines) = scene.done_at();
    let event = format!("tell Failed: PodCertificateRequest ns/r2 failed, {told}");
    assert_eq!(lines, [event]);
    let why = format!("PodCertificateRequest was permanently failed: {words}");
    scene.check_state("failed", &why);
}

#[test]
fn a_request_that_vanishes_is_made_again_at_once_if_it_was_seen_else_after_a_while() {
    let mut scene = Scene::new();
    scene.lost = true;
    scene.run(599, None);
    assert_eq!(scene.done(), ["0s ask"]);
    scene.run(302, None);
    let (at, words) = scene.done_at();
    assert_eq!(words, ["ask"]);
    assert!((600..900).contains(&at), "{at}");
    scene.sees(Outcome::Pending).run(99, None);
    scene.seen = Seen::Absent;
    scene.run(99, None);
    assert_eq!(scene.done(), ["1000s ask"]);
    // a watch that is not there says nothing
    scene.seen = Seen::NotRead;
    scene.run(599, None);
    assert_eq!(scene.done(), [""; 0]);
}

#[test]
fn failures_pause_ever_longer_up_to_one_or_two_minutes() {
    let mut scene = Scene::new();
    scene.run(2 * HOUR, Some("no"));
    scene.check_state("not_yet_issued", &format!("{NOT_YET}: no"));
    let mut times: Vec<u64> = Vec::new();
    for line in scene.done() {
        let (at, words) = line.split_once("s ").expect("a time");
        assert_eq!(words, "ask");
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
    let now = scene.now();
    scene
        .issuance
        .failed(now, "busy".to_owned(), Some(Duration::from_secs(1000)));
    scene.run(999, None);
    assert_eq!(scene.done(), [""; 0]);
    scene.run(2, None).issued().run(1, None);
    scene.check_state("fresh", SERVES);
}

#[test]
fn a_clock_that_is_stepped_holds_no_renewal_up_and_makes_no_storm() {
    // back, by a day
    let mut scene = Scene::new();
    scene.run(1, None).issued().run(1, None);
    scene.wall = "2026-11-21T00:00:00Z".parse().expect("time");
    scene.done();
    scene.run(13 * HOUR, None);
    assert!(scene.done()[0].ends_with(" ask"));
    // a signer that lives in the past: its certificates are over when they come
    let mut scene = Scene::new();
    scene.run(1, None);
    for _ in 0..3 {
        let past: Timestamp = "2020-01-01T00:00:00Z".parse().expect("time");
        scene.sees(Outcome::Issued(Issued {
            chain: b"chain".as_slice().into(),
            begin_refresh_at: past,
            not_after: past,
        }));
        scene.done();
        scene.run(59, None);
        let asked = scene
            .done()
            .iter()
            .filter(|line| line.ends_with("ask"))
            .count();
        assert_eq!(asked, 0);
        scene.run(400, None);
    }
}

#[test]
fn the_first_condition_that_decides_counts() {
    let check = |status: Value, expected: &str| {
        let request: PodCertificateRequest = serde_json::from_value(json!({
            "metadata": {}, "status": status,
            "spec": {
                "signerName": "", "podName": "", "podUID": "", "nodeName": "", "nodeUID": "",
                "serviceAccountName": "", "serviceAccountUID": "",
            },
        }))
        .expect("request");
        assert_eq!(format!("{:?}", Outcome::of(&request)), expected);
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
        "Refused(Refusal { verdict: Denied, reason: \"r\", message: \"m\" })",
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
