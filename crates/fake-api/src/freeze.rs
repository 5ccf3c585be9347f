//! A connection that can be frozen, as by a network that drops all packets.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Freezes all connections that hold it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Freezer {
    state: Arc<Mutex<Frozen>>,
}

#[derive(Debug, Default)]
struct Frozen {
    on: bool,
    waiting: Vec<Waker>,
}

impl Freezer {
    pub(crate) fn set(&self, on: bool) {
        let mut state = self.lock();
        state.on = on;
        if !on {
            state.waiting.drain(..).for_each(Waker::wake);
        }
    }

    /// Pending while frozen.
    fn poll_thawed(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if !state.on {
            return Poll::Ready(());
        }
        let waker = context.waker();
        if !state.waiting.iter().any(|known| known.will_wake(waker)) {
            state.waiting.push(waker.clone());
        }
        Poll::Pending
    }

    fn lock(&self) -> MutexGuard<'_, Frozen> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A TCP connection under a [`Freezer`].
#[derive(Debug)]
pub(crate) struct FrozenIo {
    stream: TcpStream,
    freezer: Freezer,
}

impl FrozenIo {
    pub(crate) fn new(stream: TcpStream, freezer: Freezer) -> Self {
        Self { stream, freezer }
    }
}

impl AsyncRead for FrozenIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        std::task::ready!(self.freezer.poll_thawed(context));
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for FrozenIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        std::task::ready!(self.freezer.poll_thawed(context));
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(self.freezer.poll_thawed(context));
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
