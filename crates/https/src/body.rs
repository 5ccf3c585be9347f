//! Request bodies with limits, and response bodies that keep their connection busy.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::watch;
use tokio::time::Sleep;

use crate::connections::ConnectionPermit;
use crate::limits::Limits;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A request body over a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("request body timed out")]
    Slow,
    #[error("request body too large")]
    Long,
}

/// A request body with a size limit and a timeout.
pub(crate) struct LimitedBody {
    inner: Incoming,
    left: u64,
    time: Duration,
    /// Set when the body is first pending.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl LimitedBody {
    pub(crate) fn new(inner: Incoming, limits: &Limits) -> Self {
        Self {
            inner,
            left: limits.body_bytes,
            time: limits.body,
            deadline: None,
        }
    }
}

impl Body for LimitedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) {
            let Some(frame) = frame.transpose()? else {
                return Poll::Ready(None);
            };
            let length = frame.data_ref().map_or(0, |data| data.len() as u64);
            let Some(left) = self.left.checked_sub(length) else {
                return Poll::Ready(Some(Err(BodyError::Long.into())));
            };
            self.left = left;
            return Poll::Ready(Some(Ok(frame)));
        }
        let time = self.time;
        let deadline = self
            .deadline
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(time)));
        ready!(deadline.as_mut().poll(cx));
        Poll::Ready(Some(Err(BodyError::Slow.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The number of requests in progress on a connection.
#[derive(Clone, Debug)]
pub(crate) struct Activity {
    requests: Arc<watch::Sender<usize>>,
    permit: Arc<ConnectionPermit>,
}

impl Activity {
    pub(crate) fn new(permit: Arc<ConnectionPermit>) -> Self {
        Self {
            requests: Arc::new(watch::Sender::new(0)),
            permit,
        }
    }

    pub(crate) fn begin(&self) -> RequestGuard {
        self.change(|count| count + 1);
        RequestGuard(self.clone())
    }

    /// Returns whether an unauthenticated connection has too many requests in progress.
    pub(crate) fn exceeds_request_limit(&self, limits: &Limits) -> bool {
        *self.requests.borrow() > limits.unauthenticated_requests && !self.permit.is_authenticated()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<usize> {
        self.requests.subscribe()
    }

    fn change(&self, to: impl FnOnce(usize) -> usize) {
        self.requests.send_modify(|count| {
            *count = to(*count);
            self.permit.set_busy(*count > 0);
        });
    }
}

/// One request, from its header to the end of its response.
#[derive(Debug)]
pub(crate) struct RequestGuard(Activity);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.change(|count| count.saturating_sub(1));
    }
}

/// A response body that keeps its connection busy.
pub(crate) struct TrackedBody {
    pub(crate) inner: axum::body::Body,
    pub(crate) _busy: RequestGuard,
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
