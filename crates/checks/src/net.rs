//! [`Checks`] over sockets.
//!
//! An HTTP request is one connection, one write and usually one read in the task of the caller, so
//! that 300 probes/s cost 1-2 % of a core.

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::timeout;
use windlass_pod_lifecycle::http_target::{HttpTarget, MAX_REDIRECTS, Redirect, Scheme};
use windlass_pod_lifecycle::probe::http_error;

use crate::port::Checks;
use crate::{CheckError, GrpcHealth, HttpAnswer};

mod dial;
mod grpc;
mod http;
mod names;
mod response;
mod tls;

use dial::Dialer;
use http::Stage;
use tls::Tls;

/// Requests over the network of the node, without a proxy.
#[derive(Clone, Debug, Default)]
pub struct NetChecks {
    dialer: Dialer,
    tls: Tls,
}

impl NetChecks {
    /// Creates a value; clones share name lookups and the TLS configuration.
    pub fn new() -> Self {
        Self::default()
    }

    /// Follows redirects and returns the final response.
    async fn follow(
        &self,
        target: &HttpTarget,
        stage: &mut Stage,
    ) -> Result<HttpAnswer, CheckError> {
        let mut exchange = self.send(target, stage).await?;
        let mut next: Option<HttpTarget> = None;
        for hop in 1.. {
            let Some(location) = exchange.location.take() else {
                break;
            };
            let current = next.as_ref().unwrap_or(target);
            let redirect_error = |message: &str| {
                let error = CheckError::Failed(message.to_owned());
                CheckError::Redirected(http_error(&location, &error))
            };
            match current.redirected(&location) {
                Err(message) => return Err(redirect_error(&message)),
                Ok(Redirect::OtherHost(host)) => {
                    exchange.response.other_host = Some(host);
                    break;
                }
                Ok(Redirect::Follow(_)) if hop >= MAX_REDIRECTS => {
                    return Err(redirect_error("stopped after 10 redirects"));
                }
                Ok(Redirect::Follow(redirected)) => {
                    exchange =
                        self.send(&redirected, stage)
                            .await
                            .map_err(|error| match error {
                                CheckError::Body(_) | CheckError::Node(_) => error,
                                error => {
                                    CheckError::Redirected(http_error(&redirected.url(), &error))
                                }
                            })?;
                    next = Some(redirected);
                }
            }
        }
        Ok(exchange.response)
    }

    async fn send(
        &self,
        target: &HttpTarget,
        stage: &mut Stage,
    ) -> Result<http::Exchange, CheckError> {
        let request = target.request().map_err(CheckError::Failed)?;
        *stage = Stage::Connecting;
        let (mut stream, endpoints) = self.dialer.connect(&target.host, target.port).await?;
        match target.scheme {
            Scheme::Http => http::exchange(&mut stream, endpoints, &request, stage).await,
            Scheme::Https => {
                let mut stream =
                    tls::handshake(&self.tls, &target.host, (stream, endpoints)).await?;
                let exchange = http::exchange(&mut stream, endpoints, &request, stage).await;
                tls::send_close_notify(stream).await;
                exchange
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
        let response = self.follow(target, &mut stage);
        let Some(limit) = limit else {
            return response.await;
        };
        let result = timeout(limit, response).await;
        result.unwrap_or_else(|_| {
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
        let check = grpc::check(connected?.0, host, port, service);
        let result = tokio::time::timeout_at(deadline, check).await;
        result.unwrap_or(Err(CheckError::TimedOut(limit)))
    }
}

#[cfg(test)]
mod tests;
