//! Retry classes: every error says what trying again would bring.

use std::fmt;

/// What the owner of a failed operation should do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Retry {
    /// Passing fault (runtime away, network not ready): again after about 1 s.
    Soon,
    /// Fault of this pod or request: again after about 10 s, or when something changes.
    Later,
    /// Trying again cannot help before the user changes something.
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
