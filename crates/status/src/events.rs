//! Recorder of pod events: a bounded list per pod, in which repeats are counted.

use std::sync::Arc;

use windlass_types::view::{EventType, PodEvent};
use windlass_types::{Clock, ContainerProbe, EventRecorder, Pod, PodExt, Reason};

use crate::status_store::PodStatusStore;

/// Maximum number of events per pod: about ten for each crash-looping container with pull errors.
const EVENTS_PER_POD: usize = 32;

/// Records events in the pod status store and the log.
#[derive(Clone, Debug)]
pub struct EventLog {
    status_store: PodStatusStore,
    clock: Arc<dyn Clock>,
}

impl EventLog {
    /// Creates a recorder that writes to `status_store`.
    pub fn new(status_store: PodStatusStore, clock: Arc<dyn Clock>) -> Self {
        Self {
            status_store,
            clock,
        }
    }

    fn add(&self, pod: &Pod, event: PodEvent) {
        tracing::info!(
            pod = %pod.full_name(),
            container = event.container.as_deref().unwrap_or_default(),
            kind = event.event_type.as_str(),
            reason = %event.reason,
            text = event.message,
            "event"
        );
        self.status_store.update(&pod.uid(), |entry| {
            let same = |e: &PodEvent| {
                e.reason == event.reason
                    && e.container == event.container
                    && e.message == event.message
            };
            if let Some(at) = entry.events.iter().position(same) {
                // the newest event is last
                let mut repeated = entry.events.remove(at);
                repeated.count += 1;
                repeated.last = event.last;
                entry.events.push(repeated);
                return;
            }
            if entry.events.len() == EVENTS_PER_POD {
                entry.events.remove(0);
            }
            entry.events.push(event);
        });
    }

    fn event(&self, event_type: EventType, reason: Reason, message: &str) -> PodEvent {
        let now = self.clock.now();
        PodEvent {
            event_type,
            reason,
            container: None,
            probe: None,
            message: message.to_owned(),
            count: 1,
            first: now,
            last: now,
        }
    }
}

impl EventRecorder for EventLog {
    fn record(
        &self,
        pod: &Pod,
        container: Option<&str>,
        event_type: EventType,
        reason: Reason,
        message: &str,
    ) {
        let event = PodEvent {
            container: container.map(str::to_owned),
            ..self.event(event_type, reason, message)
        };
        self.add(pod, event);
    }

    fn record_probe(
        &self,
        pod: &Pod,
        probe: ContainerProbe<'_>,
        event_type: EventType,
        reason: Reason,
        message: &str,
    ) {
        let event = PodEvent {
            container: Some(probe.container.to_owned()),
            probe: Some(probe.kind),
            ..self.event(event_type, reason, message)
        };
        self.add(pod, event);
    }

    fn record_node(&self, event_type: EventType, reason: Reason, message: &str) {
        tracing::info!(kind = event_type.as_str(), %reason, text = message, "node event");
    }
}

#[cfg(test)]
mod tests {
    use windlass_types::Timestamp;

    use super::*;
    use crate::status_store::PodStatusEntry;

    #[derive(Debug)]
    struct Fixed;

    impl Clock for Fixed {
        fn now(&self) -> Timestamp {
            Timestamp::UNIX_EPOCH
        }
    }

    #[test]
    fn repeats_are_counted_and_full_list_drops_oldest() {
        let mut pod = Pod::default();
        pod.metadata.uid = Some("u".into());
        let pod = Arc::new(pod);
        let status_store = PodStatusStore::new();
        status_store.publish(PodStatusEntry::new(Arc::clone(&pod)));
        let log = EventLog::new(status_store.clone(), Arc::new(Fixed));
        let record = |container, message: &str| {
            log.record(
                &pod,
                Some(container),
                EventType::Warning,
                Reason::BackOff,
                message,
            );
        };
        let lines = || -> Vec<String> {
            let events = status_store.get(&pod.uid()).expect("entry").events;
            let name = |e: &PodEvent| e.container.clone().unwrap_or_default();
            let line = |e: &PodEvent| format!("{}x {} {}", e.count, name(e), e.message);
            events.iter().map(line).collect()
        };
        for (container, message) in [("a", "x"), ("b", "x"), ("a", "x"), ("a", "y")] {
            record(container, message);
        }
        assert_eq!(lines(), ["1x b x", "2x a x", "1x a y"]);
        for n in 0..EVENTS_PER_POD - 1 {
            record("c", &n.to_string());
        }
        let kept = lines();
        assert_eq!(kept.len(), EVENTS_PER_POD);
        assert_eq!(kept[0], "1x a y");
    }
}
