//! How a node names its pods with hung operations: in the message of its ready condition, which
//! stays true, and in an event of the node for each pod.
//!
//! A change of the message is a patch of the Node object, and an event is a request, so both are
//! limited: the first pods are named at once, and what flaps changes the message at most every ten
//! seconds. The list of all of them is in `windlassctl status` and the metrics.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use windlass_units::token_bucket::TokenBucket;

/// Maximum number of pods in the message, which every reader of the Node object receives.
const MAX_NAMED: usize = 5;
/// Interval between two changes of the message, after a burst: twice the rate at which the facts of
/// the node may change it.
const MESSAGE_INTERVAL: Duration = Duration::from_secs(10);
/// Changes of the message that name further pods at once.
const MESSAGE_BURST: u32 = 3;
/// Interval between two events, after a burst. The correlator allows the node 25 events, then one
/// in five minutes; most of them are left to other causes.
const EVENT_INTERVAL: Duration = Duration::from_secs(300);
/// Events of pods that are named at once.
const EVENT_BURST: u32 = 10;

/// A pod with hung operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HungPod {
    /// Namespace and name, or the UID of a pod that is not known by name.
    pub pod: String,
    /// Its oldest hung operation, with its start.
    pub operation: String,
    /// Number of its other hung operations.
    pub others: usize,
    /// False if all of them may be slow without a fault, such as a pull: they cause no event.
    pub has_event: bool,
}

impl HungPod {
    fn text(&self) -> String {
        match self.others {
            0 => self.operation.clone(),
            1 => format!("{} and 1 other operation", self.operation),
            others => format!("{} and {others} other operations", self.operation),
        }
    }
}

/// What a [`HungPodNames`] publishes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HungPodNaming {
    /// New text for the ready condition, if it changes; `Some(None)` removes it.
    pub message: Option<Option<String>>,
    /// Events of the node to record.
    pub events: Vec<String>,
    /// Time until something that waits is published.
    pub wait: Option<Duration>,
}

/// Decides when which pods are named. Time is monotonic.
#[derive(Debug)]
pub struct HungPodNames {
    message: Option<String>,
    named: BTreeSet<String>,
    with_event: BTreeSet<String>,
    changed_at: Option<Duration>,
    messages: TokenBucket,
    events: TokenBucket,
}

impl Default for HungPodNames {
    /// No pod is named.
    fn default() -> Self {
        Self {
            message: None,
            named: BTreeSet::new(),
            with_event: BTreeSet::new(),
            changed_at: None,
            messages: TokenBucket::new(MESSAGE_BURST, MESSAGE_INTERVAL),
            events: TokenBucket::new(EVENT_BURST, EVENT_INTERVAL),
        }
    }
}

impl HungPodNames {
    /// Takes in the pods that have hung operations now, oldest operation first.
    pub fn update(&mut self, pods: &[HungPod], now: Duration) -> HungPodNaming {
        let mut naming = HungPodNaming::default();
        self.name_in_events(pods, now, &mut naming);
        let text = message(pods);
        if text == self.message {
            return naming;
        }
        let shown: BTreeSet<String> = shown(pods).map(|it| it.pod.clone()).collect();
        let names_more = !shown.is_subset(&self.named);
        let wait = match self.changed_at {
            // an end is not urgent
            Some(at) if !names_more => (at + MESSAGE_INTERVAL).saturating_sub(now),
            _ => Duration::ZERO,
        };
        let wait = wait.max(self.messages.wait(now));
        if !wait.is_zero() {
            naming.wait = earlier(naming.wait, wait);
            return naming;
        }
        self.messages.try_take(now);
        self.changed_at = Some(now);
        self.named = shown;
        self.message.clone_from(&text);
        naming.message = Some(text);
        naming
    }

    fn name_in_events(&mut self, pods: &[HungPod], now: Duration, naming: &mut HungPodNaming) {
        let hung: BTreeSet<&str> = pods.iter().map(|it| &*it.pod).collect();
        self.with_event.retain(|pod| hung.contains(&**pod));
        let new = pods
            .iter()
            .filter(|it| it.has_event && !self.with_event.contains(&it.pod));
        let new: Vec<&HungPod> = new.collect();
        for pod in new {
            if !self.events.try_take(now) {
                naming.wait = earlier(naming.wait, self.events.wait(now));
                return;
            }
            self.with_event.insert(pod.pod.clone());
            naming.events.push(format!("{}: {}", pod.pod, pod.text()));
        }
    }
}

fn earlier(wait: Option<Duration>, other: Duration) -> Option<Duration> {
    Some(wait.map_or(other, |wait| wait.min(other)))
}

fn shown(pods: &[HungPod]) -> impl Iterator<Item = &HungPod> {
    pods.iter().take(MAX_NAMED)
}

/// Returns the text that follows the message of upstream; `None` without a pod.
fn message(pods: &[HungPod]) -> Option<String> {
    if pods.is_empty() {
        return None;
    }
    let named: Vec<String> = shown(pods)
        .map(|it| format!("{}: {}", it.pod, it.text()))
        .collect();
    let mut text = format!("pods with hung operations: {}", named.join("; "));
    let more = pods.len().saturating_sub(MAX_NAMED);
    if more > 0 {
        // writing to a string cannot fail
        let _ = write!(text, "; and {more} more");
    }
    Some(text)
}

#[cfg(test)]
mod tests;
