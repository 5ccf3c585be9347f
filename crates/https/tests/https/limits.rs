//! Limits of time, size and number.

use std::net::Ipv4Addr;
use std::time::Duration;

use http::Version;
use http_body_util::Full;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use windlass_https::{Limits, TlsChoice};

use crate::kit::{Dial, Http, Server, soon};

/// A server with short timeouts.
async fn server_with_short_timeouts() -> Server {
    let short = Duration::from_millis(100);
    let limits = Limits {
        handshake: short,
        first_request: short,
        idle: short,
        body: short,
        ..Limits::default()
    };
    Server::with(&TlsChoice::default(), limits).await
}

/// Reads until the server closes the connection.
async fn until_closed(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut read = Vec::new();
    let _ = soon("the connection's end", stream.read_to_end(&mut read)).await;
    String::from_utf8_lossy(&read).into_owned()
}

#[tokio::test]
async fn slow_handshake_is_closed() {
    let server = server_with_short_timeouts().await;
    let mut silent = TcpStream::connect(server.address).await.expect("connected");
    assert_eq!(until_closed(&mut silent).await, "");
    let mut slow = TcpStream::connect(server.address).await.expect("connected");
    // the record header of a ClientHello without its body
    slow.write_all(&[0x16, 3, 1, 2, 0, 1])
        .await
        .expect("written");
    assert_eq!(until_closed(&mut slow).await, "");
}

