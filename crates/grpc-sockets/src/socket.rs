//! The control socket: a Unix socket that only the agent's user and root can open.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::{Stream, stream};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::net::{UnixListener, UnixStream};

/// Maximum connections that wait to be accepted.
const BACKLOG: i32 = 64;

/// Why the socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another agent listens on it.
    #[error(
        "{}: another agent is running with this --root-dir; stop it, or choose another directory",
        .0.display()
    )]
    InUse(PathBuf),
    /// The path exists and is not a socket.
    #[error("{}: not a socket; remove or rename the file", .0.display())]
    Occupied(PathBuf),
    /// The kernel limits the length of a socket path.
    #[error("{}: socket paths are limited to 107 bytes; choose a shorter --root-dir", .0.display())]
    TooLong(PathBuf),
    /// Anything else.
    #[error("cannot open {}: {source}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Opens the socket. Its mode is 0600 before it has a name, so others can never connect. A stale
/// socket is replaced.
///
/// Must be called within a tokio runtime.
pub fn bind_socket(path: &Path) -> Result<UnixListener, BindError> {
    let io_error = |source: io::Error| BindError::Io {
        path: path.to_owned(),
        source,
    };
    let address = SocketAddrUnix::new(path).map_err(|_| BindError::TooLong(path.to_owned()))?;
    remove_stale(path)?;
    let socket = create().map_err(|error| io_error(error.into()))?;
    rustix::net::bind(&socket, &address).map_err(|error| io_error(error.into()))?;
    rustix::net::listen(&socket, BACKLOG).map_err(|error| io_error(error.into()))?;
    let listener = std::os::unix::net::UnixListener::from(socket);
    UnixListener::from_std(listener).map_err(io_error)
}

fn create() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // on Linux the file takes the mode that the socket has when it is bound
    rustix::fs::fchmod(&socket, rustix::fs::Mode::from_raw_mode(0o600))?;
    Ok(socket)
}

fn remove_stale(path: &Path) -> Result<(), BindError> {
    let io_error = |source| BindError::Io {
        path: path.to_owned(),
        source,
    };
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io_error(error)),
    };
    if !metadata.file_type().is_socket() {
        return Err(BindError::Occupied(path.to_owned()));
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => Err(BindError::InUse(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(io_error)
        }
        Err(error) => Err(io_error(error)),
    }
}

/// Returns whether the peer runs as root or as the agent's own user.
pub(crate) fn is_trusted(stream: &UnixStream) -> bool {
    match rustix::net::sockopt::socket_peercred(stream.as_fd()) {
        Ok(peer) => peer.uid.is_root() || peer.uid == rustix::process::geteuid(),
        Err(_) => false,
    }
}

/// Returns the connections of trusted peers. The peer check applies even if the mode of the socket
/// was changed.
pub fn incoming(listener: UnixListener) -> impl Stream<Item = io::Result<UnixStream>> {
    stream::unfold(listener, |listener| async move {
        loop {
            match listener.accept().await {
                Ok((connection, _)) if is_trusted(&connection) => {
                    return Some((Ok(connection), listener));
                }
                Ok(_) => tracing::warn!("local connection rejected: peer is another user"),
                Err(error) => {
                    // probably out of file descriptors: an immediate retry would fail
                    tracing::warn!(%error, "local connection not accepted");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::bind_socket;

    fn check(path: &std::path::Path, expected: &str) {
        let line = match bind_socket(path) {
            Ok(_) => {
                let mode = std::fs::metadata(path)
                    .expect("socket")
                    .permissions()
                    .mode();
                format!("mode {:o}", mode & 0o777)
            }
            Err(error) => error.to_string(),
        };
        assert!(line.contains(expected), "{line}, expected {expected}");
    }

    #[tokio::test]
    async fn socket_is_private_and_replaces_only_a_stale_one() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("windlass.sock");
        check(&path, "mode 600");
        // the listener of the first check is closed, its socket is stale
        check(&path, "mode 600");
        let _alive = bind_socket(&path).expect("socket");
        check(&path, "another agent is running with this --root-dir");

        let file = directory.path().join("file");
        std::fs::write(&file, "x").expect("file");
        check(&file, "not a socket; remove or rename the file");
        check(
            &directory.path().join("x".repeat(120)),
            "limited to 107 bytes",
        );
        check(&directory.path().join("no/such/dir"), "No such file");
    }
}
