//! The rate limiter on paused time.

use std::time::Duration;

use futures::future::join_all;
use tokio::time::Instant;

use super::TokenBucket;

/// How long each of so many callers waits, in tenths of a second.
async fn waits(bucket: &TokenBucket, callers: usize) -> Vec<u128> {
    let begun = Instant::now();
    let takes = (0..callers).map(|_| async {
        bucket.take().await;
        begun.elapsed().as_millis() / 100
    });
    join_all(takes).await
}

#[tokio::test(start_paused = true)]
async fn tokens_are_earned_over_time_up_to_the_burst() {
    let bucket = TokenBucket::new(5.0, 2);
    assert_eq!(waits(&bucket, 4).await, [0, 0, 2, 4]);
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(waits(&bucket, 3).await, [0, 0, 2]);
}

#[tokio::test(start_paused = true)]
async fn pulls_that_are_given_up_cost_the_others_nothing() {
    let bucket = TokenBucket::new(1.0, 1);
    bucket.take().await;
    let given_up = (0..100).map(|_| tokio::time::timeout(Duration::from_millis(10), bucket.take()));
    assert!(join_all(given_up).await.iter().all(Result::is_err));
    let begun = Instant::now();
    bucket.take().await;
    assert!(begun.elapsed() <= Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn no_rate_is_no_limit() {
    let bucket = TokenBucket::new(0.0, 0);
    assert_eq!(waits(&bucket, 1000).await, [0; 1000]);
}
