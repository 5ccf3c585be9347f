//! Starting work: actors on their thread, I/O futures by name, and an orderly end.

use std::future::Future;
use std::sync::Arc;

use actix::{Actor, Context};
use tokio::runtime::Runtime;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

/// Runs the agent: its actors and `main` on this thread, all I/O on the threads of `runtime`.
pub fn run_actors<F: Future>(runtime: &Arc<Runtime>, main: F) -> F::Output {
    // an actor that was never polled starts, and is dropped, with the system: what it spawns then
    // needs a runtime, too
    let _entered = runtime.enter();
    let shared = Arc::clone(runtime);
    let system = actix::System::with_tokio_rt(move || shared);
    system.block_on(main)
}

/// Starts an actor on the present thread: inside [`run_actors`], or a `LocalSet` in simulations.
/// What it hears are its own streams, so nobody needs its address.
pub fn start_actor<A: Actor<Context = Context<A>>>(actor: A) {
    drop(actor.start());
}

/// Runs I/O outside the actor's thread, under a name that shows in every line it logs.
pub fn spawn_io<F>(name: &'static str, future: F) -> tokio::task::JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::spawn(future.instrument(tracing::debug_span!("io", task = name)))
}

/// The agent's shutdown: a token everyone watches and a count of what still runs.
///
/// Stopping the agent stops no container; what is waited for are short writes of state.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    token: CancellationToken,
    tracker: TaskTracker,
}

impl Shutdown {
    /// A shutdown that has not begun.
    pub fn new() -> Self {
        Self::default()
    }

    /// The token that is cancelled when the shutdown begins.
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Runs a future that the shutdown waits for.
    pub fn track<F>(&self, future: F) -> tokio::task::JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tracker.spawn(future)
    }

    /// Begins the shutdown and waits for tracked work, at most `limit`.
    pub async fn finish(&self, limit: std::time::Duration) {
        self.token.cancel();
        self.tracker.close();
        if tokio::time::timeout(limit, self.tracker.wait())
            .await
            .is_err()
        {
            tracing::warn!(
                left = self.tracker.len(),
                "shutdown did not wait for all tasks"
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
            self.0.send(()).expect("somebody listens");
        }
    }

    #[test]
    fn an_actor_that_starts_only_when_all_ends_has_a_runtime() {
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
