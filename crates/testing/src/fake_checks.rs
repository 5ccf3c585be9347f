//! Containers' answers to probes and hooks, scripted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use windlass_checks::{CheckError, Checks, GrpcHealth, HttpAnswer};
use windlass_core::http_target::HttpTarget;

/// What a server in a container does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// Answers with this status; serves, for gRPC.
    Answers(u16),
    /// Nobody listens.
    Refuses,
    /// Takes the connection and never answers.
    Hangs,
}

#[derive(Debug, Default)]
struct State {
    servers: BTreeMap<(String, u16), Server>,
    asked: BTreeMap<(String, u16), u32>,
}

/// Servers by address and port. One that was not set answers 200.
#[derive(Clone, Debug, Default)]
pub struct FakeChecks(Arc<Mutex<State>>);

impl FakeChecks {
    /// From now on the server at this address behaves like that.
    pub fn set(&self, host: &str, port: u16, server: Server) {
        self.with(|state| state.servers.insert((host.to_owned(), port), server));
    }

    /// How often it was asked.
    pub fn asked(&self, host: &str, port: u16) -> u32 {
        let key = (host.to_owned(), port);
        self.with(|state| state.asked.get(&key).copied().unwrap_or(0))
    }

    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The status that the server answers with.
    async fn ask(
        &self,
        host: &str,
        port: u16,
        timeout: Option<Duration>,
    ) -> Result<u16, CheckError> {
        let key = (host.to_owned(), port);
        let server = self.with(|state| {
            *state.asked.entry(key.clone()).or_default() += 1;
            state.servers.get(&key).copied()
        });
        match server.unwrap_or(Server::Answers(200)) {
            Server::Answers(status) => Ok(status),
            Server::Refuses => Err(CheckError::Failed(format!(
                "dial tcp {host}:{port}: connect: connection refused"
            ))),
            Server::Hangs => match timeout {
                Some(timeout) => {
                    tokio::time::sleep(timeout).await;
                    Err(CheckError::TimedOut(timeout))
                }
                None => std::future::pending().await,
            },
        }
    }
}

#[async_trait]
impl Checks for FakeChecks {
    async fn http(
        &self,
        target: &HttpTarget,
        timeout: Option<Duration>,
    ) -> Result<HttpAnswer, CheckError> {
        let status = self.ask(&target.host, target.port, timeout).await?;
        Ok(HttpAnswer {
            status,
            ..HttpAnswer::default()
        })
    }

    async fn tcp(&self, host: &str, port: u16, timeout: Duration) -> Result<(), CheckError> {
        self.ask(host, port, Some(timeout)).await.map(drop)
    }

    async fn grpc(
        &self,
        host: &str,
        port: u16,
        _: &str,
        timeout: Duration,
    ) -> Result<GrpcHealth, CheckError> {
        Ok(match self.ask(host, port, Some(timeout)).await? {
            200 => GrpcHealth::Serving,
            status => GrpcHealth::NotServing(status.to_string()),
        })
    }
}
