//! The rate limiter on paused time.

use std::time::Duration;

use tokio::time::Instant;

use super::TokenBucket;

#[tokio::test(start_paused = true)]
async fn tokens_are_earned_over_time_up_to_the_burst() {
    let bucket = TokenBucket::new(5.0, 2);
    let mut waits = Vec::new();
    let begun = Instant::now();
    for second in [0, 0, 0, 0, 10, 10, 10] {
        let wait = bucket.reserve(begun + Duration::from_secs(second));
        waits.push(wait.as_millis());
    }
    assert_eq!(waits, [0, 0, 200, 400, 0, 0, 200]);
}

#[tokio::test]
async fn no_rate_is_no_limit() {
    let bucket = TokenBucket::new(0.0, 0);
    for _ in 0..1000 {
        assert!(bucket.reserve(Instant::now()).is_zero());
    }
}
