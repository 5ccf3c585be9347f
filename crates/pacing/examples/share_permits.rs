//! Ten callers share two permits, and one of them hangs. Then a rate limit.
//!
//! `cargo run -p windlass-pacing --example share_permits` prints when each caller is served: the
//! slow one holds its permit for at most [`MAX_HOLD`].
//!
//! Runs without a container runtime.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use windlass_pacing::{RateLimit, run_with_permit};

/// Duration of the work of a normal and of a slow caller.
const NORMAL: Duration = Duration::from_millis(50);
const SLOW: Duration = Duration::from_millis(900);
/// Maximum time that a permit is held: twice the normal duration.
const MAX_HOLD: Duration = Duration::from_millis(100);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let begin = Instant::now();
    let permits = Arc::new(Semaphore::new(2));
    let mut callers = JoinSet::new();
    for caller in 0..10 {
        let permit = Arc::clone(&permits).acquire_owned();
        callers.spawn(async move {
            let permit = permit.await?;
            let got = begin.elapsed();
            let takes = if caller == 0 { SLOW } else { NORMAL };
            run_with_permit(permit, MAX_HOLD, sleep(takes)).await;
            Ok::<_, tokio::sync::AcquireError>((caller, got, begin.elapsed()))
        });
    }
    while let Some(ended) = callers.join_next().await {
        let (caller, got, done) = ended??;
        let (got, done) = (got.as_millis(), done.as_millis());
        println!("caller {caller} got a permit after {got:3} ms and ended after {done:3} ms");
    }

    let limit = RateLimit::new(20.0, 3).ok_or("20 a second is a limit")?;
    let begin = Instant::now();
    for call in 1..=6 {
        limit.take().await;
        println!(
            "call {call} of 20 a second after {:3} ms",
            begin.elapsed().as_millis()
        );
    }
    Ok(())
}
