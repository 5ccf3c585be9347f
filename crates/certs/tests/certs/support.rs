//! A node with its files and its API server.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use windlass_certs::{Bootstrap, CertificateStore, ClientRotation, run_client_rotation};
use windlass_client::{ApiClient, ApiClients, ClientIdentity};
use windlass_fake_api::{FakeApiServer, User};
use windlass_mailboxes::SimClock;
use windlass_metrics::Metrics;
use windlass_types::Timestamp;

pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);
pub(crate) const BOOTSTRAPPER: &str = "system:bootstrap:abcdef";

/// A node on paused time.
pub(crate) struct Node {
    pub(crate) server: FakeApiServer,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) identity: ClientIdentity,
    pub(crate) store: CertificateStore,
    pub(crate) directory: PathBuf,
    pub(crate) metrics: Metrics,
    _files: tempfile::TempDir,
}

impl Node {
    pub(crate) fn new() -> Self {
        let base = Timestamp::from_second(1_767_225_600).unwrap();
        let clock = Arc::new(SimClock::starting_at(base));
        let files = tempfile::tempdir().unwrap();
        let directory = files.path().join("pki");
        Self {
            server: FakeApiServer::with_clock(clock.clone()),
            clock,
            identity: ClientIdentity::none(),
            store: CertificateStore::client(&directory),
            directory,
            metrics: Metrics::new().unwrap(),
            _files: files,
        }
    }

    /// With rotation and bootstrap credentials.
    pub(crate) fn rotation(&self) -> ClientRotation {
        ClientRotation {
            node: "n1".to_owned(),
            store: self.store.clone(),
            kubeconfig: None,
            identity: self.identity.clone(),
            client: self.server.clients_of_node("n1").main,
            bootstrap: Bootstrap::Client(Box::new(self.bootstrap_client())),
            rotate: true,
            clock: self.clock.clone(),
            metrics: Some(self.metrics.certificates.clone()),
        }
    }

    pub(crate) fn bootstrap_client(&self) -> ApiClient {
        let user = User::new(BOOTSTRAPPER, &["system:bootstrappers"]);
        ApiClients::in_process(self.server.service(user)).main
    }

    pub(crate) fn start(&self) -> Running {
        Running::start(self.rotation())
    }

    /// Waits for this many CSRs; returns their names and users, by age.
    pub(crate) async fn csrs(&self, count: usize) -> Vec<(String, String)> {
        let server = &self.server;
        within(
            HOUR,
            server.wait_for(|server| csrs_of(server).len() >= count),
        )
        .await;
        let csrs = csrs_of(server);
        assert_eq!(csrs.len(), count, "{csrs:?}");
        csrs
    }

    pub(crate) async fn certificate(&self) -> Timestamp {
        within(HOUR, until(|| self.identity.is_present())).await;
        self.identity.expires_at().unwrap()
    }
}

/// A running rotation, aborted on drop.
pub(crate) struct Running(tokio::task::JoinHandle<()>);

impl Running {
    pub(crate) fn start(rotation: ClientRotation) -> Self {
        Self(tokio::spawn(run_client_rotation(rotation)))
    }

    pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(task))
    }

    /// Aborts it, as an agent restart does.
    pub(crate) async fn kill(mut self) {
        self.0.abort();
        let _ = (&mut self.0).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Name and user of each CSR, by age.
pub(crate) fn csrs_of(server: &FakeApiServer) -> Vec<(String, String)> {
    let mut all = server.list::<CertificateSigningRequest>();
    let version = |csr: &CertificateSigningRequest| csr.metadata.creation_timestamp.clone();
    all.sort_by_key(version);
    all.into_iter()
        .map(|csr| (csr.metadata.name.unwrap(), csr.spec.username.unwrap()))
        .collect()
}

pub(crate) async fn within<T>(limit: Duration, what: impl Future<Output = T>) -> T {
    tokio::time::timeout(limit, what).await.expect("in time")
}

/// Polls every 100 ms.
pub(crate) async fn until(done: impl Fn() -> bool) {
    while !done() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
