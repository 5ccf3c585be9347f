//! Ten callers share two places, and one of them is sick. Then a rate.
//!
//! `cargo run -p windlass-pacing --example share_places` prints when each is served: the sick one
//! keeps its place for no longer than the run_with_permit.
//!
//! Runs without a container runtime.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use windlass_pacing::{RateLimit, run_with_permit};

/// What the work of a healthy caller takes, and of a sick one.
const HEALTHY: Duration = Duration::from_millis(50);
const SICK: Duration = Duration::from_millis(900);
/// Twice what the healthy take: after that a place goes to the next.
const TERM: Duration = Duration::from_millis(100);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let begin = Instant::now();
    let places = Arc::new(Semaphore::new(2));
    let mut callers = JoinSet::new();
    for caller in 0..10 {
        let place = Arc::clone(&places).acquire_owned();
        callers.spawn(async move {
            let place = place.await?;
            let got = begin.elapsed();
            let takes = if caller == 0 { SICK } else { HEALTHY };
            run_with_permit(place, TERM, sleep(takes)).await;
            Ok::<_, tokio::sync::AcquireError>((caller, got, begin.elapsed()))
        });
    }
    while let Some(ended) = callers.join_next().await {
        let (caller, got, done) = ended??;
        let (got, done) = (got.as_millis(), done.as_millis());
        println!("caller {caller} got a place after {got:3} ms and was through after {done:3} ms");
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
