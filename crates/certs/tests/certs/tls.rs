//! Credentials over TLS. Time is real, and jumps where a test advances it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use windlass_certs::{CertificateStore, Credentials, Paths, StartupCredentials};
use windlass_client::{ApiClient, ApiClients, ApiErrorKind, ClientLimits, ObjectKey};
use windlass_fake_api::{FakeApiServer, KubeconfigUser, TlsServer, User};
use windlass_mailboxes::{SimClock, SystemClock};
use windlass_types::{Clock, Timestamp};

use crate::support::{BOOTSTRAPPER, DAY, HOUR, MINUTE, Running, csrs_of, until, within};

const SOON: Duration = Duration::from_secs(30);

struct Cluster {
    server: FakeApiServer,
    tls: TlsServer,
    clock: Arc<SimClock>,
    files: tempfile::TempDir,
}

async fn cluster() -> Cluster {
    // the TLS of the client uses the system clock
    let clock = Arc::new(SimClock::starting_at(SystemClock.now()));
    let server = FakeApiServer::with_clock(clock.clone());
    server.add_token("join", User::new(BOOTSTRAPPER, &["system:bootstrappers"]));
    let node = serde_json::json!({ "metadata": { "name": "n1" } });
    server.create::<Node>(&serde_json::from_value(node).unwrap());
    let tls = server.serve_tls().await.unwrap();
    Cluster {
        server,
        tls,
        clock,
        files: tempfile::tempdir().unwrap(),
    }
}

impl Cluster {
    fn path(&self, name: &str) -> std::path::PathBuf {
        self.files.path().join(name)
    }

    fn paths(&self) -> Paths {
        Paths {
            kubeconfig: self.path("kubelet.conf"),
            bootstrap_kubeconfig: Some(self.path("bootstrap.conf")),
            cert_dir: self.path("pki"),
        }
    }

    fn write(&self, name: &str, user: KubeconfigUser<'_>) {
        self.tls.kubeconfig(&self.path(name), user).unwrap();
    }

    fn load(&self) -> Credentials {
        Credentials::load(self.paths(), self.clock.now()).unwrap()
    }

    fn run(&self, credentials: &Credentials, rotate: bool) -> (Running, ApiClient) {
        let limits = ClientLimits::default();
        let client = ApiClients::connect(&credentials.config, &limits)
            .unwrap()
            .main;
        let clock = self.clock.clone();
        let rotation = credentials.client_rotation("n1", client.clone(), rotate, clock);
        (Running::start(rotation.unwrap()), client)
    }

    /// The user of the last request.
    fn last_user(&self) -> String {
        self.server.requests().last().unwrap().user.clone()
    }

    fn csr_users(&self) -> Vec<String> {
        csrs_of(&self.server).into_iter().map(|csr| csr.1).collect()
    }
}

async fn ask(client: &ApiClient) -> Result<(), ApiErrorKind> {
    let got = client.get::<Node>(ObjectKey::cluster("n1")).await;
    got.map(|_| ()).map_err(|error| error.kind)
}

