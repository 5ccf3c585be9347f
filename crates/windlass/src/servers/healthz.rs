//! The health port. If it cannot be opened, the agent runs without it and retries, as upstream.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use windlass_config::KubeletConfiguration;
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
        shutdown: CancellationToken,
    ) {
        while !shutdown.is_cancelled() {
            if let Some(listener) = self.listener.take() {
                let ended = shutdown.clone().cancelled_owned();
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
