//! The port over real sockets.
//!
//! Three hundred HTTP probes a second may cost a hundredth of a core or two, so a request is one
//! connection, one write and, mostly, one read, in the task of whoever asks.

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::timeout;
use windlass_pod_lifecycle::http_target::{HttpTarget, MAX_REDIRECTS, Redirect, Scheme};
use windlass_pod_lifecycle::probe::http_error;

use crate::port::Checks;
use crate::{CheckError, GrpcHealth, HttpAnswer};

mod answer;
mod dial;
mod grpc;
mod http;
mod names;
mod tls;

use dial::Dialer;
use http::Stage;
use tls::Tls;

/// Requests over the node's network, without any proxy.
#[derive(Clone, Debug, Default)]
pub struct NetChecks {
    dialer: Dialer,
    tls: Tls,
}

impl NetChecks {
    /// Requests of this process; clones share what they know.
    pub fn new() -> Self {
        Self::default()
    }

    /// Follows redirects until there is an answer to keep.
    async fn follow(
        &self,
        target: &HttpTarget,
        stage: &mut Stage,
    ) -> Result<HttpAnswer, CheckError> {
        let mut asked = self.ask(target, stage).await?;
        let mut next: Option<HttpTarget> = None;
        for hop in 1.. {
            let Some(location) = asked.location.take() else {
                break;
            };
            let here = next.as_ref().unwrap_or(target);
            let at_location = |why: &str| {
                CheckError::Redirected(http_error(&location, &CheckError::Failed(why.to_owned())))
            };
            match here.redirected(&location) {
                Err(why) => return Err(at_location(&why)),
                Ok(Redirect::OtherHost(host)) => {
                    asked.answer.other_host = Some(host);
                    break;
                }
                Ok(Redirect::Follow(_)) if hop >= MAX_REDIRECTS => {
                    return Err(at_location("stopped after 10 redirects"));
                }
                Ok(Redirect::Follow(there)) => {
                    asked = self.ask(&there, stage).await.map_err(|error| match error {
                        CheckError::Body(_) | CheckError::Node(_) => error,
                        error => CheckError::Redirected(http_error(&there.url(), &error)),
                    })?;
                    next = Some(there);
                }
            }
        }
        Ok(asked.answer)
    }

    async fn ask(&self, target: &HttpTarget, stage: &mut Stage) -> Result<http::Asked, CheckError> {
        let request = target.request().map_err(CheckError::Failed)?;
        *stage = Stage::Connecting;
        let (mut stream, ends) = self.dialer.connect(&target.host, target.port).await?;
        match target.scheme {
            Scheme::Http => http::exchange(&mut stream, ends, &request, stage).await,
            Scheme::Https => {
                let mut stream = tls::handshake(&self.tls, &target.host, (stream, ends)).await?;
                let asked = http::exchange(&mut stream, ends, &request, stage).await;
                tls::say_goodbye(stream).await;
                asked
            }
        }
    }
}

#[async_trait]
impl Checks for NetChecks {
    async fn http(
        &self,
        target: &HttpTarget,
        limit: Option<Duration>,
    ) -> Result<HttpAnswer, CheckError> {
        let mut stage = Stage::Connecting;
        let answer = self.follow(target, &mut stage);
        let Some(limit) = limit else {
            return answer.await;
        };
        let in_time = timeout(limit, answer).await;
        in_time.unwrap_or_else(|_| {
            Err(match stage {
                Stage::Connecting => CheckError::ConnectTimedOut(limit),
                Stage::Head => CheckError::TimedOut(limit),
                Stage::Body => CheckError::Body(
                    "context deadline exceeded \
                     (Client.Timeout or context cancellation while reading body)"
                        .to_owned(),
                ),
            })
        })
    }

    async fn tcp(&self, host: &str, port: u16, limit: Duration) -> Result<(), CheckError> {
        match timeout(limit, self.dialer.connect(host, port)).await {
            Ok(connected) => connected.map(drop),
            Err(_) => Err(CheckError::ConnectTimedOut(limit)),
        }
    }

    async fn grpc(
        &self,
        host: &str,
        port: u16,
        service: &str,
        limit: Duration,
    ) -> Result<GrpcHealth, CheckError> {
        let deadline = tokio::time::Instant::now() + limit;
        let connected = tokio::time::timeout_at(deadline, self.dialer.connect(host, port)).await;
        let Ok(connected) = connected else {
            return Err(CheckError::ConnectTimedOut(limit));
        };
        let answer = grpc::check(connected?.0, host, port, service);
        let in_time = tokio::time::timeout_at(deadline, answer).await;
        in_time.unwrap_or(Err(CheckError::TimedOut(limit)))
    }
}

#[cfg(test)]
mod tests;
