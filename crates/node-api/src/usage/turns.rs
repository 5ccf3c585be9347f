//! Scrapes take turns: one client with many, or one that does not take its answers, costs others
//! nothing but a short wait.
//!
//! *owns* the places of one port · *invariant* a place to measure is free again when the head of
//! the answer is there, the others when the answer is written or its time is over · *bound* what is
//! kept for an answer (250 pods: figures of 2 MiB, or a summary of 2 MiB as text) is kept
//! [`ANSWERS`] times, 32 MiB a port. Behind that a connection has what it took and could not send:
//! with HTTP/2 one [`PART`] a stream, until the client or its connection is gone.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::{Request, State};
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode, Version};
use axum::middleware::Next;
use axum::response::Response;
use futures::{Stream, StreamExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;
use windlass_https::Peer;

use crate::answer;

/// Scrapes that are measured at a time: cgroups are read by few threads.
const MEASURING: usize = 4;
/// Answers at a time, from the beginning of their measuring until they are written.
const ANSWERS: usize = 16;
/// Of these, answers to one address: a scraper asks for three at a time, and four addresses have to
/// join forces before others wait.
const OF_ONE_ADDRESS: usize = 4;
/// Scrapers give up after ten seconds (metrics-server, Prometheus): one that waited half of that
/// has the other half for its answer.
const MOST_WAITING: Duration = Duration::from_secs(5);
/// For an answer to be written: more than the longest patience that scrapers are set to have.
const MOST_SENDING: Duration = Duration::from_secs(60);
/// Most bytes that a connection is given at a time.
const PART: usize = 64 << 10;

/// The places. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Turns(Arc<Places>);

#[derive(Debug)]
struct Places {
    measuring: Arc<Semaphore>,
    answers: Arc<Semaphore>,
    /// Those of addresses that have a scrape under way or waiting.
    of_addresses: Mutex<HashMap<IpAddr, Weak<Semaphore>>>,
}

/// What one scrape holds.
struct Turn {
    measuring: OwnedSemaphorePermit,
    answer: AnswerPlace,
}

/// Of its address, and of all.
type AnswerPlace = (OwnedSemaphorePermit, OwnedSemaphorePermit);

/// The rest of an answer was given up.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the answer was not taken within {} s", MOST_SENDING.as_secs())]
struct NotTaken;

impl Turns {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Places {
            measuring: Arc::new(Semaphore::new(MEASURING)),
            answers: Arc::new(Semaphore::new(ANSWERS)),
            of_addresses: Mutex::default(),
        }))
    }

    /// Waits for a turn, its own address' first; `None` if that takes too long.
    async fn take(&self, address: IpAddr) -> Option<Turn> {
        let turn = async {
            let own = self.of(address).acquire_owned().await.ok()?;
            let answer = Arc::clone(&self.0.answers).acquire_owned().await.ok()?;
            let measuring = Arc::clone(&self.0.measuring).acquire_owned().await.ok()?;
            Some(Turn {
                measuring,
                answer: (own, answer),
            })
        };
        timeout(MOST_WAITING, turn).await.ok().flatten()
    }

    fn of(&self, address: IpAddr) -> Arc<Semaphore> {
        let mut all = lock(&self.0.of_addresses);
        all.retain(|_, places| places.strong_count() > 0);
        if let Some(places) = all.get(&address).and_then(Weak::upgrade) {
            return places;
        }
        let places = Arc::new(Semaphore::new(OF_ONE_ADDRESS));
        all.insert(address, Arc::downgrade(&places));
        places
    }
}

/// Has a scrape wait for its turn, and its answer end in time.
pub(crate) async fn in_turn(State(turns): State<Turns>, request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().cloned();
    let nobody = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let address = peer.as_ref().map_or(nobody, Peer::host);
    let Some(turn) = turns.take(address).await else {
        tracing::debug!(%address, "too many scrapes");
        let words = "too many scrapes at a time";
        let mut answer = answer::text(StatusCode::TOO_MANY_REQUESTS, words);
        let headers = answer.headers_mut();
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        return answer;
    };
    // with HTTP/1 the connection has nothing else under way
    let connection = peer.filter(|_| request.version() < Version::HTTP_2);
    let response = next.run(request).await;
    drop(turn.measuring);
    response.map(|body| Body::from_stream(Sent::new(body, turn.answer, connection)))
}

/// A body that ends in time: what is left of it then is dropped, whether or not anybody asks for it.
struct Sent {
    rest: Arc<Mutex<Option<Rest>>>,
    sending: Arc<oneshot::Sender<Infallible>>,
}

struct Rest {
    body: BodyDataStream,
    /// Of what the body gave, what has not been passed on.
    given: Bytes,
}

impl Sent {
    fn new(body: Body, place: AnswerPlace, connection: Option<Peer>) -> Self {
        let rest = Arc::new(Mutex::new(Some(Rest {
            body: body.into_data_stream(),
            given: Bytes::new(),
        })));
        let (sending, sent) = oneshot::channel();
        let left = Arc::clone(&rest);
        tokio::spawn(async move {
            if timeout(MOST_SENDING, sent).await.is_err() {
                tracing::debug!(error = %NotTaken, "an answer is given up");
                drop(lock(&left).take());
                if let Some(connection) = connection {
                    connection.close();
                }
            }
            drop(place);
        });
        Self {
            rest,
            sending: Arc::new(sending),
        }
    }
}

impl Stream for Sent {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut rest = lock(&self.rest);
        let Some(rest) = rest.as_mut() else {
            return Poll::Ready(Some(Err(axum::Error::new(NotTaken))));
        };
        Poll::Ready(
            ready!(rest.poll_part(cx)).map(|part| {
                part.map(|bytes| answer::until_written(bytes, Arc::clone(&self.sending)))
            }),
        )
    }
}

impl Rest {
    /// The next part. One of a longer whole is a copy: else the last would keep it all.
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, axum::Error>>> {
        if self.given.is_empty() {
            match ready!(self.body.poll_next_unpin(cx)) {
                Some(Ok(given)) if given.len() > PART => self.given = given,
                other => return Poll::Ready(other),
            }
        }
        let part = self.given.split_to(PART.min(self.given.len()));
        Poll::Ready(Some(Ok(Bytes::copy_from_slice(&part))))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
