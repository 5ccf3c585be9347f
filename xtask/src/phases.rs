//! Phases of a pod start.

use windlass_node_proto::windlass_v1::StartTimings;

/// Min seconds of a printed phase.
const MIN_SECONDS: f64 = 0.01;

/// The phases in order: `1.24s = wait 0.01 + sandbox 0.52 + init 0.31 + start 0.40`. Phases that
/// are pending or shorter are omitted.
pub(crate) fn line(timings: &StartTimings) -> String {
    let Some(seen) = seconds(timings.seen.as_ref()) else {
        return String::new();
    };
    let steps = [
        ("wait", seconds(timings.dispatched.as_ref())),
        ("sandbox", seconds(timings.sandbox_ready.as_ref())),
        ("images", seconds(timings.images_ready.as_ref())),
        ("init", seconds(timings.init_done.as_ref())),
        ("start", seconds(timings.containers_started.as_ref())),
        ("observe", seconds(timings.running.as_ref())),
    ];
    let mut from = seen;
    let mut parts = Vec::new();
    for (name, moment) in steps {
        if let Some(moment) = moment {
            // Images and init containers overlap, so a later phase may end before an earlier one.
            if moment - from >= MIN_SECONDS {
                parts.push(format!("{name} {:.2}", moment - from));
            }
            from = from.max(moment);
        }
    }
    if parts.is_empty() {
        return String::new();
    }
    format!("{:.2}s = {}", from - seen, parts.join(" + "))
}

/// Time since the pod was first seen, as kubectl shortens it.
pub(crate) fn age(timings: &StartTimings) -> String {
    #[expect(clippy::disallowed_methods, reason = "display only")]
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.map(|now| now.as_secs_f64()).unwrap_or_default();
    let Some(seen) = seconds(timings.seen.as_ref()) else {
        return String::new();
    };
    match (now - seen).max(0.0) as u64 {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7200 => format!("{}m", seconds / 60),
        seconds => format!("{}h", seconds / 3600),
    }
}

fn seconds(moment: Option<&prost_types::Timestamp>) -> Option<f64> {
    moment.map(|moment| moment.seconds as f64 + f64::from(moment.nanos) / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i32) -> Option<prost_types::Timestamp> {
        Some(prost_types::Timestamp {
            seconds: 1000,
            nanos: millis * 1_000_000,
        })
    }

    #[test]
    fn start_line_has_completed_phases() {
        let timings = StartTimings {
            seen: at(0),
            dispatched: at(20),
            images_ready: at(511),
            sandbox_ready: at(510),
            containers_started: at(700),
            ..StartTimings::default()
        };
        assert_eq!(
            line(&timings),
            "0.70s = wait 0.02 + sandbox 0.49 + start 0.19"
        );
        assert_eq!(line(&StartTimings::default()), "");
    }
}
