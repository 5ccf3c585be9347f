//! What the slow, the large and the many can cost.

use std::net::Ipv4Addr;
use std::time::Duration;

use http::Version;
use http_body_util::Full;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use windlass_https::{Limits, TlsChoice};

use crate::kit::{Dial, Http, Server, soon};

/// A server whose patience is short.
async fn impatient() -> Server {
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

/// Reads until the other end has had enough.
async fn until_closed(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut read = Vec::new();
    let _ = soon("the connection's end", stream.read_to_end(&mut read)).await;
    String::from_utf8_lossy(&read).into_owned()
}

#[tokio::test]
async fn who_dawdles_in_the_handshake_is_cut_off() {
    let server = impatient().await;
    let mut silent = TcpStream::connect(server.address).await.expect("connected");
    assert_eq!(until_closed(&mut silent).await, "");
    let mut slow = TcpStream::connect(server.address).await.expect("connected");
    // a client's hello of 512 bytes that does not come
    slow.write_all(&[0x16, 3, 1, 2, 0, 1])
        .await
        .expect("written");
    assert_eq!(until_closed(&mut slow).await, "");
}

#[tokio::test]
async fn who_dawdles_with_a_header_or_is_idle_is_cut_off() {
    let server = impatient().await;
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
async fn who_dawdles_with_a_body_is_told_and_so_is_who_sends_too_much() {
    let server = impatient().await;
    let mut slow = server.connect(None).await.expect("connected");
    let head = b"POST /read HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nabc";
    slow.write_all(head).await.expect("written");
    let answer = until_closed(&mut slow).await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert!(answer.ends_with("did not end in time"), "{answer}");

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
async fn a_request_under_way_is_not_idle() {
    let server = impatient().await;
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
async fn a_header_of_ten_megabytes_is_refused_and_costs_one() {
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
async fn a_thousand_idle_strangers_keep_nobody_with_a_certificate_out() {
    let server = Server::start().await;
    let good = server.clients.client("kube-apiserver");
    let stream = server.connect(Some(&good)).await.expect("connected");
    let mut before = Http::over(stream, Version::HTTP_11).await;
    assert!(before.get("/who").await.is_ok());
    let mut strangers = Vec::new();
    // one after the other: what the kernel's queue has no room for never reaches the server
    for number in 0..1000_u32 {
        // of 100 addresses
        let from = Ipv4Addr::from_bits(Ipv4Addr::LOCALHOST.to_bits() + 1 + number % 100);
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind((from, 0).into()).expect("a loopback address");
        strangers.push(socket.connect(server.address).await.expect("connected"));
        tokio::task::yield_now().await;
    }
    // one who was there, one who comes now, and one who is vouched for
    let stream = server.connect(Some(&good)).await.expect("connected");
    let mut now = Http::over(stream, Version::HTTP_11).await;
    let mut vouched = Http::over(
        server.connect(None).await.expect("connected"),
        Version::HTTP_11,
    )
    .await;
    assert!(vouched.get("/mark_authenticated").await.is_ok());
    for _ in 0..300 {
        strangers.push(TcpStream::connect(server.address).await.expect("connected"));
    }
    for http in [&mut before, &mut now, &mut vouched] {
        let answer = http.get("/who").await;
        assert!(answer.is_ok(), "{answer:?}");
    }
    let kept = Limits::default().unauthenticated_connections;
    // those who have to go are gone, the first of all
    for stranger in strangers.iter_mut().take(1000 - kept) {
        let mut byte = [0; 1];
        let closed = soon("its end", stranger.read(&mut byte)).await;
        assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
    }
}

#[tokio::test]
async fn a_stranger_has_few_requests_at_a_time_and_one_with_a_certificate_many() {
    let server = Server::start().await;
    let good = server.clients.client("kube-apiserver");
    let most = Limits::default().unauthenticated_requests;
    for (client, asked, expected) in [
        (None, most - 1, "Ok(\"no certificate\")"),
        (None, most, "Err(\"429 Too Many Requests\")"),
        (
            Some(good.as_str()),
            4 * most,
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
        let mut under_way = Vec::new();
        for _ in 0..asked {
            let request = http::Request::get("https://localhost/endless");
            let request = request.body(Full::default()).expect("a request");
            under_way.push(http.send(request).await.expect("begun"));
        }
        let answer = format!("{:?}", http.get("/who").await);
        assert_eq!(answer, expected, "{asked} requests of {client:?}");
        // those that are over make room
        under_way.clear();
        let again = async {
            while http.get("/who").await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        soon("room", again).await;
    }
}
