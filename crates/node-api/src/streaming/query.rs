//! What a stream's query says.

use axum::http::header::{CONNECTION, UPGRADE};
use axum::http::{HeaderMap, StatusCode, Uri};
use percent_encoding::percent_decode_str;
use windlass_cri::StreamSet;

use super::Refusal;

/// The pairs of a query, in their order.
#[derive(Clone, Debug)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Of a request. What is no UTF-8 is refused: the runtime's protocol has no words for it.
    pub fn of(uri: &Uri) -> Result<Self, Refusal> {
        let query = uri.query().unwrap_or_default();
        if percent_decode_str(query).decode_utf8().is_err() {
            return Err(bad("the query is not UTF-8"));
        }
        let pairs = form_urlencoded::parse(query.as_bytes());
        Ok(Self(pairs.into_owned().collect()))
    }

    /// The first value of a name.
    pub fn first(&self, name: &str) -> Option<&str> {
        let pair = self.0.iter().find(|(key, _)| key == name)?;
        Some(&pair.1)
    }

    /// All values of a name.
    pub fn all(&self, name: &str) -> Vec<String> {
        let pairs = self.0.iter().filter(|(key, _)| key == name);
        pairs.map(|(_, value)| value.clone()).collect()
    }

    /// `input`, `output`, `error` and `tty`, each on if it is `1`; a terminal has no stderr.
    pub fn streams(&self) -> Result<StreamSet, Refusal> {
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
            false => Err(bad("you must specify at least 1 of stdin, stdout, stderr")),
        }
    }

    /// `port`, repeated or with commas, as WebSockets need it.
    pub fn ports(&self) -> Result<Vec<u16>, Refusal> {
        let values = self.all("port");
        if values.is_empty() {
            return Err(bad("query parameter \"port\" is required"));
        }
        let mut ports = Vec::new();
        for value in values {
            if value.is_empty() {
                return Err(bad("query parameter \"port\" cannot be empty"));
            }
            for one in value.split(',') {
                let port = one.parse::<u16>().map_err(|error| {
                    let words = format!("unable to parse {value:?} as a port: {error}");
                    Refusal::new(StatusCode::BAD_REQUEST, words)
                })?;
                if port == 0 {
                    return Err(bad(&format!("port {value:?} must be > 0")));
                }
                ports.push(port);
            }
        }
        Ok(ports)
    }
}

fn bad(words: &str) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, words)
}

/// True for the begin of a WebSocket.
pub(crate) fn is_websocket(headers: &HeaderMap) -> bool {
    let says = |name, word: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.is_some_and(|value| value.to_ascii_lowercase().contains(word))
    };
    says(CONNECTION, "upgrade") && says(UPGRADE, "websocket")
}
