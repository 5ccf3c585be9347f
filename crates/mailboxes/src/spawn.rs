//! Starting actors and I/O tasks, and the shutdown of the agent.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use actix::{Actor, Context};
use tokio::runtime::Runtime;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

/// Runs actors and `main` on this thread, and I/O on the threads of `runtime`.
pub fn run_actors<F: Future>(runtime: &Arc<Runtime>, main: F) -> F::Output {
    // an actor that was never polled starts when the system is dropped; its tasks need a runtime
    let _entered = runtime.enter();
    let shared = Arc::clone(runtime);
    let system = actix::System::with_tokio_rt(move || shared);
    system.block_on(main)
}

/// Starts an actor on the current thread: inside [`run_actors`], or a `LocalSet` in simulations.
pub fn start_actor<A: Actor<Context = Context<A>>>(actor: A) {
    drop(actor.start());
}

/// Spawns an I/O task outside the thread of the actors; `name` is a field of its log messages.
pub fn spawn_io<F>(name: &'static str, future: F) -> tokio::task::JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    // boxed: the runtime's code for a task exists once for each output, not once for each future
    let future: Pin<Box<dyn Future<Output = F::Output> + Send>> = Box::pin(future);
    // a root: the span of the task that spawns it would keep the spans of all before it
    tokio::spawn(future.instrument(tracing::debug_span!(parent: None, "io", task = name)))
}

/// The shutdown of the agent: a cancellation token and a tracker of tasks.
///
/// The shutdown stops no container. It waits for short writes of state files.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    token: CancellationToken,
    tracker: TaskTracker,
}

impl Shutdown {
    /// Creates a shutdown that has not begun.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the token that is cancelled when the shutdown begins.
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Spawns a task that the shutdown waits for.
    pub fn track<F>(&self, future: F) -> tokio::task::JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tracker.spawn(future)
    }

    /// Begins the shutdown and waits for tracked tasks, at most `limit`.
    pub async fn finish(&self, limit: std::time::Duration) {
        self.token.cancel();
        self.tracker.close();
        if tokio::time::timeout(limit, self.tracker.wait())
            .await
            .is_err()
        {
            tracing::warn!(
                left = self.tracker.len(),
                "shutdown timed out, tasks still running"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use actix::{Actor, Context};

    use super::{run_actors, spawn_io, start_actor};

    struct Busy(mpsc::Sender<()>);

    impl Actor for Busy {
        type Context = Context<Self>;

        fn started(&mut self, _: &mut Self::Context) {
            spawn_io("busy", async {});
            self.0.send(()).expect("receiver");
        }
    }

    #[test]
    fn actor_started_during_shutdown_has_runtime() {
        let runtime = tokio::runtime::Runtime::new().expect("threads");
        let (sender, started) = mpsc::channel();
        let result: Result<(), &str> = run_actors(&Arc::new(runtime), async {
            start_actor(Busy(sender));
            Err("no certificate")
        });
        assert_eq!(result, Err("no certificate"));
        // a panic in a task that is dropped is caught by tokio, and aborts the agent
        assert_eq!(started.try_recv(), Ok(()));
    }
}
