//! Expansion of the volume of a PVC on the node.

/// What the node does about the volume of a PVC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpansionDecision {
    /// Expand the volume.
    Expand(ExpansionTask),
    /// Nothing: the PVC reports this many bytes already.
    AlreadyExpanded(u64),
    /// Nothing until the PVC changes: the controller acts next, or the size is infeasible.
    Deferred,
}

/// An expansion to be carried out by the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpansionTask {
    /// The new size.
    pub bytes: u64,
    /// The PVC reports this size already: another node expanded it, and each node has to expand
    /// what it mounted.
    pub reported: bool,
    /// The resizer tracks progress in the PVC status and expects the result; an old one does not.
    pub tracked: bool,
    /// An error makes the size infeasible: the driver failed before, and the user has since
    /// requested another size.
    pub final_attempt: bool,
}

/// Why an expansion failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpansionError {
    /// The driver is not registered; nothing was tried.
    Away,
    /// The driver does not expand volumes on nodes.
    Unsupported,
    /// The volume is in use (gRPC `FailedPrecondition`); no retry on this node.
    InUse,
    /// The driver can never provide this size.
    Infeasible,
    /// The driver returned an error.
    Failed,
    /// The result is unknown.
    Uncertain,
}
