//! The clock of a server that was given none.

use std::time::SystemTime;

use tokio::time::Instant;
use windlass_types::{Clock, Timestamp};

/// The system's time when the server was made, and from there on tokio's: under paused time it
/// stands still with it.
#[derive(Debug)]
pub(crate) struct StartedAt {
    began: Timestamp,
    instant: Instant,
}

impl StartedAt {
    pub(crate) fn now() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place where the fake server's default clock is set"
        )]
        let began = Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::UNIX_EPOCH);
        Self {
            began,
            instant: Instant::now(),
        }
    }
}

impl Clock for StartedAt {
    fn now(&self) -> Timestamp {
        let elapsed = self.instant.elapsed();
        self.began.checked_add(elapsed).unwrap_or(self.began)
    }
}
