//! `explain pod`: the blocker of a pod and its recent records.

use std::io::{self, Write};

use windlass_types::explain::{BlockerView, EvictionView, Explanation, ResizeView};
use windlass_types::{PodExt, Reason, Timestamp, api_time};

use crate::age::{age, human};
use crate::args::ExplainArgs;
use crate::client::Client;
use crate::error::Error;
use crate::pod::{self, PodView};
use crate::timeline;

pub(crate) async fn run(mut client: Client, args: &ExplainArgs) -> Result<(), Error> {
    let view = pod::find(&mut client, &args.pod.namespace, &args.pod.name).await?;
    let name = view.pod.metadata.name.as_deref().unwrap_or_default();
    let json = client.explain(&args.pod.namespace, name).await?;
    let explanation: Explanation =
        serde_json::from_slice(&json).map_err(|error| Error::InvalidResponse(error.to_string()))?;
    let text = match args.output {
        None => text(&explanation, crate::now()),
        Some(_json) => crate::pretty(&explanation)?,
    };
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

/// Returns the explanation of a listed pod, without records.
pub(crate) fn from_view(view: &PodView) -> Explanation {
    let time = |time: Option<prost_types::Timestamp>| time.and_then(pod::time);
    let blocker = view.entry.blocker.clone();
    Explanation {
        namespace: view.pod.namespace().to_owned(),
        pod: view.pod.name().to_owned(),
        uid: view.pod.uid().to_string(),
        phase: view.status().phase,
        worker_state: view.entry.worker_state.clone(),
        stale_status: view.entry.stale_status,
        blocker: blocker.map(|blocker| BlockerView {
            reason: blocker.reason,
            container: blocker.container,
            message: blocker.message,
            since: time(blocker.since).unwrap_or_default(),
            next_retry: time(blocker.next_retry),
            waiting_for: blocker.waiting_for,
        }),
        eviction: eviction(view),
        resize: ResizeView::from_status(&view.status()),
        issues: view.entry.issues.clone(),
        records: Vec::new(),
    }
}

/// Returns the eviction as the status of a listed pod says it.
fn eviction(view: &PodView) -> Option<EvictionView> {
    let status = view.status();
    let is_evicted = status.reason.as_deref() == Some(Reason::Evicted.as_str());
    is_evicted.then(|| EvictionView {
        message: status.message.unwrap_or_default(),
        evicted_at: None,
        explanation: None,
    })
}

pub(crate) fn text(pod: &Explanation, now: Timestamp) -> String {
    let path = format!("{}/{}", pod.namespace, pod.pod);
    let phase = pod.phase.as_deref().unwrap_or("Unknown");
    let mut text = match (&pod.blocker, phase) {
        (Some(blocker), _) => blocker_text(&path, blocker, now),
        (None, _) if pod.eviction.is_some() => format!("pod {path}: Evicted ({phase})\n"),
        (None, "Running") if pod.stale_status => {
            format!("pod {path}: not observed since the agent started (before: {phase})\n")
        }
        (None, "Running" | "Succeeded") => format!("pod {path}: no blocker ({phase})\n"),
        (None, _) => format!("pod {path}: no blocker ({phase}), sync in progress\n"),
    };
    if let Some(eviction) = &pod.eviction {
        text.push_str(&eviction_text(eviction, now));
    }
    if let Some(resize) = &pod.resize {
        text.push_str(&resize_text(resize, now));
    }
    let issues = pod.issues.iter();
    text.extend(issues.map(|issue| format!("  issue:       {issue}\n")));
    if !pod.records.is_empty() {
        text.push_str("  recent records:\n");
        let lines = pod.records.iter().map(|record| timeline::line(record, now));
        text.extend(lines.map(|line| format!("    {line}\n")));
    }
    text
}

fn eviction_text(eviction: &EvictionView, now: Timestamp) -> String {
    let mut text = match eviction.message.trim_end() {
        "" => String::new(),
        message => format!("  eviction:    {message}\n"),
    };
    if let Some(explanation) = &eviction.explanation {
        text.push_str(&format!("  because:     {explanation}\n"));
    }
    if let Some(at) = eviction.evicted_at {
        let ago = age(Some(at), now);
        text.push_str(&format!("  evicted:     {ago} ago ({})\n", api_time(at)));
    }
    text
}

fn resize_text(resize: &ResizeView, now: Timestamp) -> String {
    let since = resize.since.map_or_else(String::new, |since| {
        format!(
            "  since:       {} ago ({})\n",
            age(Some(since), now),
            api_time(since)
        )
    });
    let next = match resize.next_retry {
        Some(_) => format!("  next retry:  {}\n", next_retry(resize.next_retry, now)),
        None => String::new(),
    };
    format!(
        "  resize:      {}: {}\n{since}  waiting for: {}\n{next}",
        resize.reason, resize.message, resize.waiting_for
    )
}

fn next_retry(at: Option<Timestamp>, now: Timestamp) -> String {
    match at {
        None => "none (no automatic retry)".to_owned(),
        Some(at) if at <= now => "now".to_owned(),
        Some(at) => format!(
            "in {} ({})",
            human(at.as_second() - now.as_second()),
            api_time(at)
        ),
    }
}

fn blocker_text(path: &str, blocker: &BlockerView, now: Timestamp) -> String {
    let container = blocker.container.as_ref();
    let container = container.map_or_else(String::new, |name| format!(", container {name}"));
    let next = next_retry(blocker.next_retry, now);
    let since = blocker.since;
    format!(
        "pod {path}{container}: {}\n  message:     {}\n  since:       {} ago ({})\n  \
         waiting for: {}\n  next retry:  {next}\n",
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
    use windlass_types::explain::{BlockerView, EvictionView, Explanation, ResizeView};

    use super::text;

    const NOW: &str = "2026-11-21T04:00:30Z";

    fn pod(phase: &str, blocker: Option<BlockerView>) -> Explanation {
        Explanation {
            namespace: "default".to_owned(),
            pod: "web".to_owned(),
            uid: "u".to_owned(),
            phase: Some(phase.to_owned()),
            worker_state: "Sync".to_owned(),
            stale_status: false,
            blocker,
            eviction: None,
            resize: None,
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
            waiting_for: "agent (automatic retry)".to_owned(),
        }
    }

    fn check(pod: &Explanation, expected: &str) {
        assert_eq!(text(pod, NOW.parse().expect("time")), expected);
    }

    #[test]
    fn explain_reports_blocker_or_none() {
        check(
            &pod("Running", None),
            "pod default/web: no blocker (Running)\n",
        );
        let stale = Explanation {
            stale_status: true,
            ..pod("Running", None)
        };
        check(
            &stale,
            "pod default/web: not observed since the agent started (before: Running)\n",
        );
        check(
            &pod("Pending", None),
            "pod default/web: no blocker (Pending), sync in progress\n",
        );
        for (next_retry, expected) in [
            (
                Some("2026-11-21T04:00:40Z"),
                "in 10s (2026-11-21T04:00:40Z)",
            ),
            (Some("2026-11-21T04:00:05Z"), "now"),
            (None, "none (no automatic retry)"),
        ] {
            check(
                &pod("Pending", Some(blocker(next_retry))),
                &format!(
                    "pod default/web, container app: ErrImagePull\n  \
                     message:     image nope:1 not found\n  \
                     since:       30s ago (2026-11-21T04:00:00Z)\n  \
                     waiting for: agent (automatic retry)\n  \
                     next retry:  {expected}\n"
                ),
            );
        }
    }

    #[test]
    fn recent_records_are_listed_in_order() {
        let mut pod = pod("Running", None);
        let record = |kind: &str, name: &str, end: &str, message: Option<&str>, count: u32| {
            let record = json!({"kind": kind, "name": name, "subject": "app", "state": end,
                "message": message, "count": count, "firstStartedAt": "2026-11-21T04:00:00Z",
                "startedAt": "2026-11-21T04:00:20Z", "durationSeconds": 0.25});
            serde_json::from_value(record).expect("a record")
        };
        pod.records = vec![
            record("runtime", "PullImage", "failed", Some("no"), 4),
            record("runtime", "StopContainer", "running", None, 1),
            record("probe", "Startup", "succeeded", None, 1),
        ];
        check(
            &pod,
            "pod default/web: no blocker (Running)\n  recent records:\n    \
             10s ago  runtime PullImage app, took 250ms: x4 failed no\n    \
             10s ago  runtime StopContainer app, took 250ms: running\n    \
             10s ago  probe Startup app, took 250ms\n",
        );
    }

    #[test]
    fn evicted_pod_reports_signal_and_rank() {
        let mut evicted = pod("Failed", None);
        evicted.eviction = Some(EvictionView {
            message: "The node was low on resource: memory. ".to_owned(),
            evicted_at: None,
            explanation: None,
        });
        check(
            &evicted,
            "pod default/web: Evicted (Failed)\n  \
             eviction:    The node was low on resource: memory.\n",
        );
        evicted.eviction = Some(EvictionView {
            message: "The node was low on resource: memory. ".to_owned(),
            evicted_at: "2026-11-21T04:00:20Z".parse().ok(),
            explanation: Some("memory.available was 90Mi; ranked because …".to_owned()),
        });
        let lines = "  eviction:    The node was low on resource: memory.\n  \
                     because:     memory.available was 90Mi; ranked because …\n  \
                     evicted:     10s ago (2026-11-21T04:00:20Z)\n";
        check(
            &evicted,
            &format!("pod default/web: Evicted (Failed)\n{lines}"),
        );
    }

    #[test]
    fn pending_resize_says_what_it_waits_for() {
        let mut waits = pod("Running", None);
        let status = json!({"conditions": [{
            "type": "PodResizePending", "status": "True", "reason": "Deferred",
            "message": "Node didn't have enough resource: cpu, requested: 2000, used: 100, \
                        capacity: 2000",
            "lastTransitionTime": "2026-11-21T04:00:00Z",
        }]});
        let status = serde_json::from_value(status).expect("a status");
        waits.resize = Some(ResizeView {
            next_retry: "2026-11-21T04:02:30Z".parse().ok(),
            ..ResizeView::from_status(&status).expect("a resize")
        });
        check(
            &waits,
            "pod default/web: no blocker (Running)\n  \
             resize:      Deferred: Node didn't have enough resource: cpu, requested: 2000, \
             used: 100, capacity: 2000\n  \
             since:       30s ago (2026-11-21T04:00:00Z)\n  \
             waiting for: agent, when other pods have freed the resources (automatic retry)\n  \
             next retry:  in 2m (2026-11-21T04:02:30Z)\n",
        );
    }

    #[test]
    fn issue_without_blocker_is_reported() {
        let issue = "MountVolume.SetUp failed for volume \"v\" : configmap \"c\" not found";
        let mut running = pod("Running", None);
        running.issues = vec![issue.to_owned()];
        check(
            &running,
            &format!("pod default/web: no blocker (Running)\n  issue:       {issue}\n"),
        );
    }
}
