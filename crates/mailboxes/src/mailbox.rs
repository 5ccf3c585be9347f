//! A strictly bounded mailbox with metrics for its depth, the age of its oldest message and drops.
//!
//! [`MailboxSender::send`] waits for capacity. [`MailboxSender::try_send`] drops and counts events
//! that a relist recovers. A synchronous handler that must not drop uses a slot ([`crate::slots`]).

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::Stream;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;
use windlass_metrics::MailboxMetrics;

use crate::kind::ActorKind;

/// The actor of the mailbox has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendError;

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the actor has stopped")
    }
}

impl std::error::Error for SendError {}

/// Why [`MailboxSender::try_send`] failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrySendError {
    /// The mailbox is full; the drop is counted.
    Full,
    /// The actor has stopped.
    Closed,
}

/// A message with the span of its sender.
#[derive(Debug)]
pub struct Delivery<M> {
    message: M,
    span: tracing::Span,
}

impl<M> Delivery<M> {
    /// Wraps a message in the current span.
    pub fn new(message: M) -> Self {
        Self {
            message,
            span: tracing::Span::current(),
        }
    }

    /// Runs the handler in the span of the sender.
    pub fn open<R>(self, handler: impl FnOnce(M) -> R) -> R {
        let message = self.message;
        self.span.in_scope(|| handler(message))
    }
}

/// Arrival times of queued messages, oldest first.
#[derive(Debug, Default)]
struct Arrivals(Mutex<VecDeque<Instant>>);

impl Arrivals {
    fn with<R>(&self, f: impl FnOnce(&mut VecDeque<Instant>) -> R) -> R {
        f(&mut self.0.lock())
    }
}

/// Receiver of a mailbox: a stream for `StreamHandler`.
pub struct Mailbox<M> {
    kind: ActorKind,
    receiver: mpsc::Receiver<Delivery<M>>,
    arrivals: Arc<Arrivals>,
    metrics: MailboxMetrics,
}

impl<M> fmt::Debug for Mailbox<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// Cloneable sender of a [`Mailbox`].
pub struct MailboxSender<M> {
    kind: ActorKind,
    sender: mpsc::Sender<Delivery<M>>,
    arrivals: Arc<Arrivals>,
    metrics: MailboxMetrics,
}

impl<M> Clone for MailboxSender<M> {
    fn clone(&self) -> Self {
        Self {
            kind: self.kind,
            sender: self.sender.clone(),
            arrivals: Arc::clone(&self.arrivals),
            metrics: self.metrics.clone(),
        }
    }
}

impl<M> fmt::Debug for MailboxSender<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MailboxSender")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// Creates the mailbox of one actor, with the bound of its kind.
pub fn mailbox<M>(kind: ActorKind, metrics: &MailboxMetrics) -> (MailboxSender<M>, Mailbox<M>) {
    let (sender, receiver) = mpsc::channel(kind.mailbox_bound());
    let arrivals = Arc::new(Arrivals::default());
    (
        MailboxSender {
            kind,
            sender,
            arrivals: Arc::clone(&arrivals),
            metrics: metrics.clone(),
        },
        Mailbox {
            kind,
            receiver,
            arrivals,
            metrics: metrics.clone(),
        },
    )
}

impl<M: Send + 'static> MailboxSender<M> {
    /// Waits for capacity, then sends the message.
    pub async fn send(&self, message: M) -> Result<(), SendError> {
        let permit = self.sender.reserve().await.map_err(|_| SendError)?;
        self.arrived();
        permit.send(Delivery::new(message));
        Ok(())
    }

    /// Sends a message if there is capacity, else counts it as dropped.
    pub fn try_send(&self, message: M) -> Result<(), TrySendError> {
        match self.sender.try_reserve() {
            Ok(permit) => {
                self.arrived();
                permit.send(Delivery::new(message));
                Ok(())
            }
            Err(mpsc::error::TrySendError::Full(())) => {
                self.metrics
                    .dropped
                    .with_label_values(&[self.kind.as_str()])
                    .inc();
                Err(TrySendError::Full)
            }
            Err(mpsc::error::TrySendError::Closed(())) => Err(TrySendError::Closed),
        }
    }

    /// Completes when the actor has stopped.
    pub async fn closed(&self) {
        self.sender.closed().await;
    }

    fn arrived(&self) {
        self.arrivals.with(|queue| queue.push_back(Instant::now()));
    }

    /// Updates the metrics for depth and age; called on each scrape.
    pub fn publish_metrics(&self) {
        let (depth, oldest) = self.arrivals.with(|queue| {
            (
                queue.len(),
                queue.front().map_or(0.0, |at| at.elapsed().as_secs_f64()),
            )
        });
        let name = self.kind.as_str();
        self.metrics
            .depth
            .with_label_values(&[name])
            .set(depth as f64);
        self.metrics.oldest.with_label_values(&[name]).set(oldest);
    }
}

impl<M> Stream for Mailbox<M> {
    type Item = Delivery<M>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Delivery<M>>> {
        let next = self.receiver.poll_recv(cx);
        if let Poll::Ready(Some(_)) = next {
            self.arrivals.with(|queue| queue.pop_front());
            self.metrics
                .messages
                .with_label_values(&[self.kind.as_str()])
                .inc();
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::*;

    #[tokio::test]
    async fn try_send_over_bound_drops_and_counts() {
        let metrics = crate::test_metrics();
        let (sender, mut mailbox) = mailbox::<usize>(ActorKind::new("FileSource", 4), &metrics);
        let bound = ActorKind::new("FileSource", 4).mailbox_bound();
        let taken = (0..100)
            .filter(|i| sender.clone().try_send(*i).is_ok())
            .count();
        assert_eq!(taken, bound);
        let dropped = metrics.dropped.with_label_values(&["FileSource"]).get();
        assert_eq!(dropped as usize, 100 - bound);
        assert_eq!(mailbox.next().await.map(|d| d.open(|m| m)), Some(0));
    }

    #[tokio::test(start_paused = true)]
    async fn depth_and_age_are_published() {
        let metrics = crate::test_metrics();
        let (sender, _mailbox) = mailbox::<u8>(ActorKind::new("Pleg", 256), &metrics);
        sender.try_send(1).expect("room");
        tokio::time::advance(std::time::Duration::from_secs(3)).await;
        sender.try_send(2).expect("room");
        sender.publish_metrics();
        assert_eq!(metrics.depth.with_label_values(&["Pleg"]).get() as u32, 2);
        assert_eq!(metrics.oldest.with_label_values(&["Pleg"]).get() as u32, 3);
    }
}