#[tokio::test]
async fn slow_header_or_idle_connection_is_closed() {
    let server = server_with_short_timeouts().await;
    let mut half = server.connect(None).await.expect("connected");
    half.write_all(b"GET /who HTTP/1.1\r\nhost")
        .await
        .expect("written");
    assert_eq!(until_closed(&mut half).await, "");
    let mut idle = server.connect(None).await.expect("connected");
    idle.write_all(b"GET /who HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .expect("written");
    let answer = until_closed(&mut idle).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let dial = Dial {
        alpn: b"h2",
        ..Dial::default()
    };
    let mut two = server.dial(dial).await.expect("connected");
    until_closed(&mut two).await;
}

#[tokio::test]
async fn slow_or_large_body_is_rejected() {
    let server = server_with_short_timeouts().await;
    let mut slow = server.connect(None).await.expect("connected");
    let head = b"POST /read HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nabc";
    slow.write_all(head).await.expect("written");
    let answer = until_closed(&mut slow).await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert!(answer.ends_with("timed out"), "{answer}");

    let server = Server::start().await;
    let stream = server.connect(None).await.expect("connected");
    let mut http = Http::over(stream, Version::HTTP_11).await;
    for (length, expected) in [(1 << 20, 200), ((1 << 20) + 1, 400)] {
        let request = http::Request::post("/read").header("host", "x");
        let body = Full::from(vec![0_u8; length]);
        let response = http.send(request.body(body).expect("a request")).await;
        assert_eq!(
            response.expect("answered").status().as_u16(),
            expected,
            "{length} bytes"
        );
    }
}

#[tokio::test]
async fn request_in_progress_is_not_idle() {
    let server = server_with_short_timeouts().await;
    let mut stream = server.connect(None).await.expect("connected");
    stream
        .write_all(b"GET /endless HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .expect("written");
    let mut begun = [0; 15];
    soon("its beginning", stream.read_exact(&mut begun))
        .await
        .expect("read");
    let three_times_as_long_as_idle = Duration::from_millis(300);
    let mut rest = Vec::new();
    let reading = stream.read_to_end(&mut rest);
    let cut = tokio::time::timeout(three_times_as_long_as_idle, reading).await;
    assert!(cut.is_err(), "{cut:?}");
}

#[tokio::test]
async fn header_of_ten_megabytes_is_rejected() {
    let server = Server::start().await;
    let mut large = server.connect(None).await.expect("connected");
    let writing = async {
        large
            .write_all(b"GET /who HTTP/1.1\r\nhost: x\r\nx-large: ")
            .await?;
        for _ in 0..160 {
            large.write_all(&[b'x'; 64 << 10]).await?;
        }
        large.write_all(b"\r\n\r\n").await
    };
    // the server need not read to the end
    let written = soon("the header", writing).await;
    let answer = until_closed(&mut large).await;
    let refused = answer.starts_with("HTTP/1.1 431");
    assert!(refused || written.is_err(), "{written:?} {answer:?}");

    let dial = Dial {
        alpn: b"h2",
        ..Dial::default()
    };
    let stream = server.dial(dial).await.expect("connected");
    let mut http = Http::over(stream, Version::HTTP_2).await;
    let request =
        http::Request::get("https://localhost/who").header("x-large", "x".repeat(1 << 20));
    let response = http
        .send(request.body(Full::default()).expect("a request"))
        .await;
    let refused = response.is_err()
        || response
            .as_ref()
            .is_ok_and(|response| response.status().as_u16() == 431);
    assert!(refused, "{response:?}");
    let half_a_megabyte = "x".repeat(512 << 10);
    let mut fitting = server.connect(None).await.expect("connected");
    let request = format!(
        "GET /who HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-large: {half_a_megabyte}\r\n\r\n"
    );
    fitting
        .write_all(request.as_bytes())
        .await
        .expect("written");
    let answer = until_closed(&mut fitting).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn idle_unauthenticated_connections_do_not_block_authenticated() {
    let server = Server::start().await;
    let good = server.clients.client("kube-apiserver");
    let stream = server.connect(Some(&good)).await.expect("connected");
    let mut before = Http::over(stream, Version::HTTP_11).await;
    assert!(before.get("/who").await.is_ok());
    let mut unauthenticated = Vec::new();
    // one after the other, so that the accept queue of the kernel does not overflow
    for number in 0..1000_u32 {
        // from 100 addresses
        let from = Ipv4Addr::from_bits(Ipv4Addr::LOCALHOST.to_bits() + 1 + number % 100);
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind((from, 0).into()).expect("a loopback address");
        unauthenticated.push(socket.connect(server.address).await.expect("connected"));
        tokio::task::yield_now().await;
    }
    // an open connection, a new one, and one that is marked as authenticated
    let stream = server.connect(Some(&good)).await.expect("connected");
    let mut now = Http::over(stream, Version::HTTP_11).await;
    let mut marked = Http::over(
        server.connect(None).await.expect("connected"),
        Version::HTTP_11,
    )
    .await;
    assert!(marked.get("/mark_authenticated").await.is_ok());
    for _ in 0..300 {
        unauthenticated.push(TcpStream::connect(server.address).await.expect("connected"));
    }
    for http in [&mut before, &mut now, &mut marked] {
        let answer = http.get("/who").await;
        assert!(answer.is_ok(), "{answer:?}");
    }
    let limit = Limits::default().unauthenticated_connections;
    // the oldest connections are evicted
    for connection in unauthenticated.iter_mut().take(1000 - limit) {
        let mut byte = [0; 1];
        let closed = soon("its end", connection.read(&mut byte)).await;
        assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
    }
}

#[tokio::test]
async fn concurrent_requests_are_limited_for_unauthenticated_clients() {
    let server = Server::start().await;
    let good = server.clients.client("kube-apiserver");
    let max = Limits::default().unauthenticated_requests;
    for (client, asked, expected) in [
        (None, max - 1, "Ok(\"no certificate\")"),
        (None, max, "Err(\"429 Too Many Requests\")"),
        (
            Some(good.as_str()),
            4 * max,
            "Ok(\"certificate of 1 bytes\")",
        ),
    ] {
        let dial = Dial {
            alpn: b"h2",
            client,
            ..Dial::default()
        };
        let stream = server.dial(dial).await.expect("connected");
        let mut http = Http::over(stream, Version::HTTP_2).await;
        let mut in_progress = Vec::new();
        for _ in 0..asked {
            let request = http::Request::get("https://localhost/endless");
            let request = request.body(Full::default()).expect("a request");
            in_progress.push(http.send(request).await.expect("begun"));
        }
        let answer = format!("{:?}", http.get("/who").await);
        assert_eq!(answer, expected, "{asked} requests of {client:?}");
        // finished requests free the limit
        in_progress.clear();
        let again = async {
            while http.get("/who").await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        soon("room", again).await;
    }
}
