//! Limits scrapes, so that a client with many scrapes, or one that does not read, delays others
//! only briefly.
//!
//! *owns* the permits of one port · *invariant* a collection permit is released with the head of
//! the response, a response permit when the response is written or timed out · *bound* the data of
//! a response (250 pods: samples of 2 MiB, or a summary of 2 MiB as text) is kept at most
//! [`MAX_RESPONSES`] times, 32 MiB a port. A connection buffers what it could not send: with HTTP/2
//! one [`PART_BYTES`] per stream, until the client disconnects.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::{Request, State};
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode, Version};
use axum::middleware::Next;
use axum::response::Response;
use futures::{Stream, StreamExt};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;
use windlass_https::Peer;
use windlass_pacing::SharedByKey;

use crate::answer;

/// Maximum concurrent collections: few threads read cgroups.
const MAX_COLLECTIONS: usize = 4;
/// Maximum concurrent responses, from the start of the collection until they are written.
const MAX_RESPONSES: usize = 16;
/// Maximum concurrent responses to one address: a scraper needs three, and others wait only if four
/// addresses use all of theirs.
const MAX_RESPONSES_PER_ADDRESS: usize = 4;
/// Timeout of the wait for permits. Scrapers time out after 10 s (metrics-server, Prometheus): half
/// of it is left for the response.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout to write a response: more than the longest common scrape timeout.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum bytes that a connection gets at once.
const PART_BYTES: usize = 64 << 10;

/// Permits for scrapes. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct ScrapeLimiter(Arc<ScrapePermits>);

#[derive(Debug)]
struct ScrapePermits {
    collection: Arc<Semaphore>,
    responses: Arc<Semaphore>,
    by_address: SharedByKey<IpAddr, Semaphore>,
}

struct ScrapePermit {
    collection: OwnedSemaphorePermit,
    response: ResponsePermits,
}

/// Permit of the address, and of all addresses.
type ResponsePermits = (OwnedSemaphorePermit, OwnedSemaphorePermit);

/// The rest of a response was dropped.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("response not written within {} s", WRITE_TIMEOUT.as_secs())]
struct WriteTimeout;

impl ScrapeLimiter {
    pub(crate) fn new() -> Self {
        Self(Arc::new(ScrapePermits {
            collection: Arc::new(Semaphore::new(MAX_COLLECTIONS)),
            responses: Arc::new(Semaphore::new(MAX_RESPONSES)),
            by_address: SharedByKey::default(),
        }))
    }

    /// Waits for permits, first for those of the address; `None` on timeout.
    async fn acquire(&self, address: IpAddr) -> Option<ScrapePermit> {
        let permit = async {
            let semaphore = || Semaphore::new(MAX_RESPONSES_PER_ADDRESS);
            let own = self.0.by_address.get_or_insert_with(address, semaphore);
            let own = own.acquire_owned().await.ok()?;
            let all = Arc::clone(&self.0.responses).acquire_owned().await.ok()?;
            let collection = Arc::clone(&self.0.collection).acquire_owned().await.ok()?;
            Some(ScrapePermit {
                collection,
                response: (own, all),
            })
        };
        timeout(ACQUIRE_TIMEOUT, permit).await.ok().flatten()
    }
}

/// Waits for permits, and ends the response at its timeout.
pub(crate) async fn limit_scrapes(
    State(limiter): State<ScrapeLimiter>,
    request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<Peer>().cloned();
    let unspecified = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let address = peer.as_ref().map_or(unspecified, Peer::host);
    let Some(permit) = limiter.acquire(address).await else {
        tracing::debug!(%address, "scrape rejected: too many concurrent scrapes");
        let message = "too many concurrent scrapes; try again later";
        let mut response = answer::text(StatusCode::TOO_MANY_REQUESTS, message);
        let headers = response.headers_mut();
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        return response;
    };
    // an HTTP/1 connection has no other request in progress
    let connection = peer.filter(|_| request.version() < Version::HTTP_2);
    let response = next.run(request).await;
    drop(permit.collection);
    response.map(|body| Body::from_stream(TimedBody::new(body, permit.response, connection)))
}

/// A body with a timeout: its rest is dropped then, whether or not it is polled.
struct TimedBody {
    rest: Arc<Mutex<Option<RemainingBody>>>,
    written: Arc<oneshot::Sender<Infallible>>,
}

struct RemainingBody {
    body: BodyDataStream,
    /// Bytes of the body that were not passed on yet.
    buffered: Bytes,
}

impl TimedBody {
    fn new(body: Body, permits: ResponsePermits, connection: Option<Peer>) -> Self {
        let rest = Arc::new(Mutex::new(Some(RemainingBody {
            body: body.into_data_stream(),
            buffered: Bytes::new(),
        })));
        let (written, done) = oneshot::channel();
        let left = Arc::clone(&rest);
        tokio::spawn(async move {
            if timeout(WRITE_TIMEOUT, done).await.is_err() {
                tracing::debug!(error = %WriteTimeout, "response dropped");
                drop(left.lock().take());
                if let Some(connection) = connection {
                    connection.close();
                }
            }
            drop(permits);
        });
        Self {
            rest,
            written: Arc::new(written),
        }
    }
}

impl Stream for TimedBody {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut rest = self.rest.lock();
        let Some(rest) = rest.as_mut() else {
            return Poll::Ready(Some(Err(axum::Error::new(WriteTimeout))));
        };
        Poll::Ready(
            ready!(rest.poll_part(cx)).map(|part| {
                part.map(|bytes| answer::until_written(bytes, Arc::clone(&self.written)))
            }),
        )
    }
}

impl RemainingBody {
    /// Returns the next part, copied: a slice would keep the whole block alive.
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, axum::Error>>> {
        if self.buffered.is_empty() {
            match ready!(self.body.poll_next_unpin(cx)) {
                Some(Ok(buffered)) if buffered.len() > PART_BYTES => self.buffered = buffered,
                other => return Poll::Ready(other),
            }
        }
        let part = self.buffered.split_to(PART_BYTES.min(self.buffered.len()));
        Poll::Ready(Some(Ok(Bytes::copy_from_slice(&part))))
    }
}

#[cfg(test)]
mod tests;
