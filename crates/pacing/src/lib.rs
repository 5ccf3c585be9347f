//! Concurrency and rate limits for callers that share a resource.
//!
//! For code that lets many callers use a few connections, disks or runtime calls, where a single
//! call may hang.
//!
//! # Entry points
//!
//! * [`run_with_permit`] runs work with a permit that is freed when the work takes too long
//! * [`Limiter`] bounds concurrent work and learns how long a permit may be held
//! * [`SharedByKey`] holds a lock, a semaphore or a running call for each key in use
//! * [`MissingFeature`] remembers for an interval that a peer does not have a feature
//! * [`RateLimit`] is a token bucket of [`windlass_units`] with a queue
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
//! const MAX_HOLD: Duration = Duration::from_millis(10);
//!
//! let permits = Arc::new(Semaphore::new(1));
//! let permit = Arc::clone(&permits).acquire_owned().await?;
//! let hung = tokio::spawn(run_with_permit(permit, MAX_HOLD, std::future::pending::<()>()));
//!
//! // the permit of the hung work is freed after MAX_HOLD
//! let permit = permits.acquire().await?;
//! assert_eq!(run_with_permit(permit, MAX_HOLD, async { "served" }).await, "served");
//! assert!(!hung.is_finished(), "it continues without its permit");
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run -p windlass-pacing --example share_permits` runs ten callers with two permits, one of
//! which hangs, and then a rate limit.
//!
//! # Guarantees
//!
//! * A permit is not a lock: a hung call loses its permit and continues without it.
//! * A [`RateLimit`] serves waiters in order of arrival; a waiter that is dropped uses no token.
//! * Time is tokio's, so that a simulation or a test can control it.
//!
//! # Limits
//!
//! A hung call still runs after its permit was freed, so more calls than permits may run. Nothing
//! is cancelled; the caller sets timeouts.
//! Limiters with a policy of their own stay in their crates: eviction (`https`), rejection by class
//! of caller (`auth`), permits that move with slow calls (`volumes`).

mod keyed;
mod limiter;
mod missing;
mod permit;
mod rate_limit;

pub use keyed::SharedByKey;
pub use limiter::Limiter;
pub use missing::MissingFeature;
pub use permit::run_with_permit;
pub use rate_limit::RateLimit;
