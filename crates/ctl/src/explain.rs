//! `explain pod`: the one thing that keeps a pod from what was asked.

use std::io::{self, Write};

use serde_json::{Value, json};
use windlass_types::{Timestamp, api_time};

use crate::age::{age, human};
use crate::args::ExplainArgs;
use crate::client::Client;
use crate::error::Error;
use crate::pod::{self, PodView};

/// Runs the command.
pub(crate) async fn run(mut client: Client, args: &ExplainArgs) -> Result<(), Error> {
    let view = pod::find(&mut client, &args.pod.namespace, &args.pod.name).await?;
    let text = match args.output {
        None => text(&view, crate::now()),
        Some(_json) => format!("{:#}\n", object(&view)),
    };
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

/// The explanation for a person.
pub(crate) fn text(view: &PodView, now: Timestamp) -> String {
    let notes = view.entry.notes.iter();
    let notes = notes.map(|note| format!("  note:       {note}\n"));
    held_up_by(view, now) + &notes.collect::<String>()
}

fn held_up_by(view: &PodView, now: Timestamp) -> String {
    let Some(blocker) = &view.entry.blocker else {
        let phase = view.status().phase.unwrap_or_else(|| "Unknown".to_owned());
        return match phase.as_str() {
            "Running" | "Succeeded" => format!("pod {} is as asked ({phase})\n", view.path()),
            _ => format!(
                "pod {} has no blocker ({phase}): it is being worked on\n",
                view.path()
            ),
        };
    };
    let container = blocker.container.as_ref();
    let container = container.map_or_else(String::new, |name| format!(", container {name}"));
    let since = blocker.since.and_then(pod::time);
    let next = match blocker.next_retry.and_then(pod::time) {
        None => "none by itself: something must change first".to_owned(),
        Some(at) if at <= now => "now".to_owned(),
        Some(at) => format!(
            "in {} ({})",
            human(at.as_second() - now.as_second()),
            api_time(at)
        ),
    };
    let since = match since {
        Some(at) => format!("{} ago ({})", age(Some(at), now), api_time(at)),
        None => "unknown".to_owned(),
    };
    format!(
        "pod {}{container}: {}\n  what:       {}\n  since:      {since}\n  next retry: {next}\n",
        view.path(),
        blocker.reason,
        blocker.message,
    )
}

/// The explanation for a program.
fn object(view: &PodView) -> Value {
    let time = |time: Option<prost_types::Timestamp>| time.and_then(pod::time);
    let blocker = view.entry.blocker.as_ref().map(|blocker| {
        json!({
            "reason": blocker.reason,
            "container": blocker.container,
            "message": blocker.message,
            "since": time(blocker.since),
            "nextRetry": time(blocker.next_retry),
        })
    });
    json!({
        "namespace": view.pod.metadata.namespace,
        "pod": view.pod.metadata.name,
        "phase": view.status().phase,
        "workerPhase": view.entry.worker_phase,
        "blocker": blocker,
        "notes": view.entry.notes,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_proto::windlass_v1::Blocker;

    use super::{object, text};
    use crate::pod::PodView;
    use crate::pod::tests::view;

    fn pod(phase: &str, blocker: Option<Blocker>) -> PodView {
        let mut view = view(&json!({
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"containers": []},
            "status": {"phase": phase},
        }));
        view.entry.blocker = blocker;
        view
    }

    fn blocker(next_retry: Option<i64>) -> Blocker {
        let at = |seconds| prost_types::Timestamp { seconds, nanos: 0 };
        Blocker {
            reason: "ErrImagePull".to_owned(),
            container: Some("app".to_owned()),
            message: "image nope:1 not found".to_owned(),
            since: Some(at(1_795_233_600)),
            next_retry: next_retry.map(|after| at(1_795_233_600 + after)),
        }
    }

    fn check(view: &PodView, expected: &str) {
        let now = "2026-11-21T04:00:30Z".parse().expect("time");
        assert_eq!(text(view, now), expected);
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
        check(
            &pod("Pending", Some(blocker(Some(40)))),
            "pod default/web, container app: ErrImagePull\n  \
             what:       image nope:1 not found\n  \
             since:      30s ago (2026-11-21T04:00:00Z)\n  \
             next retry: in 10s (2026-11-21T04:00:40Z)\n",
        );
        assert!(
            text(&pod("Pending", Some(blocker(None))), Default::default())
                .ends_with("next retry: none by itself: something must change first\n")
        );
        let late = text(
            &pod("Pending", Some(blocker(Some(5)))),
            "2026-11-21T04:00:30Z".parse().expect("time"),
        );
        assert!(late.ends_with("next retry: now\n"));
    }

    #[test]
    fn what_holds_nothing_up_is_a_note() {
        let kept = "MountVolume.SetUp failed for volume \"v\" : configmap \"c\" not found";
        let mut running = pod("Running", None);
        running.entry.notes = vec![kept.to_owned()];
        check(
            &running,
            &format!("pod default/web is as asked (Running)\n  note:       {kept}\n"),
        );
        assert_eq!(object(&running)["notes"][0], kept);
        assert!(object(&running)["blocker"].is_null());
    }

    #[test]
    fn programs_get_absent_values_as_null() {
        let value = object(&pod("Pending", Some(blocker(None))));
        assert_eq!(value["blocker"]["since"], "2026-11-21T04:00:00Z");
        assert!(value["blocker"]["nextRetry"].is_null());
        assert!(object(&pod("Running", None))["blocker"].is_null());
    }
}
