//! How many at a time, and how many a second: the pace of calls that share something.
//!
//! For whoever lets many callers use a few places (connections, disks, a runtime's attention) and
//! cannot trust each of them to come back.
//!
//! # The way in
//!
//! * [`run_with_permit`] runs work in a place that it loses when it takes too long
//! * [`Limiter`] runs at most so many pieces of work at once, and learns how long each may keep its
//!   permit
//! * [`RateLimit`] is a token bucket with a queue
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use tokio::sync::Semaphore;
//! use windlass_pacing::run_with_permit;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! const TERM: Duration = Duration::from_millis(10);
//!
//! let places = Arc::new(Semaphore::new(1));
//! let place = Arc::clone(&places).acquire_owned().await?;
//! let sick = tokio::spawn(run_with_permit(place, TERM, std::future::pending::<()>()));
//!
//! // the only place is free again when the term of the one that hangs is over
//! let place = places.acquire().await?;
//! assert_eq!(run_with_permit(place, TERM, async { "served" }).await, "served");
//! assert!(!sick.is_finished(), "it goes on without its place");
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run -p windlass-pacing --example share_places` has ten callers share two places, one of
//! them sick, and then a rate.
//!
//! # What it promises
//!
//! * Neither is a lock. A call that hangs loses its place and goes on without, so that the sick do
//!   not stop the healthy.
//! * A [`RateLimit`] lets waiters through in the order in which they came; one that gives up has
//!   cost the others nothing.
//! * Time is tokio's, so that a simulation or a test can move it.
//!
//! # What it does not do
//!
//! A place that was lost is not taken back: for a while more may be at work than there are places,
//! by as many as hang. Nothing is cancelled: whoever wants work to end puts a timeout on it.

mod limiter;
mod permit;
mod rate_limit;

pub use limiter::Limiter;
pub use permit::run_with_permit;
pub use rate_limit::RateLimit;
