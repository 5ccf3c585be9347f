//! Scripted responses to probes and hooks.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use windlass_checks::{CheckError, Checks, GrpcHealth, HttpAnswer};
use windlass_pod_lifecycle::http_target::HttpTarget;

/// Behavior of a server in a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// Responds with this status; 200 is serving for gRPC.
    Answers(u16),
    /// Refuses connections.
    Refuses,
    /// Accepts the connection and never responds.
    Hangs,
    /// Responds with this status after this time.
    Slow(Duration, u16),
}

/// Receives the address and port of each request.
type Observer = Arc<dyn Fn(&str, u16) + Send + Sync>;

#[derive(Default)]
struct State {
    servers: BTreeMap<(String, u16), Server>,
    requests: BTreeMap<(String, u16), ServerRequests>,
    observer: Option<Observer>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct ServerRequests {
    times: Vec<Instant>,
    in_flight: u32,
    peak: u32,
}

/// Servers by address and port; the default responds with 200.
#[derive(Clone, Debug, Default)]
pub struct FakeChecks(Arc<Mutex<State>>);

impl FakeChecks {
    /// Sets the behavior of a server.
    pub fn set(&self, host: &str, port: u16, server: Server) {
        self.with(|state| state.servers.insert((host.to_owned(), port), server));
    }

    /// Calls `observer` with the address and port of each request.
    pub fn observe(&self, observer: impl Fn(&str, u16) + Send + Sync + 'static) {
        self.with(|state| state.observer = Some(Arc::new(observer)));
    }

    /// Returns the number of requests.
    pub fn request_count(&self, host: &str, port: u16) -> u32 {
        u32::try_from(self.request_times(host, port).len()).unwrap_or(u32::MAX)
    }

    /// Returns the times of the requests.
    pub fn request_times(&self, host: &str, port: u16) -> Vec<Instant> {
        let key = (host.to_owned(), port);
        self.with(|state| {
            let requests = state.requests.get(&key);
            requests.map(|it| it.times.clone()).unwrap_or_default()
        })
    }

    /// Returns the maximum number of concurrent requests.
    pub fn max_in_flight(&self, host: &str, port: u16) -> u32 {
        let key = (host.to_owned(), port);
        self.with(|state| state.requests.get(&key).map_or(0, |it| it.peak))
    }

    /// Clears the completed requests.
    pub fn clear_requests(&self) {
        self.with(|state| {
            for requests in state.requests.values_mut() {
                requests.times.clear();
                requests.peak = requests.in_flight;
            }
        });
    }

    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the response status of the server.
    async fn respond(
        &self,
        host: &str,
        port: u16,
        timeout: Option<Duration>,
    ) -> Result<u16, CheckError> {
        let observer = self.with(|state| state.observer.clone());
        if let Some(observer) = observer {
            observer(host, port);
        }
        let key = (host.to_owned(), port);
        let server = self.with(|state| {
            let requests = state.requests.entry(key.clone()).or_default();
            requests.times.push(Instant::now());
            requests.in_flight += 1;
            requests.peak = requests.peak.max(requests.in_flight);
            state.servers.get(&key).copied()
        });
        let _in_flight = InFlight(self, key);
        let refused = format!("dial tcp {host}:{port}: connect: connection refused");
        let answer = match server.unwrap_or(Server::Answers(200)) {
            Server::Answers(status) => return Ok(status),
            Server::Refuses => return Err(CheckError::Failed(refused)),
            Server::Hangs => None,
            Server::Slow(after, status) => Some((after, status)),
        };
        let late = timeout.filter(|limit| answer.is_none_or(|(after, _)| after > *limit));
        match (late, answer) {
            (Some(limit), _) => {
                tokio::time::sleep(limit).await;
                Err(CheckError::TimedOut(limit))
            }
            (None, Some((after, status))) => {
                tokio::time::sleep(after).await;
                Ok(status)
            }
            (None, None) => std::future::pending().await,
        }
    }
}

/// Guard that counts a request.
struct InFlight<'a>(&'a FakeChecks, (String, u16));

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.with(|state| {
            if let Some(requests) = state.requests.get_mut(&self.1) {
                requests.in_flight -= 1;
            }
        });
    }
}

#[async_trait]
impl Checks for FakeChecks {
    async fn http(
        &self,
        target: &HttpTarget,
        timeout: Option<Duration>,
    ) -> Result<HttpAnswer, CheckError> {
        let status = self.respond(&target.host, target.port, timeout).await?;
        Ok(HttpAnswer {
            status,
            ..HttpAnswer::default()
        })
    }

    async fn tcp(&self, host: &str, port: u16, timeout: Duration) -> Result<(), CheckError> {
        self.respond(host, port, Some(timeout)).await.map(drop)
    }

    async fn grpc(
        &self,
        host: &str,
        port: u16,
        _: &str,
        timeout: Duration,
    ) -> Result<GrpcHealth, CheckError> {
        Ok(match self.respond(host, port, Some(timeout)).await? {
            200 => GrpcHealth::Serving,
            status => GrpcHealth::NotServing(status.to_string()),
        })
    }
}
