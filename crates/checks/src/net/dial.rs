//! Connections to containers.

use std::io;
use std::net::{IpAddr, SocketAddr};

use nix::{libc, setsockopt_impl, sockopt_impl};
use tokio::net::{TcpSocket, TcpStream};
use windlass_pod_lifecycle::http_target::join_host_port;

use super::names::Names;
use crate::CheckError;

// The macro writes the type and the one system call behind it.
sockopt_impl!(
    /// How long a closed connection is kept while its peer has not closed it too, in seconds;
    /// a negative number is not at all.
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
    /// A connection to the first address that takes it.
    pub(super) async fn connect(
        &self,
        host: &str,
        port: u16,
    ) -> Result<(TcpStream, Ends), CheckError> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return connect(SocketAddr::new(ip, port)).await;
        }
        let addresses = self.names.addresses(host).await?;
        let mut failed = CheckError::Failed(format!("dial tcp: lookup {host}: no such host"));
        for ip in addresses.iter() {
            match connect(SocketAddr::new(*ip, port)).await {
                Ok(connected) => return Ok(connected),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }
}

/// One connection. Closing it says FIN and leaves nothing behind.
///
/// Upstream sets `SO_LINGER` to 1 s so that probes do not leave a socket in TIME_WAIT each. That
/// makes `close` wait for the peer, 40 ms with a peer that delays its acknowledgement and up to a
/// second with one that is gone. A goroutine may wait; a worker thread of ours has other pods to
/// serve. `TCP_LINGER2` gives the same without waiting.
async fn connect(address: SocketAddr) -> Result<(TcpStream, Ends), CheckError> {
    let connected = async {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        nix::sys::socket::setsockopt(&socket, CloseLinger, &-1)?;
        let stream = socket.connect(address).await?;
        let from = stream.local_addr()?;
        Ok((stream, Ends { from, to: address }))
    };
    connected
        .await
        .map_err(|error: io::Error| not_connected(address, &error))
}

fn not_connected(address: SocketAddr, error: &io::Error) -> CheckError {
    const SHORT_OF: [i32; 4] = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    let to = join_host_port(&address.ip().to_string(), address.port());
    let text = format!("dial tcp {to}: connect: {}", words(error));
    match error.raw_os_error() {
        Some(number) if SHORT_OF.contains(&number) => CheckError::Node(text),
        _ => CheckError::Failed(text),
    }
}

/// The two ends of a connection. They are noted at its beginning: once it is reset, the system
/// has forgotten them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    from: SocketAddr,
    to: SocketAddr,
}

impl Ends {
    /// What went wrong between them, as Go says it: `read tcp A->B: read: why`.
    pub(super) fn error(self, verb: &str, error: &io::Error) -> CheckError {
        let Self { from, to } = self;
        let why = words(error);
        CheckError::Failed(format!("{verb} tcp {from}->{to}: {verb}: {why}"))
    }
}

/// An error as Go prints the system's: lower case, without its number.
fn words(error: &io::Error) -> String {
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
    fn what_the_node_is_short_of_is_not_the_containers_fault() {
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
