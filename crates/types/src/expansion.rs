//! What the node does about a claim that is to grow, and how that ends.

/// What is to be done about the volume of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpansionDecision {
    /// The node grows it.
    Grow(ExpansionTask),
    /// The claim has this many bytes, and the node has nothing to do for that.
    Has(u64),
    /// It is somebody else's turn, or can never be grown to that size: nothing is done until the
    /// claim says otherwise.
    NotNow,
}

/// A growth that the node is to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpansionTask {
    /// What it is to have.
    pub bytes: u64,
    /// The claim says so already: another node was faster, and each has to grow what it mounted.
    pub told: bool,
    /// The resizer says how far the growth is, and is told how it ends; an old one does not.
    pub followed: bool,
    /// If this fails for good it is infeasible: it failed before, and the claim's user has asked
    /// for another size since.
    pub last_try: bool,
}

/// Why a volume was not grown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpansionError {
    /// The driver is not there; nothing was tried.
    Away,
    /// The driver does not grow volumes on nodes.
    Unsupported,
    /// Not while it is in use; on this node it is not tried again (gRPC `FailedPrecondition`).
    InUse,
    /// Never to this size.
    Infeasible,
    /// Refused or failed.
    Failed,
    /// Nobody knows whether it happened.
    Uncertain,
}
