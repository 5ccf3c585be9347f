//! Addresses of hosts that probes and hooks give by name.
//!
//! The system's resolver blocks a thread for as long as it likes, and the threads for that are
//! few. So a name is looked up once at a time whoever asks, and a few names at once. A name that
//! waits for a thread for long is not looked up: other pods' names hang, and that is not held
//! against it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use tokio::sync::Semaphore;

use crate::CheckError;

/// Threads that may be waiting for the resolver.
const AT_ONCE: usize = 8;

/// Longest wait for one of them; less than the shortest timeout of a probe.
const QUEUE: Duration = Duration::from_millis(500);

type Found = Result<Arc<[IpAddr]>, CheckError>;
type Lookup = Shared<BoxFuture<'static, Found>>;

/// The lookups under way. Answers are not kept: the resolver does that.
#[derive(Clone)]
pub(super) struct Names {
    lookups: Arc<Mutex<BTreeMap<String, Lookup>>>,
    threads: Arc<Semaphore>,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            lookups: Arc::default(),
            threads: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }
}

impl std::fmt::Debug for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Names").finish_non_exhaustive()
    }
}

impl Names {
    /// The addresses of a host, why there are none otherwise.
    pub(super) async fn addresses(&self, host: &str) -> Found {
        self.lookup(host).await
    }

    fn lookup(&self, host: &str) -> Lookup {
        let mut lookups = self.lookups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lookup) = lookups.get(host) {
            return lookup.clone();
        }
        let names = self.clone();
        let name = host.to_owned();
        // a task of its own: it goes on when whoever asked has given up, and holds its thread
        let task = tokio::spawn(async move {
            let found = names.ask(&name).await;
            let mut lookups = names.lookups.lock().unwrap_or_else(PoisonError::into_inner);
            lookups.remove(&name);
            found
        });
        let cancelled = failed(CheckError::Node, host, "cancelled");
        let ended = |task: Result<Found, _>| task.unwrap_or(Err(cancelled));
        let lookup = task.map(ended).boxed().shared();
        lookups.insert(host.to_owned(), lookup.clone());
        lookup
    }

    async fn ask(&self, host: &str) -> Found {
        let thread = tokio::time::timeout(QUEUE, self.threads.acquire()).await;
        let Ok(_thread) = thread else {
            let why = "other lookups take all threads";
            return Err(failed(CheckError::Node, host, why));
        };
        match tokio::net::lookup_host((host, 0)).await {
            Ok(found) => Ok(found.map(|address| address.ip()).collect()),
            Err(_) => Err(failed(CheckError::Failed, host, "no such host")),
        }
    }
}

fn failed(error: fn(String) -> CheckError, host: &str, why: &str) -> CheckError {
    error(format!("dial tcp: lookup {host}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_name_that_waits_for_the_names_of_others_is_not_to_blame() {
        let names = Names::default();
        let all = names.threads.acquire_many(AT_ONCE as u32).await;
        let why = "dial tcp: lookup localhost: other lookups take all threads".to_owned();
        let found = names.addresses("localhost").await;
        assert_eq!(found, Err(CheckError::Node(why)));
        drop(all);
        assert!(names.addresses("localhost").await.is_ok());
    }
}
