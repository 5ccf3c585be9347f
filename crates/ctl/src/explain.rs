//! `explain pod`: the one thing that keeps a pod from what was asked, and what led to it.

use std::io::{self, Write};

use windlass_types::why::{BlockerView, Explanation};
use windlass_types::{PodExt, Timestamp, api_time};

use crate::age::{age, human};
use crate::args::ExplainArgs;
use crate::client::Client;
use crate::error::Error;
use crate::pod::{self, PodView};
use crate::timeline;

/// Runs the command.
pub(crate) async fn run(mut client: Client, args: &ExplainArgs) -> Result<(), Error> {
    let view = pod::find(&mut client, &args.pod.namespace, &args.pod.name).await?;
    let name = view.pod.metadata.name.as_deref().unwrap_or_default();
    let json = client.explain(&args.pod.namespace, name).await?;
    let explanation: Explanation =
        serde_json::from_slice(&json).map_err(|error| Error::Answer(error.to_string()))?;
    let text = match args.output {
        None => text(&explanation, crate::now()),
        Some(_json) => crate::pretty(&explanation)?,
    };
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

/// What a list of pods says of one: without what led to its blocker.
pub(crate) fn of(view: &PodView) -> Explanation {
    let time = |time: Option<prost_types::Timestamp>| time.and_then(pod::time);
    let blocker = view.entry.blocker.clone();
    Explanation {
        namespace: view.pod.namespace().to_owned(),
        pod: view.pod.name().to_owned(),
        uid: view.pod.uid().to_string(),
        phase: view.status().phase,
        worker_state: view.entry.worker_state.clone(),
        blocker: blocker.map(|blocker| BlockerView {
            reason: blocker.reason,
            container: blocker.container,
            message: blocker.message,
            since: time(blocker.since).unwrap_or_default(),
            next_retry: time(blocker.next_retry),
            waiting_for: blocker.waiting_for,
        }),
        issues: view.entry.issues.clone(),
        records: Vec::new(),
    }
}

/// The explanation for a person.
pub(crate) fn text(pod: &Explanation, now: Timestamp) -> String {
    let path = format!("{}/{}", pod.namespace, pod.pod);
    let phase = pod.phase.as_deref().unwrap_or("Unknown");
    let mut text = match (&pod.blocker, phase) {
        (Some(blocker), _) => held_up_by(&path, blocker, now),
        (None, "Running" | "Succeeded") => format!("pod {path} is as asked ({phase})\n"),
        (None, _) => format!("pod {path} has no blocker ({phase}): it is being worked on\n"),
    };
    let issues = pod.issues.iter();
    text.extend(issues.map(|issue| format!("  note:       {issue}\n")));
    if !pod.records.is_empty() {
        text.push_str("  led to it:\n");
        let lines = pod.records.iter().map(|touch| timeline::line(touch, now));
        text.extend(lines.map(|line| format!("    {line}\n")));
    }
    text
}

fn held_up_by(path: &str, blocker: &BlockerView, now: Timestamp) -> String {
    let container = blocker.container.as_ref();
    let container = container.map_or_else(String::new, |name| format!(", container {name}"));
    let next = match blocker.next_retry {
        None => "none by itself".to_owned(),
        Some(at) if at <= now => "now".to_owned(),
        Some(at) => format!(
            "in {} ({})",
            human(at.as_second() - now.as_second()),
            api_time(at)
        ),
    };
    let since = blocker.since;
    format!(
        "pod {path}{container}: {}\n  what:       {}\n  since:      {} ago ({})\n  \
         who:        {}\n  next retry: {next}\n",
        blocker.reason,
        blocker.message,
        age(Some(since), now),
        api_time(since),
        blocker.waiting_for,
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_types::why::{BlockerView, Explanation};

    use super::text;

    const NOW: &str = "2026-11-21T04:00:30Z";

    fn pod(phase: &str, blocker: Option<BlockerView>) -> Explanation {
        Explanation {
            namespace: "default".to_owned(),
            pod: "web".to_owned(),
            uid: "u".to_owned(),
            phase: Some(phase.to_owned()),
            worker_state: "Sync".to_owned(),
            blocker,
            issues: Vec::new(),
            records: Vec::new(),
        }
    }

    fn blocker(next_retry: Option<&str>) -> BlockerView {
        BlockerView {
            reason: "ErrImagePull".to_owned(),
            container: Some("app".to_owned()),
            message: "image nope:1 not found".to_owned(),
            since: "2026-11-21T04:00:00Z".parse().expect("time"),
            next_retry: next_retry.map(|at| at.parse().expect("time")),
            waiting_for: "the agent, by itself".to_owned(),
        }
    }

    fn check(pod: &Explanation, expected: &str) {
        assert_eq!(text(pod, NOW.parse().expect("time")), expected);
    }

    #[test]
    fn there_is_one_blocker_or_the_pod_is_as_asked() {
        check(
            &pod("Running", None),
            "pod default/web is as asked (Running)\n",
        );
        check(
            &pod("Pending", None),
            "pod default/web has no blocker (Pending): it is being worked on\n",
        );
        for (next_retry, expected) in [
            (
                Some("2026-11-21T04:00:40Z"),
                "in 10s (2026-11-21T04:00:40Z)",
            ),
            (Some("2026-11-21T04:00:05Z"), "now"),
            (None, "none by itself"),
        ] {
            check(
                &pod("Pending", Some(blocker(next_retry))),
                &format!(
                    "pod default/web, container app: ErrImagePull\n  \
                     what:       image nope:1 not found\n  \
                     since:      30s ago (2026-11-21T04:00:00Z)\n  \
                     who:        the agent, by itself\n  \
                     next retry: {expected}\n"
                ),
            );
        }
    }

    #[test]
    fn what_led_to_it_is_told_in_order() {
        let mut pod = pod("Running", None);
        let touch = |kind: &str, name: &str, end: &str, message: Option<&str>, count: u32| {
            let touch = json!({"kind": kind, "name": name, "subject": "app", "state": end,
                "message": message, "count": count, "firstStartedAt": "2026-11-21T04:00:00Z",
                "startedAt": "2026-11-21T04:00:20Z", "durationSeconds": 0.25});
            serde_json::from_value(touch).expect("a touch")
        };
        pod.records = vec![
            touch("runtime", "PullImage", "failed", Some("no"), 4),
            touch("runtime", "StopContainer", "running", None, 1),
            touch("probe", "Startup", "succeeded", None, 1),
        ];
        check(
            &pod,
            "pod default/web is as asked (Running)\n  led to it:\n    \
             10s ago  runtime PullImage app, took 250ms: x4 failed no\n    \
             10s ago  runtime StopContainer app, took 250ms: running\n    \
             10s ago  probe Startup app, took 250ms\n",
        );
    }

    #[test]
    fn what_holds_nothing_up_is_a_note() {
        let kept = "MountVolume.SetUp failed for volume \"v\" : configmap \"c\" not found";
        let mut running = pod("Running", None);
        running.issues = vec![kept.to_owned()];
        check(
            &running,
            &format!("pod default/web is as asked (Running)\n  note:       {kept}\n"),
        );
    }
}
