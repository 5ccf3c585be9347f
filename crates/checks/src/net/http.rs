//! One HTTP request on one connection.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use windlass_pod_lifecycle::probe::MAX_OUTPUT;

use super::answer::{Body, HTTP, Head, HeadEnd, not_http};
use super::dial::Ends;
use crate::{CheckError, HttpAnswer};

/// Longest head of an answer. Go takes 10 MiB; a health answer with more than this is none.
const MAX_HEAD: usize = 64 << 10;

/// Informational answers before the real one (Go's own limit).
const MAX_INFORMATIONAL: usize = 5;

/// Room for what most answers are.
const USUAL: usize = 2 << 10;

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// There is no connection.
    Connecting,
    /// The head of the answer has not come.
    Head,
    /// The body has not come.
    Body,
}

/// An answer, and where it sends the asker.
#[derive(Debug)]
pub(super) struct Asked {
    pub answer: HttpAnswer,
    /// `Location` of a redirect that is one.
    pub location: Option<String>,
}

/// Sends a request and reads its answer, as much of it as is kept.
pub(super) async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    ends: Ends,
    request: &[u8],
    stage: &mut Stage,
) -> Result<Asked, CheckError> {
    *stage = Stage::Head;
    let sent = stream.write_all(request).await;
    let mut buffer = Vec::with_capacity(USUAL);
    let (head, start) = match read_head(stream, ends, &mut buffer).await {
        Ok(read) => read,
        // a server may answer and close before it has read: what it said counts more
        Err(error) => match sent {
            Err(sent) => return Err(ends.error("write", &sent)),
            Ok(()) => return Err(error),
        },
    };
    *stage = Stage::Body;
    buffer.drain(..start);
    let body = read_body(stream, ends, &head, buffer).await?;
    Ok(Asked {
        location: head.redirect(),
        answer: HttpAnswer {
            status: head.status,
            body,
            other_host: None,
        },
    })
}

/// Reads until there is a head that is not informational; the head, and where the body begins.
async fn read_head<S: AsyncRead + Unpin>(
    stream: &mut S,
    ends: Ends,
    buffer: &mut Vec<u8>,
) -> Result<(Head, usize), CheckError> {
    let broken = |why: &str| {
        CheckError::Failed(format!(
            "net/http: HTTP/1.x transport connection broken: {why}"
        ))
    };
    let mut start = 0;
    let mut informational = 0;
    let mut end = HeadEnd::default();
    loop {
        while let Some(length) = end.find(&buffer[start..]) {
            let head = Head::parse(&buffer[start..start + length]).map_err(|why| broken(&why))?;
            start += length;
            end = HeadEnd::default();
            if !head.is_informational() {
                return Ok((head, start));
            }
            informational += 1;
            if informational > MAX_INFORMATIONAL {
                return Err(broken("net/http: too many 1xx informational responses"));
            }
        }
        let begun = &buffer[start..];
        if begun.len() >= HTTP.len() && !begun.starts_with(HTTP) {
            return Err(broken(&not_http(begun)));
        }
        if buffer.len() >= MAX_HEAD {
            return Err(broken(&format!(
                "net/http: server response headers exceeded {MAX_HEAD} bytes; aborted"
            )));
        }
        match more(stream, buffer).await {
            Ok(0) if buffer.is_empty() => return Err(CheckError::Failed("EOF".to_owned())),
            Ok(0) => return Err(broken("unexpected EOF")),
            Ok(_) => {}
            Err(error) => return Err(ends.error("read", &error)),
        }
    }
}

/// The body, or as much of it as is kept. `read` is what came with the head.
async fn read_body<S: AsyncRead + Unpin>(
    stream: &mut S,
    ends: Ends,
    head: &Head,
    read: Vec<u8>,
) -> Result<Vec<u8>, CheckError> {
    let mut body = Body::new(head.framing, read, MAX_OUTPUT);
    while !body.advance().map_err(CheckError::Body)? {
        match more(stream, body.room()).await {
            Ok(0) if body.ends_with_connection() => break,
            Ok(0) => return Err(CheckError::Body("unexpected EOF".to_owned())),
            Ok(_) => {}
            Err(error) => {
                let error = ends.error("read", &error);
                return Err(CheckError::Body(error.to_string()));
            }
        }
    }
    Ok(body.into_kept())
}

/// Reads what is there; nothing is the end. A TLS server that closes without saying goodbye, as
/// many do, has ended too.
async fn more<S: AsyncRead + Unpin>(stream: &mut S, buffer: &mut Vec<u8>) -> io::Result<usize> {
    match stream.read_buf(buffer).await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
        read => read,
    }
}
