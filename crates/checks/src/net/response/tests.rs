//! Heads and bodies, split at every position.

use super::*;

fn head(text: &str) -> String {
    match Head::parse(text.as_bytes()) {
        Ok(head) => format!("{} {:?} {:?}", head.status, head.framing, head.redirect()),
        Err(error) => format!("error: {error}"),
    }
}

#[test]
fn head_determines_body_framing() {
    for (text, expected) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
            "200 Length(5) None",
        ),
        (
            "HTTP/1.1 200\r\ncontent-length:  5 \r\n\r\n",
            "200 Length(5) None",
        ),
        ("HTTP/1.1 200 OK\n\n", "200 Close None"),
        ("HTTP/1.0 200 OK\r\n\r\n", "200 Close None"),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\nContent-Length: 5\r\n\r\n",
            "200 Chunked None",
        ),
        (
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "200 Close None",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
            "200 Length(5) None",
        ),
        (
            "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",
            "204 Length(0) None",
        ),
        ("HTTP/1.1 304 Not Modified\r\n\r\n", "304 Length(0) None"),
        ("HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n", "200 Close None"),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            r#"error: bad Content-Length "-1""#,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n",
            r#"error: bad Content-Length "+1""#,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
            r#"error: bad Content-Length "99999999999999999999""#,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "error: http: message cannot contain multiple Content-Length headers; got [1 2]",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            r#"error: unsupported transfer encoding: "gzip""#,
        ),
        (
            "HTTP/2 200\r\n\r\n",
            r#"error: malformed MIME header or status "HTTP/2 200""#,
        ),
        (
            "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            r#"error: malformed MIME header or status "HTTP/1.1 200 OK""#,
        ),
        (
            "SSH-2.0-OpenSSH\r\n\r\n",
            r#"error: malformed HTTP response "SSH-2.0-OpenSSH""#,
        ),
    ] {
        assert_eq!(head(text), expected, "{text:?}");
    }
}

#[test]
fn redirect_requires_location() {
    for (status, location, expected) in [
        (301, "Location: /a\r\n", r#"301 Close Some("/a")"#),
        (
            302,
            "location: /a\r\nLocation: /b\r\n",
            r#"302 Close Some("/a")"#,
        ),
        (303, "Location: /a\r\n", r#"303 Close Some("/a")"#),
        (307, "Location: /a\r\n", r#"307 Close Some("/a")"#),
        (308, "Location: /a\r\n", r#"308 Close Some("/a")"#),
        (302, "", "302 Close None"),
        (302, "Location:\r\n", "302 Close None"),
        (300, "Location: /a\r\n", "300 Close None"),
        (200, "Location: /a\r\n", "200 Close None"),
    ] {
        let text = format!("HTTP/1.1 {status} X\r\n{location}\r\n");
        assert_eq!(head(&text), expected, "{text:?}");
    }
}

#[test]
fn too_many_headers_are_rejected() {
    let with = |count: usize| format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(count));
    assert_eq!(head(&with(MAX_HEADERS)), "200 Close None");
    assert!(head(&with(MAX_HEADERS + 1)).starts_with("error: "));
}

#[test]
fn head_end_is_found_at_any_split() {
    for (text, expected) in [
        ("HTTP/1.1 200 OK\r\n\r\n", Some(19)),
        ("HTTP/1.1 200 OK\r\nA: b\r\n\r\nbody\r\n\r\n", Some(25)),
        ("HTTP/1.1 200 OK\n\nbody", Some(17)),
        ("HTTP/1.1 200 OK\r\nA: b\n\r\n", Some(24)),
        ("HTTP/1.1 200 OK\r\nA: b\r\n", None),
        ("HTTP/1.1 200 OK\r\n\r", None),
        ("", None),
    ] {
        let bytes = text.as_bytes();
        assert_eq!(HeadEnd::default().find(bytes), expected, "{text:?}");
        for tear in 0..bytes.len() {
            let mut end = HeadEnd::default();
            let found = end.find(&bytes[..tear]).or_else(|| end.find(bytes));
            assert_eq!(found, expected, "{text:?} at {tear}");
        }
        let mut end = HeadEnd::default();
        let found = (0..=bytes.len()).find_map(|length| end.find(&bytes[..length]));
        assert_eq!(found, expected, "{text:?} byte by byte");
    }
}

/// Parses a body truncated to 8 bytes, split at every position.
fn check_body(framing: Framing, text: &str, expected: &str) {
    for tear in 0..=text.len() {
        let (first, rest) = text.split_at(tear);
        let mut body = Body::new(framing, first.into(), 8);
        let mut ended = body.advance();
        if ended == Ok(false) {
            body.buffer().extend(rest.as_bytes());
            ended = body.advance();
        }
        let shown = match ended {
            Err(error) => format!("error: {error}"),
            Ok(ended) => {
                let kept = String::from_utf8(body.into_kept()).expect("text");
                format!("{kept} {ended}")
            }
        };
        assert_eq!(shown, expected, "{framing:?} {text:?} at {tear}");
    }
}

#[test]
fn body_ends_by_framing_or_truncation() {
    check_body(Framing::Length(0), "", " true");
    check_body(Framing::Length(3), "abc", "abc true");
    check_body(Framing::Length(4), "abc", "abc false");
    check_body(Framing::Length(100), "abcdefghij", "abcdefgh true");
    check_body(Framing::Close, "abc", "abc false");
    check_body(Framing::Close, "abcdefghij", "abcdefgh true");
    check_body(
        Framing::Chunked,
        "3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n",
        "abcde true",
    );
    check_body(Framing::Chunked, "0\r\n", " true");
    check_body(Framing::Chunked, "A \nabcdefghij\r\n", "abcdefgh true");
    check_body(Framing::Chunked, "3\r\nabc\r\n", "abc false");
    check_body(
        Framing::Chunked,
        "3\r\nabcd\r\n",
        "error: malformed chunked encoding",
    );
    check_body(
        Framing::Chunked,
        "x\r\n",
        "error: invalid byte in chunk length",
    );
    check_body(
        Framing::Chunked,
        "\r\n",
        "error: invalid byte in chunk length",
    );
    check_body(
        Framing::Chunked,
        "10000000000000000\r\n",
        "error: invalid byte in chunk length",
    );
}

#[test]
fn chunk_header_length_is_limited() {
    let mut body = Body::new(Framing::Chunked, vec![b'1'; MAX_CHUNK_HEADER_BYTES], 8);
    assert_eq!(body.advance(), Ok(false));
    body.buffer().push(b'1');
    assert_eq!(body.advance(), Err("http: chunk line too long".to_owned()));
}
