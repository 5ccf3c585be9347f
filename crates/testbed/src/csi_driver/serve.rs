//! The process of the driver: a thread with two sockets.

use std::fs;
use std::io;
use std::os::unix::net::UnixListener as Listener;
use std::path::Path;
use std::sync::Arc;

use tokio::net::UnixListener;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio_stream::wrappers::UnixListenerStream;
use windlass_plugin_proto::csi_v1::identity_server::IdentityServer;
use windlass_plugin_proto::csi_v1::node_server::NodeServer;
use windlass_plugin_proto::pluginregistration_v1::registration_server::RegistrationServer;

use super::service::Service;
use super::state::Shared;

/// Server guard.
#[derive(Debug)]
pub(super) struct Server {
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    pub(super) fn start(shared: &Arc<Shared>) -> io::Result<Self> {
        let driver = listen(&shared.options.socket())?;
        let registration = listen(&shared.options.registration())?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        *shared.stop() = Some(stop);
        let service = Service(Arc::clone(shared));
        let thread = std::thread::Builder::new()
            .name("csi-driver".to_owned())
            .spawn(move || {
                runtime.block_on(async move {
                    tokio::select! {
                        biased;
                        // callers see a closed connection
                        _ = stopped => {}
                        _ = serve(driver, registration, service) => {}
                    }
                });
                // ends the connection tasks
                runtime.shutdown_background();
            })?;
        Ok(Self {
            shared: Arc::clone(shared),
            thread: Some(thread),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.die();
        // a panic was already printed
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

/// Creates a socket at `path` and removes an existing file.
fn listen(path: &Path) -> io::Result<Listener> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = Listener::bind(path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

async fn serve(driver: Listener, registration: Listener, service: Service) -> io::Result<()> {
    let driver = UnixListenerStream::new(UnixListener::from_std(driver)?);
    let registration = UnixListenerStream::new(UnixListener::from_std(registration)?);
    let node = tonic::transport::Server::builder()
        .add_service(IdentityServer::new(service.clone()))
        .add_service(NodeServer::new(service.clone()))
        .serve_with_incoming(driver);
    let registrar = tonic::transport::Server::builder()
        .add_service(RegistrationServer::new(service))
        .serve_with_incoming(registration);
    tokio::try_join!(node, registrar)
        .map(drop)
        .map_err(io::Error::other)
}
