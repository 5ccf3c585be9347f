//! Connections with a silent peer, on paused time.

use http_body_util::BodyExt;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::Instant;

use super::last_read::LastRead;
use super::*;

/// An HTTP/2 server behind a pipe that is cut after `cut`: open, but nothing passes.
fn server(cut: Duration) -> DuplexStream {
    let (client, near) = tokio::io::duplex(1 << 16);
    let (far, server) = tokio::io::duplex(1 << 16);
    tokio::spawn(async move {
        let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
            (tokio::io::split(near), tokio::io::split(far));
        let copy = async {
            let up = tokio::io::copy(&mut from_client, &mut to_server);
            let down = tokio::io::copy(&mut from_server, &mut to_client);
            let _ = tokio::join!(up, down);
        };
        let _ = tokio::time::timeout(cut, copy).await;
        std::future::pending::<()>().await;
        // held open until here
        let _ = (to_client.shutdown().await, from_client.read_u8().await);
    });
    let service = service_fn(async |_| {
        let never =
            futures::stream::pending::<Result<http_body::Frame<bytes::Bytes>, hyper::Error>>();
        Ok::<_, hyper::Error>(Response::new(http_body_util::StreamBody::new(never)))
    });
    tokio::spawn(async move {
        let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(server), service)
            .await;
    });
    client
}

#[tokio::test(start_paused = true)]
async fn watch_on_a_silent_connection_fails_within_23_seconds() {
    let began = Instant::now();
    let cut = Duration::from_secs(100);
    let sender = dial::http2(server(cut), &LastRead::new())
        .await
        .expect("connection");
    let request = Request::get("http://api/")
        .body(Body::empty())
        .expect("request");
    let response = sender.send(request).await.expect("answer");
    let ended = response.into_body().collect().await;
    assert!(ended.is_err(), "broken, not ended");
    let silent = began.elapsed() - cut;
    assert!(silent > Duration::from_secs(1), "{silent:?}");
    // the last response was up to one interval before the cut
    assert!(
        silent <= KEEP_ALIVE_INTERVAL + KEEP_ALIVE_TIMEOUT,
        "{silent:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn idle_connections_are_closed_after_a_peak() {
    let mut connections = Vec::new();
    for _ in 0..4 {
        let last = LastRead::new();
        let sender = dial::http2(server(Duration::MAX), &last).await;
        let connection = pool::Connection::new(sender.expect("connection"), last, 0);
        connections.push(Arc::new(connection));
    }
    let mut after = async |seconds: u64| {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        pool::drop_surplus(&mut connections);
        connections.len()
    };
    assert_eq!(after(80).await, 4, "the next burst may follow soon");
    assert_eq!(after(20).await, 1, "one is kept for the next request");
    let last = LastRead::new();
    let sender = dial::http2(server(Duration::MAX), &last).await;
    let busy = Arc::new(pool::Connection::new(sender.expect("connection"), last, 0));
    let lease = pool::Lease::new(&busy);
    connections.push(busy.clone());
    tokio::time::sleep(Duration::from_secs(100)).await;
    pool::drop_surplus(&mut connections);
    assert_eq!(connections.len(), 1, "the one in use has room");
    drop(lease);
    pool::drop_surplus(&mut connections);
    assert!(Arc::ptr_eq(&connections[0], &busy));
}

#[test]
fn dead_connection_is_replaced_within_30_seconds() {
    let total = KEEP_ALIVE_INTERVAL + KEEP_ALIVE_TIMEOUT + dial::DIAL_TIMEOUT;
    assert!(total < Duration::from_secs(30), "{total:?}");
}
