//! Addresses of hosts that probes and hooks give by name.
//!
//! The system's resolver blocks a thread for as long as it likes, and the threads for that are
//! few. So a name is looked up once at a time whoever asks, and a few names at once.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use tokio::sync::Semaphore;

/// Threads that may be waiting for the resolver.
const AT_ONCE: usize = 8;

type Found = Result<Arc<[IpAddr]>, String>;
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
            let found = {
                let _thread = names.threads.acquire().await;
                match tokio::net::lookup_host((name.as_str(), 0)).await {
                    Ok(found) => Ok(found.map(|address| address.ip()).collect()),
                    Err(_) => Err("no such host".to_owned()),
                }
            };
            let mut lookups = names.lookups.lock().unwrap_or_else(PoisonError::into_inner);
            lookups.remove(&name);
            found
        });
        let ended = |task: Result<Found, _>| task.unwrap_or_else(|_| Err("cancelled".to_owned()));
        let lookup = task.map(ended).boxed().shared();
        lookups.insert(host.to_owned(), lookup.clone());
        lookup
    }
}
