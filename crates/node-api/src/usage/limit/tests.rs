//! Limits and timeouts of scrapes.

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use futures::stream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use windlass_https::{Limits, Transport};

use super::*;

const MANY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

/// Acquires `count` response permits of as many addresses as needed; their collections have ended.
async fn acquire_responses(limiter: &ScrapeLimiter, count: usize) -> Vec<ResponsePermits> {
    let mut permits = Vec::new();
    for at in 0..count {
        let address = IpAddr::from(
            (at / MAX_RESPONSES_PER_ADDRESS)
                .to_be_bytes()
                .map(u16::from),
        );
        permits.push(limiter.acquire(address).await.expect("a permit").response);
    }
    permits
}

#[tokio::test(start_paused = true)]
async fn slow_address_does_not_delay_scrapes_of_others() {
    let limiter = ScrapeLimiter::new();
    let mut held = Vec::new();
    for _ in 0..MAX_RESPONSES_PER_ADDRESS {
        held.push(limiter.acquire(MANY).await.expect("a permit").response);
    }
    let waiting: Vec<_> = (0..250)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.acquire(MANY).await.is_none() })
        })
        .collect();
    tokio::task::yield_now().await;
    let begin = Instant::now();
    assert!(limiter.acquire(OTHER).await.is_some());
    assert_eq!(begin.elapsed(), Duration::ZERO);
    for one in waiting {
        assert!(one.await.expect("no panic"), "a permit was acquired");
    }
    assert_eq!(begin.elapsed(), ACQUIRE_TIMEOUT);
    held.pop();
    assert!(limiter.acquire(MANY).await.is_some());
    assert_eq!(begin.elapsed(), ACQUIRE_TIMEOUT);
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn scrape_limit_applies_to_all_addresses_with_timeout() {
    let limiter = ScrapeLimiter::new();
    let mut all = acquire_responses(&limiter, MAX_RESPONSES).await;
    let begin = Instant::now();
    assert!(limiter.acquire(MANY).await.is_none());
    assert_eq!(begin.elapsed(), ACQUIRE_TIMEOUT);
    all.pop();
    let last = limiter.acquire(MANY).await.expect("a permit");
    assert!(limiter.acquire(OTHER).await.is_none());
    drop((all, last));

    // a collection permit is released with the head of the response
    let mut collecting = Vec::new();
    for at in 0..MAX_COLLECTIONS {
        let address = IpAddr::from([10, 0, 1, at as u8]);
        collecting.push(limiter.acquire(address).await.expect("a permit"));
    }
    assert!(limiter.acquire(OTHER).await.is_none());
    let ScrapePermit {
        collection,
        response,
    } = collecting.remove(0);
    drop(collection);
    assert!(limiter.acquire(OTHER).await.is_some());
    drop((response, collecting));
}

fn routes(
    limiter: &ScrapeLimiter,
    body: impl Fn() -> Body + Clone + Send + Sync + 'static,
) -> Router {
    let handler = move || {
        let body = body();
        async move { body }
    };
    let routes = Router::new().route("/", get(handler));
    routes.layer(from_fn_with_state(limiter.clone(), limit_scrapes))
}

async fn get_root(routes: &Router) -> Response {
    let request = Request::new(Body::empty());
    routes.clone().oneshot(request).await.expect("answer")
}

#[tokio::test(start_paused = true)]
async fn scrape_holds_permit_until_written_or_timeout() {
    let routes = routes(&ScrapeLimiter::new(), || Body::from("samples"));
    let mut held = Vec::new();
    for _ in 1..MAX_RESPONSES_PER_ADDRESS {
        held.push(get_root(&routes).await.into_body().into_data_stream());
    }
    let mut parts = get_root(&routes).await.into_body().into_data_stream();
    let part = parts.next().await.expect("a part").expect("bytes");
    assert_eq!(part, "samples");
    assert!(parts.next().await.is_none());
    drop(parts);
    // the connection has it, the client does not
    let rejected = get_root(&routes).await;
    assert_eq!(rejected.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(rejected.headers()[RETRY_AFTER], "1");
    drop(part);
    let begin = Instant::now();
    let last = get_root(&routes).await;
    assert_eq!(last.status(), StatusCode::OK);
    assert_eq!(begin.elapsed(), Duration::ZERO);
    sleep(WRITE_TIMEOUT - ACQUIRE_TIMEOUT).await;
    assert_eq!(get_root(&routes).await.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn unread_scrape_body_is_dropped_after_timeout() {
    let samples = Arc::new(());
    let kept = Arc::downgrade(&samples);
    let made = Mutex::new(Some(samples));
    let made = Arc::new(made);
    let routes = routes(&ScrapeLimiter::new(), move || {
        let samples = made.lock().take();
        let parts = stream::repeat_with(move || {
            let _kept = &samples;
            Ok::<_, Infallible>(Bytes::from_static(b"x"))
        });
        Body::from_stream(parts)
    });
    let mut parts = get_root(&routes).await.into_body().into_data_stream();
    assert!(parts.next().await.expect("a part").is_ok());
    sleep(WRITE_TIMEOUT - Duration::from_millis(1)).await;
    assert!(kept.upgrade().is_some());
    sleep(Duration::from_millis(2)).await;
    assert!(kept.upgrade().is_none(), "the rest is not polled");
    let error = parts.next().await.expect("an end").expect_err("an error");
    assert_eq!(error.to_string(), WriteTimeout.to_string());
}

#[tokio::test]
async fn scrape_body_is_copied_in_small_parts() {
    let whole: Bytes = (0..5 * PART_BYTES / 2).map(|at| at as u8).collect();
    let answer = whole.clone();
    let routes = routes(&ScrapeLimiter::new(), move || Body::from(answer.clone()));
    let parts = get_root(&routes).await.into_body().into_data_stream();
    let parts: Vec<Bytes> = parts.map(|part| part.expect("bytes")).collect().await;
    let lengths: Vec<_> = parts.iter().map(Bytes::len).collect();
    assert_eq!(lengths, [PART_BYTES, PART_BYTES, PART_BYTES / 2]);
    assert_eq!(parts.concat(), whole);
    let range = whole.as_ptr_range();
    assert!(!parts.iter().any(|part| range.contains(&part.as_ptr())));
}

#[tokio::test(start_paused = true)]
async fn unread_connection_is_closed_after_write_timeout() {
    const WHOLE: usize = 32 << 20;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let routes = routes(&ScrapeLimiter::new(), || Body::from(vec![b'x'; WHOLE]));
    let end = CancellationToken::new();
    let served = windlass_https::serve(
        listener,
        routes,
        Transport::Plain,
        Limits::default(),
        end.clone(),
    );
    let server = tokio::spawn(served);
    let mut client = TcpStream::connect(address).await.expect("connected");
    let request = b"GET / HTTP/1.1\r\nhost: n1\r\n\r\n";
    client.write_all(request).await.expect("sent");
    client.readable().await.expect("a head");
    sleep(WRITE_TIMEOUT + Duration::from_secs(1)).await;
    let mut read = Vec::new();
    // an end or a reset, depending on the kernel
    let _ = timeout(WRITE_TIMEOUT, client.read_to_end(&mut read))
        .await
        .expect("an end");
    assert!(read.starts_with(b"HTTP/1.1 200 "));
    assert!(read.len() < WHOLE, "{} bytes", read.len());
    end.cancel();
    server.await.expect("no panic");
}
