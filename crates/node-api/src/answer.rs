//! Shapes of answers.

use std::sync::Arc;

use axum::BoxError;
use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt};
use serde::Serialize;
use tokio::sync::Semaphore;

/// `value` as JSON; 500 if it cannot be written.
pub(crate) fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => {
            tracing::error!(%error, "an answer cannot be written as JSON");
            text(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("the answer cannot be written as JSON: {error}"),
            )
        }
    }
}

/// Plain text that no browser takes for anything else, with a line's end, as upstream's errors.
pub(crate) fn text(status: StatusCode, message: impl AsRef<str>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (status, headers, format!("{}\n", message.as_ref())).into_response()
}

/// A long body whose next block the connection gets when it has written the last one. By itself it
/// takes sixteen, up to 1 MiB, ahead of a client that does not read.
pub(crate) fn one_by_one<E: Into<BoxError> + Send + 'static>(
    blocks: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
) -> Body {
    let turns = Arc::new(Semaphore::new(1));
    Body::from_stream(blocks.then(move |block| {
        let turns = Arc::clone(&turns);
        async move {
            let block = block.map_err(Into::into)?;
            let turn = turns.acquire_owned().await?;
            Ok::<_, BoxError>(until_written(block, turn))
        }
    }))
}

/// The same bytes, which keep `held` until they are written: the connection drops them then, not when
/// it takes them.
pub(crate) fn until_written<T: Send + Sync + 'static>(bytes: Bytes, held: T) -> Bytes {
    Bytes::from_owner(Written { bytes, _held: held })
}

struct Written<T> {
    bytes: Bytes,
    _held: T,
}

impl<T> AsRef<[u8]> for Written<T> {
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
    async fn a_connection_has_one_block_of_a_body_at_a_time() {
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
