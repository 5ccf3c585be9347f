//! Families of mailboxes of actors.

use prometheus::{CounterVec, GaugeVec};

use crate::Registrar;

/// Handles to the families. Clones share them.
#[derive(Clone, Debug)]
pub struct MailboxMetrics {
    /// `windlass_mailbox_depth{actor}`: messages waiting.
    pub depth: GaugeVec,
    /// `windlass_mailbox_oldest_seconds{actor}`: age of the oldest waiting message.
    pub oldest: GaugeVec,
    /// `windlass_mailbox_dropped_total{actor}`: runtime events dropped because the mailbox was full.
    pub dropped: CounterVec,
    /// `windlass_mailbox_messages_total{actor}`: messages handled.
    pub messages: CounterVec,
}

impl MailboxMetrics {
    /// Creates and registers the families.
    ///
    /// # Errors
    /// A family of the same name is registered.
    pub fn new(r: &Registrar<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            depth: r.gauges("windlass_mailbox_depth", "Number of messages in the mailbox, by actor.", &["actor"])?,
            oldest: r.gauges("windlass_mailbox_oldest_seconds", "Age in seconds of the oldest message in the mailbox, by actor.", &["actor"])?,
            dropped: r.counters("windlass_mailbox_dropped_total", "Number of runtime events dropped because the mailbox was full, by actor; a relist recovers them.", &["actor"])?,
            messages: r.counters("windlass_mailbox_messages_total", "Number of messages processed, by actor.", &["actor"])?,
        })
    }
}