async fn jump(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// Waits, and advances time by a minute now and then, in case the loop is in a back-off.
async fn eventually(done: impl Fn() -> bool) {
    for _ in 0..20 {
        if tokio::time::timeout(Duration::from_secs(3), until(&done))
            .await
            .is_ok()
        {
            return;
        }
        jump(MINUTE).await;
    }
    panic!("not within a minute of real time");
}

fn expires(credentials: &Credentials) -> Option<Timestamp> {
    credentials.config.identity().expires_at()
}

#[tokio::test]
async fn joining_node_uses_its_identity_from_the_first_request() {
    let cluster = cluster().await;
    cluster.write("bootstrap.conf", KubeconfigUser::Token("join"));
    let credentials = cluster.load();
    assert_eq!(credentials.startup, StartupCredentials::Bootstrap);
    let (_running, client) = cluster.run(&credentials, true);
    let waiting = credentials.clone();
    let waiting = tokio::spawn(async move { waiting.wait_for_identity().await });
    within(
        SOON,
        cluster
            .server
            .wait_for(|server| !csrs_of(server).is_empty()),
    )
    .await;
    assert!(!credentials.config.identity().is_present());
    assert!(!waiting.is_finished(), "no identity yet");
    let (name, user) = csrs_of(&cluster.server).remove(0);
    assert_eq!(user, BOOTSTRAPPER);
    cluster.server.approve_csr(&name, DAY).unwrap();
    within(SOON, waiting).await.unwrap();
    ask(&client).await.unwrap();
    assert_eq!(cluster.last_user(), "system:node:n1");

    // the kubeconfig names the pair, for the next start and for kubectl
    let pair = cluster.path("pki/kubelet-client-current.pem");
    within(SOON, until(|| pair.exists())).await;
    let text = std::fs::read_to_string(cluster.path("kubelet.conf")).unwrap();
    assert!(text.contains(pair.to_str().unwrap()), "{text}");
    assert!(!text.contains("join"), "{text}");
    let again = cluster.load();
    assert_eq!(again.startup, StartupCredentials::Certificate);
    assert_eq!(expires(&again), expires(&credentials));
    again.wait_for_identity().await;
}

#[tokio::test]
async fn next_request_after_rotation_uses_the_new_certificate() {
    let cluster = cluster().await;
    cluster.write("bootstrap.conf", KubeconfigUser::Token("join"));
    cluster.server.auto_approve_csrs(Some(DAY));
    let credentials = cluster.load();
    let (_running, client) = cluster.run(&credentials, true);
    within(SOON, credentials.wait_for_identity()).await;
    let first = expires(&credentials);
    ask(&client).await.unwrap();

    jump(DAY.mul_f64(0.91)).await;
    eventually(|| expires(&credentials) > first).await;
    assert_eq!(cluster.csr_users(), [BOOTSTRAPPER, "system:node:n1"]);
    // the server verifies each request by the certificate of its connection
    jump(DAY.mul_f64(0.1)).await;
    assert!(first < Some(cluster.clock.now()));
    ask(&client).await.unwrap();
    assert_eq!(cluster.last_user(), "system:node:n1");
}

#[tokio::test]
async fn running_node_with_expired_certificate_joins_again() {
    let cluster = cluster().await;
    cluster.write("bootstrap.conf", KubeconfigUser::Token("join"));
    cluster.server.auto_approve_csrs(Some(HOUR));
    let credentials = cluster.load();
    let (_running, client) = cluster.run(&credentials, false);
    within(SOON, credentials.wait_for_identity()).await;
    let first = expires(&credentials);
    ask(&client).await.unwrap();
    // the token expired too; an administrator provides a new one later
    cluster.server.revoke_token("join");

    jump(2 * HOUR).await;
    assert_eq!(ask(&client).await, Err(ApiErrorKind::Unauthorized));
    eventually(|| {
        let mut requests = cluster.server.requests().into_iter();
        requests.any(|it| it.method == "POST" && it.status == 401)
    })
    .await;
    let user = User::new(BOOTSTRAPPER, &["system:bootstrappers"]);
    cluster.server.add_token("join-2", user);
    cluster.write("bootstrap.conf", KubeconfigUser::Token("join-2"));
    eventually(|| expires(&credentials) > first).await;
    ask(&client).await.unwrap();
    assert_eq!(cluster.last_user(), "system:node:n1");
}

#[tokio::test]
async fn certificate_of_a_replaced_cluster_ca_is_replaced() {
    let cluster = cluster().await;
    let old = FakeApiServer::with_clock(cluster.clock.clone());
    let old = old.serve_tls().await.unwrap();
    let pem = old
        .issue_client_cert("system:node:n1", &["system:nodes"], 2 * DAY)
        .unwrap();
    put(&cluster.path("pki"), &pem, cluster.clock.now());
    let pair = cluster.path("pki/kubelet-client-current.pem");
    cluster.write("kubelet.conf", KubeconfigUser::CertificateFile(&pair));
    cluster.write("bootstrap.conf", KubeconfigUser::Token("join"));
    cluster.server.auto_approve_csrs(Some(DAY));

    let credentials = cluster.load();
    assert_eq!(credentials.startup, StartupCredentials::Certificate);
    let other_ca = expires(&credentials);
    let (_running, client) = cluster.run(&credentials, true);
    assert_eq!(ask(&client).await, Err(ApiErrorKind::Unauthorized));
    jump(4 * MINUTE).await;
    assert_eq!(ask(&client).await, Err(ApiErrorKind::Unauthorized));
    assert!(cluster.csr_users().is_empty(), "below the threshold");
    jump(MINUTE).await;
    eventually(|| !csrs_of(&cluster.server).is_empty()).await;
    assert_eq!(cluster.csr_users(), [BOOTSTRAPPER]);
    eventually(|| expires(&credentials) != other_ca).await;
    ask(&client).await.unwrap();
}

#[tokio::test]
async fn kubeconfig_with_a_token_is_used_unchanged() {
    let cluster = cluster().await;
    cluster.write("bootstrap.conf", KubeconfigUser::Token("join"));
    cluster.write("kubelet.conf", KubeconfigUser::Token("own"));
    let credentials = cluster.load();
    assert_eq!(credentials.startup, StartupCredentials::Configured);
    credentials.wait_for_identity().await;
    let limits = ClientLimits::default();
    let client = ApiClients::connect(&credentials.config, &limits)
        .unwrap()
        .main;
    let rotation = credentials.client_rotation("n1", client, true, cluster.clock.clone());
    assert!(rotation.is_none());
}

#[tokio::test]
async fn errors_name_the_flag_and_the_file() {
    let cluster = cluster().await;
    let check = |paths: Paths, expected: &str| {
        let error = Credentials::load(paths, cluster.clock.now()).unwrap_err();
        let shown = error.to_string();
        let shown = shown.replace(cluster.files.path().to_str().unwrap(), "@");
        assert_eq!(shown, expected);
    };
    let alone = Paths {
        bootstrap_kubeconfig: None,
        ..cluster.paths()
    };
    check(
        alone.clone(),
        "--kubeconfig: @/kubelet.conf does not exist; create it, or set --bootstrap-kubeconfig",
    );
    check(
        cluster.paths(),
        "--bootstrap-kubeconfig: @/bootstrap.conf: No such file or directory (os error 2); \
         required because of @/kubelet.conf: file not found",
    );
    std::fs::write(cluster.path("kubelet.conf"), "{").unwrap();
    check(
        alone,
        "--kubeconfig: @/kubelet.conf: not a kubeconfig in YAML (line 1); correct it, or set \
         --bootstrap-kubeconfig",
    );
}

/// Writes a pair as `kubeadm` does.
fn put(directory: &Path, pem: &str, now: Timestamp) {
    let (chain, key) = pem.split_once("-----BEGIN PRIVATE").unwrap();
    let key = format!("-----BEGIN PRIVATE{key}");
    let store = CertificateStore::client(directory);
    store.replace(chain, &key, now).unwrap();
}
