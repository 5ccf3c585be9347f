//! A connection through a proxy: HTTP `CONNECT` or SOCKS 5.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{HOST, PROXY_AUTHORIZATION, USER_AGENT};
use http::{Request, StatusCode};
use http_body_util::Empty;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_socks::tcp::Socks5Stream;

use super::{AGENT, TransportError, spawn, tls};
use crate::config::proxy::{Proxy, ProxyProtocol};
use crate::config::{ApiServerConfig, ConfigError};

/// A bidirectional byte stream.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// Opens tunnels through one proxy.
pub(super) struct Tunnels {
    pub(super) proxy: Proxy,
    /// TLS with the proxy itself.
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Tunnels {
    /// Returns the tunnels of `config`'s proxy, if any.
    pub(super) fn from_config(config: &ApiServerConfig) -> Result<Option<Self>, ConfigError> {
        let Some(proxy) = config.proxy.clone() else {
            return Ok(None);
        };
        let tls = match proxy.protocol {
            ProxyProtocol::Http | ProxyProtocol::Socks5 => None,
            ProxyProtocol::Https => {
                let name = ServerName::try_from(proxy.host.clone());
                let name = name.map_err(|_| ConfigError::Tls {
                    server: proxy.to_string(),
                    problem: "the host of the proxy is not a DNS name or IP address".to_owned(),
                })?;
                let settings = tls::proxy_config(config, &proxy)?;
                Some((TlsConnector::from(Arc::new(settings)), name))
            }
        };
        Ok(Some(Self { proxy, tls }))
    }

    /// Opens a tunnel to `host` and `port` over a connection to the proxy.
    pub(super) async fn open<T>(
        &self,
        stream: T,
        host: &str,
        port: u16,
    ) -> Result<Box<dyn Duplex>, TransportError>
    where
        T: Duplex + 'static,
    {
        let failed = |source| TransportError::Proxy {
            proxy: self.proxy.to_string(),
            source,
        };
        let stream: Box<dyn Duplex> = match &self.tls {
            None => Box::new(stream),
            Some((connector, name)) => {
                let tls = connector.connect(name.clone(), stream).await;
                Box::new(tls.map_err(failed)?)
            }
        };
        if self.proxy.protocol == ProxyProtocol::Socks5 {
            let user = self.proxy.user.as_ref();
            return socks5(stream, host, port, user).await.map_err(failed);
        }
        let tunnel = self.connect(stream, host, port).await?;
        Ok(Box::new(TokioIo::new(tunnel)))
    }

    async fn connect(
        &self,
        stream: Box<dyn Duplex>,
        host: &str,
        port: u16,
    ) -> Result<Upgraded, TransportError> {
        let target = match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        let mut request = Request::connect(&target)
            .header(HOST, &target)
            .header(USER_AGENT, AGENT);
        if let Some(authorization) = self.proxy.authorization() {
            request = request.header(PROXY_AUTHORIZATION, authorization);
        }
        let request = request.body(Empty::<Bytes>::new())?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        spawn(connection.with_upgrades());
        let response = sender.send_request(request).await?;
        let status = response.status();
        if !status.is_success() {
            return Err(TransportError::ProxyRejected {
                proxy: self.proxy.to_string(),
                target,
                status,
                fix: match status {
                    StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
                        "; set user and password in the URL of the proxy"
                    }
                    _ => "",
                },
            });
        }
        Ok(hyper::upgrade::on(response).await?)
    }
}

/// Opens a SOCKS 5 tunnel over `stream` to `host` and `port`.
async fn socks5(
    stream: Box<dyn Duplex>,
    host: &str,
    port: u16,
    user: Option<&(String, String)>,
) -> io::Result<Box<dyn Duplex>> {
    let tunnel = match user {
        None => Socks5Stream::connect_with_socket(stream, (host, port)).await,
        Some((name, password)) => {
            Socks5Stream::connect_with_password_and_socket(stream, (host, port), name, password)
                .await
        }
    };
    Ok(Box::new(tunnel.map_err(io::Error::other)?.into_inner()))
}
