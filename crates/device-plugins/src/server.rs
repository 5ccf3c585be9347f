//! The registration socket `kubelet.sock`.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::{Path, PathBuf};

use futures::StreamExt;
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use windlass_grpc_sockets::{AnyAuthority, BindError, bind_socket, incoming};
use windlass_plugin_proto::deviceplugin_v1beta1::registration_server::{
    Registration, RegistrationServer,
};
use windlass_plugin_proto::deviceplugin_v1beta1::{Empty, RegisterRequest};

use crate::DevicePlugins;

/// Name of the socket.
const SOCKET: &str = "kubelet.sock";
/// File that keeps plugins from registering here, as they then use the plugin watcher.
const DEPRECATION: &str = "DEPRECATION";
/// Max size of a request in bytes.
const MAX_REQUEST_BYTES: usize = 64 << 10;

/// Why the registration socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory cannot be prepared.
    #[error("cannot prepare {}: {source}", path.display())]
    Directory {
        /// The directory or a file in it.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The socket cannot be opened.
    #[error(transparent)]
    Socket(#[from] BindError),
}

/// Creates the directory (mode 0750), removes all sockets in it (plugins register again when
/// `kubelet.sock` is created), and opens `kubelet.sock`. Blocks on the disk; requires a tokio
/// runtime.
///
/// # Errors
/// The directory or the socket cannot be created.
pub fn open_registration(directory: &Path) -> Result<UnixListener, OpenError> {
    let failed = |path: &Path, source| OpenError::Directory {
        path: path.to_owned(),
        source,
    };
    let created = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o750)
        .create(directory);
    created.map_err(|error| failed(directory, error))?;
    remove_sockets(directory).map_err(|error| failed(directory, error))?;
    let deprecation = directory.join(DEPRECATION);
    match fs::remove_file(&deprecation) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(failed(&deprecation, error));
        }
        _ => {}
    }
    Ok(bind_socket(&directory.join(SOCKET))?)
}

fn remove_sockets(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_socket() {
            tracing::info!(path = %entry.path().display(), "removing socket of an ended plugin");
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Serves registrations until `shutdown`, then removes the socket.
///
/// # Errors
/// The server failed.
pub async fn serve_registration(
    listener: UnixListener,
    plugins: DevicePlugins,
    shutdown: CancellationToken,
) -> Result<(), tonic::transport::Error> {
    let socket = listener.local_addr().ok();
    let connections = incoming(listener).map(|it| it.map(AnyAuthority::new));
    let service = RegistrationServer::new(Registrar(plugins));
    let service = service.max_decoding_message_size(MAX_REQUEST_BYTES);
    let served = Server::builder()
        .add_service(service)
        .serve_with_incoming_shutdown(connections, shutdown.cancelled_owned())
        .await;
    if let Some(path) = socket.as_ref().and_then(|it| it.as_pathname()) {
        // it may be missing
        let _ = tokio::fs::remove_file(path).await;
    }
    served
}

struct Registrar(DevicePlugins);

#[tonic::async_trait]
impl Registration for Registrar {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        let RegisterRequest {
            version,
            endpoint,
            resource_name,
            ..
        } = request.into_inner();
        let registered = self
            .0
            .register_at(&version, &resource_name, &endpoint)
            .await;
        registered.map_err(|error| {
            tracing::warn!(
                resource = resource_name,
                endpoint,
                error,
                "device plugin rejected"
            );
            Status::unknown(error)
        })?;
        Ok(Response::new(Empty {}))
    }
}
