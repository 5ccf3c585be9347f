//! Families of mailboxes of actors.

families! {
    /// Families of mailboxes of actors. Clones share them.
    MailboxMetrics

    pub depth: gauges("windlass_mailbox_depth", "Number of messages in the mailbox, by actor.", &["actor"]);
    pub oldest: gauges("windlass_mailbox_oldest_seconds",
        "Age in seconds of the oldest message in the mailbox, by actor.",
        &["actor"]);
    pub dropped: counters("windlass_mailbox_dropped_total",
        "Number of runtime events dropped because the mailbox was full, by actor; a relist recovers them.",
        &["actor"]);
    pub messages: counters("windlass_mailbox_messages_total",
        "Number of messages processed, by actor.",
        &["actor"]);
}
