//! Requests to fake servers over loopback.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{Instant, sleep};
use windlass_pod_lifecycle::http_target::Scheme;

use super::*;

mod grpc;
mod http;
mod tls;

/// A timeout that is never reached.
const LONG: Duration = Duration::from_secs(30);

/// A timeout that is reached.
const SHORT: Duration = Duration::from_millis(200);

/// Starts a server that handles each connection.
async fn server<F, Fut>(each: F) -> SocketAddr
where
    F: Fn(TcpStream) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    serve(listener, each)
}

fn serve<F, Fut>(listener: TcpListener, each: F) -> SocketAddr
where
    F: Fn(TcpStream) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let address = listener.local_addr().expect("address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(each(stream));
        }
    });
    address
}

/// Reads a request to its empty line.
async fn request(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut read).await.expect("read") == 0 {
            break;
        }
    }
    String::from_utf8(read).expect("text")
}

/// Waits until the other side closes.
async fn until_closed(mut stream: TcpStream) {
    let mut rest = Vec::new();
    // a reset is also an end
    let _ = stream.read_to_end(&mut rest).await;
}

/// Starts a server that reads a request, responds and waits for the client to close.
async fn responds(bytes: &'static [u8]) -> SocketAddr {
    server(move |mut stream| async move {
        request(&mut stream).await;
        stream.write_all(bytes).await.expect("write");
        until_closed(stream).await;
    })
    .await
}

/// Starts a server that reads a request, responds and closes.
async fn responds_and_closes(bytes: &'static [u8]) -> SocketAddr {
    server(move |mut stream| async move {
        request(&mut stream).await;
        stream.write_all(bytes).await.expect("write");
    })
    .await
}

fn target(address: SocketAddr) -> HttpTarget {
    HttpTarget {
        scheme: Scheme::Http,
        host: address.ip().to_string(),
        port: address.port(),
        path: "/".to_owned(),
        headers: Vec::new(),
    }
}

/// Formats a result, with `ADDRESS` for the server and `OURS` for the client.
fn line(result: Result<HttpAnswer, CheckError>, address: SocketAddr) -> String {
    let text = match result {
        Ok(response) => {
            let body = String::from_utf8_lossy(&response.body).into_owned();
            match response.other_host {
                None => format!("{} {body:?}", response.status),
                Some(host) => format!("{} {body:?} to {host}", response.status),
            }
        }
        Err(error) => format!("{error:?}"),
    };
    text.replace(&address.to_string(), "ADDRESS")
}

async fn check(address: SocketAddr, expected: &str) {
    let result = NetChecks::new().http(&target(address), Some(LONG)).await;
    assert_eq!(line(result, address), expected);
}

/// Returns an address without a listener.
async fn closed_port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    listener.local_addr().expect("address")
}

/// Returns an address with a full accept queue, so that connections hang, and its guard.
async fn full_accept_queue() -> (SocketAddr, impl Send) {
    let socket = TcpSocket::new_v4().expect("socket");
    socket
        .bind("127.0.0.1:0".parse().expect("address"))
        .expect("bind");
    let listener = socket.listen(0).expect("listen");
    let address = listener.local_addr().expect("address");
    let mut waiting = Vec::new();
    while let Ok(Ok(stream)) = timeout(SHORT, TcpStream::connect(address)).await {
        waiting.push(stream);
    }
    (address, (listener, waiting))
}

#[tokio::test]
async fn tcp_check_succeeds_with_a_listener() {
    let address = server(until_closed).await;
    let checks = NetChecks::new();
    let host = address.ip().to_string();
    assert_eq!(checks.tcp(&host, address.port(), LONG).await, Ok(()));
    assert_eq!(checks.tcp("localhost", address.port(), LONG).await, Ok(()));
    let silent = closed_port().await;
    let why = format!("dial tcp {silent}: connect: connection refused");
    assert_eq!(
        checks.tcp(&host, silent.port(), LONG).await,
        Err(CheckError::Failed(why))
    );
}

#[tokio::test]
async fn connect_times_out() {
    let (address, _full) = full_accept_queue().await;
    let checks = NetChecks::new();
    let host = address.ip().to_string();
    let late = CheckError::ConnectTimedOut(SHORT);
    assert_eq!(
        checks.tcp(&host, address.port(), SHORT).await,
        Err(late.clone())
    );
    let http = checks.http(&target(address), Some(SHORT)).await;
    assert_eq!(http, Err(late.clone()));
    let grpc = checks.grpc(&host, address.port(), "", SHORT).await;
    assert_eq!(grpc, Err(late));
}

#[tokio::test]
async fn unknown_host_name_is_a_failure() {
    let found = NetChecks::new().tcp("no-such-host.invalid", 80, LONG).await;
    let why = "dial tcp: lookup no-such-host.invalid: no such host";
    assert_eq!(found, Err(CheckError::Failed(why.to_owned())));
}

#[tokio::test]
async fn concurrent_lookups_of_a_name_are_shared() {
    let names = names::Names::default();
    let asked = [names.addresses("localhost"), names.addresses("localhost")];
    let found = futures::future::join_all(asked).await;
    let addresses: Vec<_> = found
        .into_iter()
        .map(|found| found.expect("found"))
        .collect();
    assert!(Arc::ptr_eq(&addresses[0], &addresses[1]));
    assert!(
        addresses[0].iter().all(|ip| ip.is_loopback()),
        "{addresses:?}"
    );
}

/// Returns the number of half-closed or TIME_WAIT sockets.
fn leftover_sockets(address: SocketAddr) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("table");
    let remote = format!(":{:04X}", address.port());
    let rows = table.lines().skip(1).filter(|row| {
        let columns: Vec<&str> = row.split_whitespace().collect();
        // FIN_WAIT1, FIN_WAIT2, TIME_WAIT
        columns[2].ends_with(&remote) && matches!(columns[3], "04" | "05" | "06")
    });
    rows.count()
}

#[tokio::test]
async fn check_leaves_no_socket_when_it_closes_first() {
    let address = responds(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let checks = NetChecks::new();
    for _ in 0..20 {
        let result = checks.http(&target(address), Some(LONG)).await;
        assert_eq!(line(result, address), "200 \"\"");
        let host = address.ip().to_string();
        assert_eq!(checks.tcp(&host, address.port(), LONG).await, Ok(()));
    }
    // TIME_WAIT would last for a minute
    let deadline = Instant::now() + Duration::from_secs(10);
    while leftover_sockets(address) > 0 {
        assert!(
            Instant::now() < deadline,
            "{} left",
            leftover_sockets(address)
        );
        sleep(Duration::from_millis(10)).await;
    }
}
