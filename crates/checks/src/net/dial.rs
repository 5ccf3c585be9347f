//! Connections to containers.

use std::io;
use std::net::{IpAddr, SocketAddr};

use nix::{libc, setsockopt_impl, sockopt_impl};
use tokio::net::{TcpSocket, TcpStream};
use windlass_pod_lifecycle::http_target::join_host_port;

use super::names::Names;
use crate::CheckError;

sockopt_impl!(
    /// Seconds in FIN_WAIT2 after close; negative for none.
    CloseLinger,
    SetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_LINGER2,
    i32
);

/// Opens connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Dialer {
    names: Names,
}

impl Dialer {
    /// Connects to the first reachable address.
    pub(super) async fn connect(
        &self,
        host: &str,
        port: u16,
    ) -> Result<(TcpStream, ConnectionEndpoints), CheckError> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return connect(SocketAddr::new(ip, port)).await;
        }
        let addresses = self.names.addresses(host).await?;
        let mut last_error = CheckError::Failed(format!("dial tcp: lookup {host}: no such host"));
        for ip in addresses.iter() {
            match connect(SocketAddr::new(*ip, port)).await {
                Ok(connected) => return Ok(connected),
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }
}

/// Opens a connection whose close leaves no socket in TIME_WAIT.
///
/// Upstream sets `SO_LINGER` to 1 s for this, but then `close` blocks the worker thread for up to
/// 1 s. `TCP_LINGER2` does not block.
async fn connect(address: SocketAddr) -> Result<(TcpStream, ConnectionEndpoints), CheckError> {
    let connected = async {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        nix::sys::socket::setsockopt(&socket, CloseLinger, &-1)?;
        let stream = socket.connect(address).await?;
        let from = stream.local_addr()?;
        Ok((stream, ConnectionEndpoints { from, to: address }))
    };
    connected
        .await
        .map_err(|error: io::Error| not_connected(address, &error))
}

fn not_connected(address: SocketAddr, error: &io::Error) -> CheckError {
    const RESOURCE_ERRORS: [i32; 4] = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    let to = join_host_port(&address.ip().to_string(), address.port());
    let text = format!("dial tcp {to}: connect: {}", go_text(error));
    match error.raw_os_error() {
        Some(number) if RESOURCE_ERRORS.contains(&number) => CheckError::Node(text),
        _ => CheckError::Failed(text),
    }
}

/// Addresses of a connection, read at its start: they are not available after a reset.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionEndpoints {
    from: SocketAddr,
    to: SocketAddr,
}

impl ConnectionEndpoints {
    /// Formats an error as in Go: `read tcp A->B: read: cause`.
    pub(super) fn error(self, verb: &str, error: &io::Error) -> CheckError {
        let Self { from, to } = self;
        let cause = go_text(error);
        CheckError::Failed(format!("{verb} tcp {from}->{to}: {verb}: {cause}"))
    }
}

/// Formats a system error as in Go: lower case, without number.
fn go_text(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut chars = text.chars();
    match (error.raw_os_error(), chars.next()) {
        (Some(_), Some(first)) => first.to_lowercase().chain(chars).collect(),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_exhaustion_of_node_is_not_a_probe_failure() {
        let address = "10.0.0.7:80".parse().expect("address");
        let failed = |number| not_connected(address, &io::Error::from_raw_os_error(number));
        let text = "dial tcp 10.0.0.7:80: connect: too many open files";
        assert_eq!(failed(libc::EMFILE), CheckError::Node(text.to_owned()));
        let text = "dial tcp 10.0.0.7:80: connect: connection refused";
        assert_eq!(
            failed(libc::ECONNREFUSED),
            CheckError::Failed(text.to_owned())
        );
    }
}
