//! Resolution of host names of probes and hooks.
//!
//! The system resolver blocks a thread without a timeout. Concurrent lookups of a name are shared,
//! and their number is limited. A lookup that gets no thread in time is a node error.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::CheckError;

/// Maximum number of blocked resolver threads.
const MAX_CONCURRENT_LOOKUPS: usize = 8;

/// Maximum wait for a thread; less than the minimum probe timeout.
const THREAD_TIMEOUT: Duration = Duration::from_millis(500);

type Addresses = Result<Arc<[IpAddr]>, CheckError>;
type Lookup = Shared<BoxFuture<'static, Addresses>>;

/// Lookups in progress. Results are cached by the resolver only.
#[derive(Clone)]
pub(super) struct Names {
    lookups: Arc<Mutex<BTreeMap<String, Lookup>>>,
    threads: Arc<Semaphore>,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            lookups: Arc::default(),
            threads: Arc::new(Semaphore::new(MAX_CONCURRENT_LOOKUPS)),
        }
    }
}

impl std::fmt::Debug for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Names").finish_non_exhaustive()
    }
}

impl Names {
    /// Resolves a host name.
    pub(super) async fn addresses(&self, host: &str) -> Addresses {
        self.lookup(host).await
    }

    fn lookup(&self, host: &str) -> Lookup {
        let mut lookups = self.lookups.lock();
        if let Some(lookup) = lookups.get(host) {
            return lookup.clone();
        }
        let names = self.clone();
        let name = host.to_owned();
        // continues if all callers give up, because the thread stays blocked
        let task = tokio::spawn(async move {
            let found = names.resolve(&name).await;
            let mut lookups = names.lookups.lock();
            lookups.remove(&name);
            found
        });
        let cancelled = failed(CheckError::Node, host, "cancelled");
        let ended = |task: Result<Addresses, _>| task.unwrap_or(Err(cancelled));
        let lookup = task.map(ended).boxed().shared();
        lookups.insert(host.to_owned(), lookup.clone());
        lookup
    }

    async fn resolve(&self, host: &str) -> Addresses {
        let thread = tokio::time::timeout(THREAD_TIMEOUT, self.threads.acquire()).await;
        let Ok(_thread) = thread else {
            let cause = "all lookup threads are in use";
            return Err(failed(CheckError::Node, host, cause));
        };
        match tokio::net::lookup_host((host, 0)).await {
            Ok(found) => Ok(found.map(|address| address.ip()).collect()),
            Err(_) => Err(failed(CheckError::Failed, host, "no such host")),
        }
    }
}

fn failed(error: fn(String) -> CheckError, host: &str, cause: &str) -> CheckError {
    error(format!("dial tcp: lookup {host}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lookup_without_free_thread_is_a_node_error() {
        let names = Names::default();
        let all = names
            .threads
            .acquire_many(MAX_CONCURRENT_LOOKUPS as u32)
            .await;
        let text = "dial tcp: lookup localhost: all lookup threads are in use".to_owned();
        let found = names.addresses("localhost").await;
        assert_eq!(found, Err(CheckError::Node(text)));
        drop(all);
        assert!(names.addresses("localhost").await.is_ok());
    }
}
