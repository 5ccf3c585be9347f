//! A connection through a proxy: HTTP `CONNECT` or SOCKS 5, then as if there were none.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{HOST, PROXY_AUTHORIZATION, USER_AGENT};
use http::{Request, StatusCode};
use http_body_util::Empty;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::TlsConnector;

use super::{AGENT, TransportError, spawn, tls};
use crate::config::proxy::{Proxy, ProxyProtocol};
use crate::config::{ApiServerConfig, ConfigError};

/// What a tunnel is made over and is.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// Makes tunnels through one proxy.
pub(super) struct Tunnels {
    pub(super) proxy: Proxy,
    /// TLS with the proxy itself.
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Tunnels {
    /// Tunnels through the proxy that `config` has, if it has one.
    pub(super) fn of(config: &ApiServerConfig) -> Result<Option<Self>, ConfigError> {
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

    /// A tunnel to `host` and `port` over a connection to the proxy.
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
        let mut stream: Box<dyn Duplex> = match &self.tls {
            None => Box::new(stream),
            Some((connector, name)) => {
                let tls = connector.connect(name.clone(), stream).await;
                Box::new(tls.map_err(failed)?)
            }
        };
        if self.proxy.protocol == ProxyProtocol::Socks5 {
            let user = self.proxy.user.as_ref();
            socks5(&mut stream, host, port, user)
                .await
                .map_err(failed)?;
            return Ok(stream);
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
            return Err(TransportError::ProxyRefused {
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

/// Has a SOCKS 5 proxy (RFC 1928, passwords by RFC 1929) connect to `host` and `port`.
async fn socks5(
    stream: &mut (impl Duplex + ?Sized),
    host: &str,
    port: u16,
    user: Option<&(String, String)>,
) -> io::Result<()> {
    const NO_LOGIN: u8 = 0;
    const PASSWORD: u8 = 2;
    let methods: &[u8] = match user {
        None => &[5, 1, NO_LOGIN],
        Some(_) => &[5, 2, NO_LOGIN, PASSWORD],
    };
    stream.write_all(methods).await?;
    let mut chosen = [0; 2];
    stream.read_exact(&mut chosen).await?;
    match (chosen, user) {
        ([5, NO_LOGIN], _) => {}
        ([5, PASSWORD], Some((name, password))) => {
            let mut login = vec![1];
            push_text(&mut login, name)?;
            push_text(&mut login, password)?;
            stream.write_all(&login).await?;
            let mut answer = [0; 2];
            stream.read_exact(&mut answer).await?;
            if answer[1] != 0 {
                return Err(io::Error::other("the proxy refused user and password"));
            }
        }
        ([5, _], None) => return Err(io::Error::other("the proxy requires user and password")),
        ([5, _], Some(_)) => return Err(io::Error::other("the proxy accepts no passwords")),
        _ => return Err(io::Error::other("the proxy does not speak SOCKS 5")),
    }
    let mut request = vec![5, 1, 0];
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => {
            request.push(1);
            request.extend(address.octets());
        }
        Ok(IpAddr::V6(address)) => {
            request.push(4);
            request.extend(address.octets());
        }
        Err(_) => {
            request.push(3);
            push_text(&mut request, host)?;
        }
    }
    request.extend(port.to_be_bytes());
    stream.write_all(&request).await?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).await?;
    if answer[1] != 0 {
        return Err(io::Error::other(socks5_refusal(answer[1])));
    }
    // the address that the proxy connects from
    let length = match answer[3] {
        1 => 4,
        4 => 16,
        3 => usize::from(stream.read_u8().await?),
        _ => return Err(io::Error::other("the proxy does not speak SOCKS 5")),
    };
    let mut bound = vec![0; length + 2];
    stream.read_exact(&mut bound).await?;
    Ok(())
}

/// A text behind its length.
fn push_text(request: &mut Vec<u8>, text: &str) -> io::Result<()> {
    let length = u8::try_from(text.len())
        .map_err(|_| io::Error::other("host, user and password must have at most 255 bytes"))?;
    request.push(length);
    request.extend(text.as_bytes());
    Ok(())
}

fn socks5_refusal(code: u8) -> String {
    let why = match code {
        1 => "general failure",
        2 => "connection not allowed",
        3 => "network unreachable",
        4 => "host unreachable",
        5 => "connection refused",
        6 => "TTL expired",
        7 => "command not supported",
        8 => "address type not supported",
        _ => return format!("the proxy refused the connection with code {code}"),
    };
    format!("the proxy refused the connection: {why}")
}
