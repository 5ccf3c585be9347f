//! HTTP responses, redirects and faulty servers.

use super::*;

#[tokio::test]
async fn request_is_sent_unchanged() {
    let seen = Arc::new(Mutex::new(String::new()));
    let kept = seen.clone();
    let address = server(move |mut stream| {
        let kept = kept.clone();
        async move {
            *kept.lock().expect("lock") = request(&mut stream).await;
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
            stream.write_all(answer).await.expect("write");
            until_closed(stream).await;
        }
    })
    .await;
    let mut target = target(address);
    target.path = "/a?b".to_owned();
    target.headers = vec![("X".to_owned(), "y".to_owned())];
    let answer = NetChecks::new().http(&target, None).await;
    assert_eq!(line(answer, address), "200 \"ok\"");
    let expected =
        format!("GET /a?b HTTP/1.1\r\nHost: {address}\r\nX: y\r\nConnection: close\r\n\r\n");
    assert_eq!(*seen.lock().expect("lock"), expected);
}

#[tokio::test]
async fn invalid_header_is_rejected() {
    let mut target = target(closed_port().await);
    target.headers = vec![("X".to_owned(), "a\r\nY: b".to_owned())];
    let why = "net/http: invalid header field value for \"X\"";
    assert_eq!(
        NetChecks::new().http(&target, Some(LONG)).await,
        Err(CheckError::Failed(why.to_owned()))
    );
}

#[tokio::test]
async fn response_ends_before_kept_connection() {
    for (bytes, expected) in [
        (
            &b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"[..],
            "200 \"ok\"",
        ),
        (b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", "503 \"\""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "204 \"\""),
        (b"HTTP/1.1 304 Not Modified\r\n\r\n", "304 \"\""),
        (b"HTTP/1.1 101 Switching\r\n\r\n", "101 \"\""),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n",
            "200 \"ok\"",
        ),
        (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nA: b\r\n\r\n\
              HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            "200 \"ok\"",
        ),
        (
            b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n",
            "302 \"\"",
        ),
    ] {
        check(responds(bytes).await, expected).await;
    }
}

#[tokio::test]
async fn response_may_end_with_connection() {
    for (bytes, expected) in [
        (&b"HTTP/1.0 200 OK\r\n\r\nok"[..], "200 \"ok\""),
        (b"HTTP/1.1 200 OK\n\nok", "200 \"ok\""),
        (b"HTTP/1.1 500 Oh\r\n\r\n", "500 \"\""),
    ] {
        check(responds_and_closes(bytes).await, expected).await;
    }
}

