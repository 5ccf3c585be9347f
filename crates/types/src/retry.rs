//! Retry classes of errors.

use std::fmt;

/// When to retry a failed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Retry {
    /// After about 1 s: a transient error (runtime unreachable, network not ready).
    Soon,
    /// After about 10 s or a change: an error of this pod or request.
    Later,
    /// Not before the user changes something.
    Never,
}

impl fmt::Display for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Soon => "soon",
            Self::Later => "later",
            Self::Never => "never",
        })
    }
}
