//! The health port. If it cannot be opened, the agent runs without it and retries, as upstream.
//!
//! It answers from the first to the last write of the state files of resources: tests of upstream read
//! them once it answers, and remove them once it does not.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use windlass_config::KubeletConfiguration;
use windlass_container_manager::StateWrites;
use windlass_health::{HealthSource, bind_health, serve_health};

use super::bind_error;

/// Time between attempts to open the port, as upstream.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// The port, bound if that was possible.
#[derive(Debug)]
pub(super) struct HealthPort {
    address: SocketAddr,
    listener: Option<TcpListener>,
}

impl HealthPort {
    /// Binds `healthzPort` on `healthzBindAddress`; port 0 disables it.
    ///
    /// # Errors
    /// The address is invalid.
    pub(super) async fn bind(kubelet: &KubeletConfiguration) -> anyhow::Result<Option<Self>> {
        let port = u16::try_from(kubelet.healthz_port).unwrap_or(0);
        if port == 0 {
            return Ok(None);
        }
        let address: IpAddr = kubelet
            .healthz_bind_address
            .parse()
            .context("healthzBindAddress")?;
        let mut port = Self {
            address: SocketAddr::new(address, port),
            listener: None,
        };
        port.open().await;
        Ok(Some(port))
    }

    /// Serves until `shutdown`. While the port cannot be opened it is retried.
    pub(super) async fn serve(
        mut self,
        health: Arc<dyn HealthSource>,
        writes: StateWrites,
        shutdown: CancellationToken,
    ) {
        shutdown.run_until_cancelled(writes.first_ended()).await;
        while !shutdown.is_cancelled() {
            if let Some(listener) = self.listener.take() {
                let (shutdown, writes) = (shutdown.clone(), writes.clone());
                let ended = async move {
                    shutdown.cancelled().await;
                    writes.stop().await;
                };
                let served = serve_health(listener, Arc::clone(&health), ended).await;
                if let Err(error) = served {
                    tracing::error!(%error, "serving healthz failed");
                }
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(RETRY_INTERVAL) => self.open().await,
            }
        }
    }

    async fn open(&mut self) {
        let (address, port) = (self.address.ip(), self.address.port());
        match bind_health(address, port).await {
            Ok(listener) => self.listener = Some(listener),
            Err(error) => {
                let error = bind_error("healthzPort", address, port, error);
                tracing::error!(
                    error = format!("{error:#}"),
                    "starting healthz failed; retrying"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use windlass_health::HealthCheck;

    use super::*;

    #[derive(Debug)]
    struct Healthy;

    impl HealthSource for Healthy {
        fn checks(&self) -> Vec<HealthCheck> {
            Vec::new()
        }
    }

    async fn request(address: SocketAddr) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address).await?;
        let request = b"GET /healthz HTTP/1.1\r\nHost: n1\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await?;
        let mut response = String::new();
        stream.read_to_string(&mut response).await?;
        Ok(response)
    }

    #[tokio::test]
    async fn answers_from_the_first_to_the_last_state_write() {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = TcpListener::bind(local).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let port = HealthPort {
            address,
            listener: Some(listener),
        };
        let (writes, shutdown) = (StateWrites::default(), CancellationToken::new());
        let first = writes.begin().expect("the first write");
        let server = port.serve(Arc::new(Healthy), writes.clone(), shutdown.clone());
        let mut server = tokio::spawn(server);
        let early = tokio::time::timeout(Duration::from_millis(200), request(address));
        assert!(early.await.is_err(), "the first write is in progress");
        drop(first);
        let answer = request(address).await.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

        let last = writes.begin().expect("the last write");
        shutdown.cancel();
        let ended = tokio::time::timeout(Duration::from_millis(200), &mut server);
        assert!(ended.await.is_err(), "the last write is in progress");
        let answer = request(address).await.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        drop(last);
        server.await.expect("it ends");
        assert!(writes.begin().is_none(), "no write begins");
        assert!(request(address).await.is_err());
    }
}
