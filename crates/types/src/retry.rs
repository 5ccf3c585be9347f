//! Retry classes of errors.

crate::text_enum! {
    /// When to retry a failed operation.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Retry {
        /// After about 1 s: a transient error (runtime unreachable, network not ready).
        Soon = "soon",
        /// After about 10 s or a change: an error of this pod or request.
        Later = "later",
        /// Not before the user changes something.
        Never = "never",
    }
}
