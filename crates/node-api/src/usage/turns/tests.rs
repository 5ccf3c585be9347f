//! Who waits for whom, and for how long.

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

/// Places of as many addresses as it takes, which are measured no more.
async fn answers(turns: &Turns, count: usize) -> Vec<AnswerPlace> {
    let mut places = Vec::new();
    for at in 0..count {
        let address = IpAddr::from((at / OF_ONE_ADDRESS).to_be_bytes().map(u16::from));
        places.push(turns.take(address).await.expect("a turn").answer);
    }
    places
}

#[tokio::test(start_paused = true)]
async fn an_address_that_takes_no_answers_waits_for_itself_and_nobody_else_does() {
    let turns = Turns::new();
    let mut held = Vec::new();
    for _ in 0..OF_ONE_ADDRESS {
        held.push(turns.take(MANY).await.expect("a turn").answer);
    }
    let waiting: Vec<_> = (0..250)
        .map(|_| {
            let turns = turns.clone();
            tokio::spawn(async move { turns.take(MANY).await.is_none() })
        })
        .collect();
    tokio::task::yield_now().await;
    let begin = Instant::now();
    assert!(turns.take(OTHER).await.is_some());
    assert_eq!(begin.elapsed(), Duration::ZERO);
    for one in waiting {
        assert!(one.await.expect("no panic"), "it got a turn");
    }
    assert_eq!(begin.elapsed(), MOST_WAITING);
    held.pop();
    assert!(turns.take(MANY).await.is_some());
    assert_eq!(begin.elapsed(), MOST_WAITING);
    drop(held);
    drop(turns.of(OTHER));
    assert_eq!(lock(&turns.0.of_addresses).len(), 1, "old ones are kept");
}

#[tokio::test(start_paused = true)]
async fn all_places_together_are_bounded_and_a_wait_for_one_has_an_end() {
    let turns = Turns::new();
    let mut all = answers(&turns, ANSWERS).await;
    let begin = Instant::now();
    assert!(turns.take(MANY).await.is_none());
    assert_eq!(begin.elapsed(), MOST_WAITING);
    all.pop();
    let last = turns.take(MANY).await.expect("a turn");
    assert!(turns.take(OTHER).await.is_none());
    drop((all, last));

    // who is measured makes room with the head of the answer
    let mut measured = Vec::new();
    for at in 0..MEASURING {
        let address = IpAddr::from([10, 0, 1, at as u8]);
        measured.push(turns.take(address).await.expect("a turn"));
    }
    assert!(turns.take(OTHER).await.is_none());
    let Turn { measuring, answer } = measured.remove(0);
    drop(measuring);
    assert!(turns.take(OTHER).await.is_some());
    drop((answer, measured));
}

fn routes(turns: &Turns, body: impl Fn() -> Body + Clone + Send + Sync + 'static) -> Router {
    let handler = move || {
        let body = body();
        async move { body }
    };
    let routes = Router::new().route("/", get(handler));
    routes.layer(from_fn_with_state(turns.clone(), in_turn))
}

async fn ask(routes: &Router) -> Response {
    let request = Request::new(Body::empty());
    routes.clone().oneshot(request).await.expect("answer")
}

#[tokio::test(start_paused = true)]
async fn a_scrape_keeps_its_place_until_its_answer_is_written_or_a_minute_has_passed() {
    let routes = routes(&Turns::new(), || Body::from("figures"));
    let mut held = Vec::new();
    for _ in 1..OF_ONE_ADDRESS {
        held.push(ask(&routes).await.into_body().into_data_stream());
    }
    let mut parts = ask(&routes).await.into_body().into_data_stream();
    let part = parts.next().await.expect("a part").expect("bytes");
    assert_eq!(part, "figures");
    assert!(parts.next().await.is_none());
    drop(parts);
    // the connection has it, the client does not
    let refused = ask(&routes).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers()[RETRY_AFTER], "1");
    drop(part);
    let begin = Instant::now();
    let last = ask(&routes).await;
    assert_eq!(last.status(), StatusCode::OK);
    assert_eq!(begin.elapsed(), Duration::ZERO);
    sleep(MOST_SENDING - MOST_WAITING).await;
    assert_eq!(ask(&routes).await.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_taken_within_a_minute_is_dropped_and_the_answer_ends_with_an_error() {
    let figures = Arc::new(());
    let kept = Arc::downgrade(&figures);
    let made = Mutex::new(Some(figures));
    let made = Arc::new(made);
    let routes = routes(&Turns::new(), move || {
        let figures = lock(&made).take();
        let parts = stream::repeat_with(move || {
            let _kept = &figures;
            Ok::<_, Infallible>(Bytes::from_static(b"x"))
        });
        Body::from_stream(parts)
    });
    let mut parts = ask(&routes).await.into_body().into_data_stream();
    assert!(parts.next().await.expect("a part").is_ok());
    sleep(MOST_SENDING - Duration::from_millis(1)).await;
    assert!(kept.upgrade().is_some());
    sleep(Duration::from_millis(2)).await;
    assert!(kept.upgrade().is_none(), "nobody asked for more");
    let error = parts.next().await.expect("an end").expect_err("an error");
    assert_eq!(error.to_string(), NotTaken.to_string());
}

#[tokio::test]
async fn a_connection_is_given_an_answer_in_small_parts_that_keep_nothing_else() {
    let whole: Bytes = (0..5 * PART / 2).map(|at| at as u8).collect();
    let answer = whole.clone();
    let routes = routes(&Turns::new(), move || Body::from(answer.clone()));
    let parts = ask(&routes).await.into_body().into_data_stream();
    let parts: Vec<Bytes> = parts.map(|part| part.expect("bytes")).collect().await;
    let lengths: Vec<_> = parts.iter().map(Bytes::len).collect();
    assert_eq!(lengths, [PART, PART, PART / 2]);
    assert_eq!(parts.concat(), whole);
    let range = whole.as_ptr_range();
    assert!(!parts.iter().any(|part| range.contains(&part.as_ptr())));
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_client_does_not_read_ends_after_a_minute() {
    const WHOLE: usize = 32 << 20;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let routes = routes(&Turns::new(), || Body::from(vec![b'x'; WHOLE]));
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
    sleep(MOST_SENDING + Duration::from_secs(1)).await;
    let mut read = Vec::new();
    // an end or a reset, whichever the kernel makes of it
    let _ = timeout(MOST_SENDING, client.read_to_end(&mut read))
        .await
        .expect("an end");
    assert!(read.starts_with(b"HTTP/1.1 200 "));
    assert!(read.len() < WHOLE, "{} bytes", read.len());
    end.cancel();
    server.await.expect("no panic");
}
