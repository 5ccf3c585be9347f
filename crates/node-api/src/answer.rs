//! Building blocks of responses.

use std::sync::Arc;

use axum::BoxError;
use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt};
use serde::Serialize;
use tokio::sync::Semaphore;

/// Returns `value` as JSON, or 500 if it cannot be serialized.
pub(crate) fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => {
            tracing::error!(%error, "response not serialized as JSON");
            text(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("cannot serialize the response as JSON: {error}"),
            )
        }
    }
}

/// Returns plain text with a final newline, as upstream's errors. Browsers do not sniff its type.
pub(crate) fn text(status: StatusCode, message: impl AsRef<str>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (status, headers, format!("{}\n", message.as_ref())).into_response()
}

/// Returns a long body whose next block is passed when the last one is written. By default a
/// connection takes sixteen blocks, up to 1 MiB, ahead of a slow client.
pub(crate) fn one_by_one<E: Into<BoxError> + Send + 'static>(
    blocks: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
) -> Body {
    let semaphore = Arc::new(Semaphore::new(1));
    Body::from_stream(blocks.then(move |block| {
        let semaphore = Arc::clone(&semaphore);
        async move {
            let block = block.map_err(Into::into)?;
            let permit = semaphore.acquire_owned().await?;
            Ok::<_, BoxError>(until_written(block, permit))
        }
    }))
}

/// Returns the same bytes, which keep `held` until the connection has written and dropped them.
pub(crate) fn until_written<T: Send + Sync + 'static>(bytes: Bytes, held: T) -> Bytes {
    Bytes::from_owner(HeldBytes { bytes, _held: held })
}

struct HeldBytes<T> {
    bytes: Bytes,
    _held: T,
}

impl<T> AsRef<[u8]> for HeldBytes<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn body_block_is_passed_after_last_one_is_written() {
        let blocks = ["one", "two"].map(|block| Ok::<_, Infallible>(Bytes::from(block)));
        let body = one_by_one(futures::stream::iter(blocks));
        let mut body = body.into_data_stream();
        let one = body.next().await.expect("a block").expect("no error");
        assert_eq!(&one[..], b"one");
        assert!(
            body.next().now_or_never().is_none(),
            "the first is not written"
        );
        drop(one);
        let two = body.next().await.expect("a block").expect("no error");
        assert_eq!(&two[..], b"two");
        drop(two);
        assert!(body.next().await.is_none());
    }
}
