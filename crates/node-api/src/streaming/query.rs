//! Query parameters of streams.

use axum::http::header::{CONNECTION, UPGRADE};
use axum::http::{HeaderMap, StatusCode, Uri};
use percent_encoding::percent_decode_str;
use windlass_cri::StreamSet;

use super::StreamRejection;

/// The parameters of a query, in order.
#[derive(Clone, Debug)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses the query of a request. Rejects invalid UTF-8, which the runtime's protocol cannot
    /// carry.
    pub fn new(uri: &Uri) -> Result<Self, StreamRejection> {
        let query = uri.query().unwrap_or_default();
        if percent_decode_str(query).decode_utf8().is_err() {
            return Err(bad_request("the query is not UTF-8"));
        }
        let pairs = form_urlencoded::parse(query.as_bytes());
        Ok(Self(pairs.into_owned().collect()))
    }

    /// Returns the first value of a name.
    pub fn first(&self, name: &str) -> Option<&str> {
        let pair = self.0.iter().find(|(key, _)| key == name)?;
        Some(&pair.1)
    }

    /// Returns all values of a name.
    pub fn all(&self, name: &str) -> Vec<String> {
        let pairs = self.0.iter().filter(|(key, _)| key == name);
        pairs.map(|(_, value)| value.clone()).collect()
    }

    /// Returns the streams of `input`, `output`, `error` and `tty`, each on if it is `1`; a
    /// terminal has no stderr.
    pub fn streams(&self) -> Result<StreamSet, StreamRejection> {
        let on = |name| self.first(name) == Some("1");
        let tty = on("tty");
        let streams = StreamSet {
            stdin: on("input"),
            stdout: on("output"),
            stderr: on("error") && !tty,
            tty,
        };
        match streams.stdin || streams.stdout || streams.stderr {
            true => Ok(streams),
            false => Err(bad_request(
                "you must specify at least 1 of stdin, stdout, stderr",
            )),
        }
    }

    /// Returns the ports of `port`, repeated or comma-separated, as WebSockets need them.
    pub fn ports(&self) -> Result<Vec<u16>, StreamRejection> {
        let values = self.all("port");
        if values.is_empty() {
            return Err(bad_request("query parameter \"port\" is required"));
        }
        let mut ports = Vec::new();
        for value in values {
            if value.is_empty() {
                return Err(bad_request("query parameter \"port\" cannot be empty"));
            }
            for one in value.split(',') {
                let port = one.parse::<u16>().map_err(|error| {
                    let message = format!("unable to parse {value:?} as a port: {error}");
                    StreamRejection::new(StatusCode::BAD_REQUEST, message)
                })?;
                if port == 0 {
                    return Err(bad_request(&format!("port {value:?} must be > 0")));
                }
                ports.push(port);
            }
        }
        Ok(ports)
    }
}

fn bad_request(message: &str) -> StreamRejection {
    StreamRejection::new(StatusCode::BAD_REQUEST, message)
}

/// Returns whether a request starts a WebSocket.
pub(crate) fn is_websocket(headers: &HeaderMap) -> bool {
    let contains = |name, word: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.is_some_and(|value| value.to_ascii_lowercase().contains(word))
    };
    contains(CONNECTION, "upgrade") && contains(UPGRADE, "websocket")
}
