//! Decodes the body of a watch: one JSON object per line.

use std::time::Duration;

use bytes::{Buf, BytesMut};
use futures::stream;
use http_body_util::BodyExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Status};
use kube::client::Body;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::api::{ApiObject, WatchEvent, WatchStream};
use crate::error::{ApiError, ApiErrorKind, ApiResult};

/// Maximum size of an event: etcd's limit for an object is 1.5 MiB, encoded at worst sixfold.
const MAX_EVENT_BYTES: usize = 16 << 20;

/// Returns the events of a watch. The stream ends after its first error.
pub(crate) fn watch_stream<K: ApiObject>(
    body: Body,
    path: String,
    silence: Duration,
) -> WatchStream<K> {
    let lines = Lines {
        body,
        buffer: BytesMut::new(),
        searched: 0,
        path,
        silence,
        ended: false,
    };
    Box::pin(stream::unfold(lines, async |mut lines: Lines| {
        let event = lines.next_event().await?;
        lines.ended = event.is_err();
        Some((event, lines))
    }))
}

struct Lines {
    body: Body,
    buffer: BytesMut,
    searched: usize,
    path: String,
    silence: Duration,
    ended: bool,
}

impl Lines {
    async fn next_event<K: ApiObject>(&mut self) -> Option<ApiResult<WatchEvent<K>>> {
        if self.ended {
            return None;
        }
        loop {
            if let Some(at) = self.buffer[self.searched..]
                .iter()
                .position(|b| *b == b'\n')
            {
                let line = self.buffer.split_to(self.searched + at);
                self.buffer.advance(1);
                self.searched = 0;
                if self.buffer.is_empty() {
                    // else each watch would keep the capacity of its largest event
                    self.buffer = BytesMut::new();
                }
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                return Some(self.decode(&line));
            }
            self.searched = self.buffer.len();
            if self.searched > MAX_EVENT_BYTES {
                return Some(Err(
                    self.error(ApiErrorKind::Protocol, "watch event too large")
                ));
            }
            match tokio::time::timeout(self.silence, self.body.frame()).await {
                Err(_) => {
                    return Some(Err(
                        self.error(ApiErrorKind::Timeout, "watch timed out without events")
                    ));
                }
                Ok(None) => return None,
                Ok(Some(Err(error))) => {
                    let text = error.to_string();
                    return Some(Err(self.error(ApiErrorKind::Connection, &text)));
                }
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
            }
        }
    }

    fn decode<K: ApiObject>(&self, line: &[u8]) -> ApiResult<WatchEvent<K>> {
        // the text may be a secret: it is not part of the error
        let bad = |_| self.error(ApiErrorKind::Protocol, "cannot decode a watch event");
        let event: RawEvent<'_> = serde_json::from_slice(line).map_err(bad)?;
        // from bytes, as lists: one deserializer of each type in the program
        let object = event.object.get().as_bytes();
        match event.kind {
            "ADDED" | "MODIFIED" => Ok(WatchEvent::Applied(
                serde_json::from_slice(object).map_err(bad)?,
            )),
            "DELETED" => Ok(WatchEvent::Deleted(
                serde_json::from_slice(object).map_err(bad)?,
            )),
            "BOOKMARK" => {
                let bookmark: Bookmark = serde_json::from_slice(object).map_err(bad)?;
                let ends = bookmark.metadata.annotations.as_ref().is_some_and(|a| {
                    a.get("k8s.io/initial-events-end").map(String::as_str) == Some("true")
                });
                Ok(WatchEvent::Bookmark {
                    resource_version: bookmark.metadata.resource_version.unwrap_or_default(),
                    initial_end: ends,
                })
            }
            "ERROR" => {
                let status: Status = serde_json::from_slice(object).map_err(bad)?;
                let code = status
                    .code
                    .and_then(|c| u16::try_from(c).ok())
                    .unwrap_or(500);
                let kind =
                    ApiErrorKind::from_status(code, status.reason.as_deref().unwrap_or_default());
                Err(self.error(kind, &status.message.unwrap_or_default()))
            }
            other => {
                let text = format!("unknown event type {other:?}");
                Err(self.error(ApiErrorKind::Protocol, &text))
            }
        }
    }

    fn error(&self, kind: ApiErrorKind, message: &str) -> ApiError {
        ApiError::new(kind, "watch", &self.path, message)
    }
}

#[derive(Deserialize)]
struct RawEvent<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Bookmark {
    metadata: ObjectMeta,
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn lines(text: Vec<u8>) -> Lines {
        Lines {
            body: Body::from(text),
            buffer: BytesMut::new(),
            searched: 0,
            path: "/api/v1/configmaps".to_owned(),
            silence: Duration::from_secs(1),
            ended: false,
        }
    }

    #[tokio::test]
    async fn watch_buffer_is_released_after_a_large_event() {
        let object = serde_json::json!({"data": {"key": "x".repeat(1 << 20)}});
        let event = serde_json::json!({"type": "ADDED", "object": object});
        let mut lines = lines(format!("{event}\n").into_bytes());
        let event = lines.next_event::<ConfigMap>().await.expect("an event");
        assert!(matches!(event, Ok(WatchEvent::Applied(_))));
        assert!(lines.buffer.capacity() < 1 << 16);
    }

    #[tokio::test]
    async fn event_over_the_size_limit_is_an_error() {
        let mut lines = lines(vec![b' '; MAX_EVENT_BYTES + 1]);
        let event = lines.next_event::<ConfigMap>().await.expect("an event");
        assert_eq!(event.expect_err("too long").kind, ApiErrorKind::Protocol);
    }
}