#[tokio::test]
async fn malformed_response_has_go_error_text() {
    let broken = "net/http: HTTP/1.x transport connection broken: ";
    for (bytes, expected) in [
        (&b""[..], r#"Failed("EOF")"#.to_owned()),
        (
            b"HTTP/1.1 200",
            format!("Failed(\"{broken}unexpected EOF\")"),
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Le",
            format!("Failed(\"{broken}unexpected EOF\")"),
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok",
            r#"Body("unexpected EOF")"#.to_owned(),
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\no",
            r#"Body("unexpected EOF")"#.to_owned(),
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxx\r\n",
            r#"Body("invalid byte in chunk length")"#.to_owned(),
        ),
        (
            b"HTTP/1.1 abc\r\n\r\n",
            format!(r#"Failed("{broken}malformed MIME header or status \"HTTP/1.1 abc\"")"#),
        ),
    ] {
        check(responds_and_closes(bytes).await, &expected).await;
    }
}

#[tokio::test]
async fn other_protocol_is_detected_immediately() {
    let ssh = server(|mut stream| async move {
        stream
            .write_all(b"SSH-2.0-OpenSSH_9.2\r\n")
            .await
            .expect("write");
        until_closed(stream).await;
    })
    .await;
    let expected = "Failed(\"net/http: HTTP/1.x transport connection broken: \
                    malformed HTTP response \\\"SSH-2.0-OpenSSH_9.2\\\"\")";
    check(ssh, expected).await;
}

#[tokio::test]
async fn refused_and_reset_connections_have_go_error_text() {
    let address = closed_port().await;
    check(
        address,
        r#"Failed("dial tcp ADDRESS: connect: connection refused")"#,
    )
    .await;
    let address = server(|mut stream| async move {
        request(&mut stream).await;
        stream.set_zero_linger().expect("linger");
    })
    .await;
    let answer = NetChecks::new().http(&target(address), Some(LONG)).await;
    let Err(CheckError::Failed(text)) = answer else {
        panic!("{answer:?}");
    };
    let end = format!("->{address}: read: connection reset by peer");
    assert!(
        text.starts_with("read tcp 127.0.0.1:") && text.ends_with(&end),
        "{text}"
    );
}

#[tokio::test]
async fn timeout_applies_to_incomplete_responses() {
    let checks = NetChecks::new();
    let silent = server(until_closed).await;
    let trickling = server(|mut stream| async move {
        request(&mut stream).await;
        for byte in b"HTTP/1.1 200 OK\r\nX: "
            .iter()
            .chain(std::iter::repeat(&b'x'))
        {
            if stream.write_all(&[*byte]).await.is_err() {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    for address in [silent, trickling] {
        let answer = checks.http(&target(address), Some(SHORT)).await;
        assert_eq!(answer, Err(CheckError::TimedOut(SHORT)));
    }
    let no_body = responds(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no").await;
    let answer = checks.http(&target(no_body), Some(SHORT)).await;
    let why = "context deadline exceeded \
               (Client.Timeout or context cancellation while reading body)";
    assert_eq!(answer, Err(CheckError::Body(why.to_owned())));
}

#[tokio::test]
async fn endless_body_is_truncated_to_10_kib() {
    for head in [
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFF\r\n",
    ] {
        let address = server(move |mut stream| async move {
            request(&mut stream).await;
            stream.write_all(head.as_bytes()).await.expect("write");
            while stream.write_all(&[b'x'; 1000]).await.is_ok() {}
        })
        .await;
        let answer = NetChecks::new().http(&target(address), Some(LONG)).await;
        let answer = answer.expect("answer");
        assert_eq!(
            (answer.status, answer.body.len()),
            (200, 10 << 10),
            "{head:?}"
        );
    }
}

#[tokio::test]
async fn endless_headers_are_rejected() {
    for (line, expected) in [
        ("a: b\r\n", "response headers exceeded"),
        ("HTTP/1.1 100 Continue\r\n\r\n", "too many 1xx"),
        ("x", "response headers exceeded"),
    ] {
        let address = server(move |mut stream| async move {
            request(&mut stream).await;
            stream
                .write_all(b"HTTP/1.1 100 X\r\n")
                .await
                .expect("write");
            if line.starts_with("HTTP") {
                stream.write_all(b"\r\n").await.expect("write");
            }
            while stream.write_all(line.as_bytes()).await.is_ok() {}
        })
        .await;
        let answer = NetChecks::new().http(&target(address), Some(LONG)).await;
        let Err(CheckError::Failed(text)) = answer else {
            panic!("{line:?}: {answer:?}");
        };
        assert!(text.contains(expected), "{line:?}: {text}");
    }
}

/// Starts a server that responds by path, and returns its request counter.
async fn redirecting(answer: fn(&str) -> String) -> (SocketAddr, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let address = server(move |mut stream| {
        let count = count.clone();
        async move {
            count.fetch_add(1, Ordering::Relaxed);
            let request = request(&mut stream).await;
            let path = request.split(' ').nth(1).expect("path");
            stream
                .write_all(answer(path).as_bytes())
                .await
                .expect("write");
        }
    })
    .await;
    (address, asked)
}

fn moved(to: &str) -> String {
    format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 4\r\n\r\ngone")
}

#[tokio::test]
async fn same_host_redirects_are_followed() {
    let (address, asked) = redirecting(|path| match path {
        "/" => moved("/a/b"),
        "/a/b" => moved("../c?d"),
        other => format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{other}",
            other.len()
        ),
    })
    .await;
    check(address, "200 \"/c?d\"").await;
    assert_eq!(asked.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn redirect_to_other_host_is_the_response() {
    let (address, asked) = redirecting(|_| moved("http://example.invalid/x")).await;
    check(address, "302 \"gone\" to example.invalid").await;
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn redirect_loop_is_stopped() {
    let (address, asked) = redirecting(|_| moved("/again")).await;
    check(
        address,
        r#"Redirected("Get \"/again\": stopped after 10 redirects")"#,
    )
    .await;
    assert_eq!(asked.load(Ordering::Relaxed), 10);
}

#[tokio::test]
async fn failed_redirect_error_has_its_url() {
    let (address, _) = redirecting(|_| moved("/%zz")).await;
    check(
        address,
        r#"Redirected("Get \"/%zz\": failed to parse Location header \"/%zz\": invalid URL escape")"#,
    )
    .await;
    // port 1 has no listener
    let (address, _) = redirecting(|_| moved("http://127.0.0.1:1/x")).await;
    check(
        address,
        r#"Redirected("Get \"http://127.0.0.1:1/x\": dial tcp 127.0.0.1:1: connect: connection refused")"#,
    )
    .await;
}

#[tokio::test]
async fn host_may_be_name_or_ipv6_address() {
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let address = responds(answer).await;
    let mut named = target(address);
    named.host = "localhost".to_owned();
    let found = NetChecks::new().http(&named, Some(LONG)).await;
    assert_eq!(line(found, address), "200 \"\"");

    let listener = TcpListener::bind("[::1]:0")
        .await
        .expect("IPv6 on loopback");
    let address = serve(listener, move |mut stream| async move {
        let asked = request(&mut stream).await;
        assert!(asked.contains("\r\nHost: [::1]:"), "{asked}");
        stream.write_all(answer).await.expect("write");
    });
    check(address, "200 \"\"").await;
}
