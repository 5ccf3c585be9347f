//! An HTTP request on its own connection.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use windlass_pod_lifecycle::probe::MAX_OUTPUT_BYTES;

use super::dial::ConnectionEndpoints;
use super::response::{Body, HTTP, Head, HeadEnd, not_http};
use crate::{CheckError, HttpAnswer};

/// Maximum size of response headers; Go allows 10 MiB.
const MAX_HEADER_BYTES: usize = 64 << 10;

/// Maximum number of informational responses, as in Go.
const MAX_INFORMATIONAL: usize = 5;

/// Initial buffer, enough for most responses.
const BUFFER_BYTES: usize = 2 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Waiting for the connection.
    Connecting,
    /// Waiting for the response headers.
    Head,
    /// Waiting for the response body.
    Body,
}

/// A response and its redirect.
#[derive(Debug)]
pub(super) struct Exchange {
    pub response: HttpAnswer,
    /// `Location` of a redirect.
    pub location: Option<String>,
}

/// Sends a request and reads the response, with a truncated body.
pub(super) async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    endpoints: ConnectionEndpoints,
    request: &[u8],
    stage: &mut Stage,
) -> Result<Exchange, CheckError> {
    *stage = Stage::Head;
    let sent = stream.write_all(request).await;
    let mut buffer = Vec::with_capacity(BUFFER_BYTES);
    let (head, start) = match read_head(stream, endpoints, &mut buffer).await {
        Ok(read) => read,
        // a server may respond and close before it has read the request
        Err(error) => match sent {
            Err(sent) => return Err(endpoints.error("write", &sent)),
            Ok(()) => return Err(error),
        },
    };
    *stage = Stage::Body;
    buffer.drain(..start);
    let body = read_body(stream, endpoints, &head, buffer).await?;
    Ok(Exchange {
        location: head.redirect(),
        response: HttpAnswer {
            status: head.status,
            body,
            other_host: None,
        },
    })
}

/// Reads the first non-informational head. Returns it and the offset of the body.
async fn read_head<S: AsyncRead + Unpin>(
    stream: &mut S,
    endpoints: ConnectionEndpoints,
    buffer: &mut Vec<u8>,
) -> Result<(Head, usize), CheckError> {
    let broken = |message: &str| {
        CheckError::Failed(format!(
            "net/http: HTTP/1.x transport connection broken: {message}"
        ))
    };
    let mut start = 0;
    let mut informational = 0;
    let mut end = HeadEnd::default();
    loop {
        while let Some(length) = end.find(&buffer[start..]) {
            let head =
                Head::parse(&buffer[start..start + length]).map_err(|message| broken(&message))?;
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
        let rest = &buffer[start..];
        if rest.len() >= HTTP.len() && !rest.starts_with(HTTP) {
            return Err(broken(&not_http(rest)));
        }
        if buffer.len() >= MAX_HEADER_BYTES {
            return Err(broken(&format!(
                "net/http: server response headers exceeded {MAX_HEADER_BYTES} bytes; aborted"
            )));
        }
        match read_more(stream, buffer).await {
            Ok(0) if buffer.is_empty() => return Err(CheckError::Failed("EOF".to_owned())),
            Ok(0) => return Err(broken("unexpected EOF")),
            Ok(_) => {}
            Err(error) => return Err(endpoints.error("read", &error)),
        }
    }
}

/// Reads the truncated body. `read` is the part that arrived with the head.
async fn read_body<S: AsyncRead + Unpin>(
    stream: &mut S,
    endpoints: ConnectionEndpoints,
    head: &Head,
    read: Vec<u8>,
) -> Result<Vec<u8>, CheckError> {
    let mut body = Body::new(head.framing, read, MAX_OUTPUT_BYTES);
    while !body.advance().map_err(CheckError::Body)? {
        match read_more(stream, body.buffer()).await {
            Ok(0) if body.ends_with_connection() => break,
            Ok(0) => return Err(CheckError::Body("unexpected EOF".to_owned())),
            Ok(_) => {}
            Err(error) => {
                let error = endpoints.error("read", &error);
                return Err(CheckError::Body(error.to_string()));
            }
        }
    }
    Ok(body.into_kept())
}

/// Reads available bytes; 0 is the end, also if a TLS server closes without close_notify.
async fn read_more<S: AsyncRead + Unpin>(
    stream: &mut S,
    buffer: &mut Vec<u8>,
) -> io::Result<usize> {
    match stream.read_buf(buffer).await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
        read => read,
    }
}
