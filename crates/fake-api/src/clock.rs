//! The default clock of a server.

use std::time::SystemTime;

use tokio::time::Instant;
use windlass_types::{Clock, Timestamp};

/// The system time at the start of the server, advanced by tokio's clock, which may be paused.
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
