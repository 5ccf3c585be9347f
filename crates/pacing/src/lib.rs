//! How many at a time, and how many a second: the pace of calls that share something.
//!
//! Neither is a lock. A place is [leased](lease): a call that hangs loses it and goes on without,
//! so the sick do not stop the healthy. A [`RateLimit`] lets waiters through in the order in which
//! they came, and one that gives up has cost the others nothing. Time is tokio's, so a simulation
//! can move it.

mod place;
mod rate_limit;

pub use place::lease;
pub use rate_limit::RateLimit;
