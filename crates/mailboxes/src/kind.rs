//! The label of an actor.

use std::fmt;

/// Name of an actor and the bound of its mailbox. The crate of an actor has one as a constant, with
/// the arithmetic of the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActorKind {
    name: &'static str,
    mailbox_bound: usize,
}

impl ActorKind {
    /// A kind with a name for metrics and logs, and the capacity of its mailbox in messages.
    pub const fn new(name: &'static str, mailbox_bound: usize) -> Self {
        Self {
            name,
            mailbox_bound,
        }
    }

    /// Name in metrics, logs and documents.
    pub const fn as_str(self) -> &'static str {
        self.name
    }

    /// Returns the capacity of the mailbox.
    pub const fn mailbox_bound(self) -> usize {
        self.mailbox_bound
    }
}

impl fmt::Display for ActorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
