//! Joins a cluster with a bootstrap token, as a node does. The cluster is the fake API server of
//! this workspace, behind TLS, which signs each CSR at once.
//!
//! `cargo run -p windlass-certs --example join_a_cluster`
//!
//! Runs without a container runtime.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use windlass_certs::certificate::Certificate;
use windlass_certs::{Credentials, Paths, run_client_rotation};
use windlass_client::{ApiClients, ClientLimits, ObjectKey};
use windlass_fake_api::{FakeApiServer, KubeconfigUser, User};
use windlass_mailboxes::SystemClock;
use windlass_types::Clock;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let clock = Arc::new(SystemClock);
    let server = FakeApiServer::with_clock(clock.clone());
    let joiner = User::new("system:bootstrap:abcdef", &["system:bootstrappers"]);
    server.add_token("abcdef.0123456789abcdef", joiner);
    server.auto_approve_csrs(Some(Duration::from_secs(24 * 3600)));
    server.create(&node("n1"));
    let tls = server.serve_tls().await?;

    let files = tempfile::tempdir()?;
    let paths = Paths {
        kubeconfig: files.path().join("kubelet.conf"),
        bootstrap_kubeconfig: Some(files.path().join("bootstrap-kubelet.conf")),
        cert_dir: files.path().join("pki"),
    };
    let token = KubeconfigUser::Token("abcdef.0123456789abcdef");
    tls.kubeconfig(&files.path().join("bootstrap-kubelet.conf"), token)?;

    let credentials = Credentials::load(paths, clock.now())?;
    println!("startup credentials: {:?}", credentials.startup);
    let clients = ApiClients::connect(&credentials.config, &ClientLimits::default())?;
    let rotation = credentials.client_rotation("n1", clients.main.clone(), true, clock);
    let rotation = rotation.ok_or("the kubeconfig has credentials that are not rotated")?;
    // never ends: it also renews the certificate
    tokio::spawn(run_client_rotation(rotation));
    tokio::time::timeout(Duration::from_secs(30), credentials.wait_for_identity()).await?;

    let node: Node = clients.main.get(ObjectKey::cluster("n1")).await?;
    println!("has read node {}", node.metadata.name.unwrap_or_default());
    for request in server.requests() {
        println!("  {} {} by {}", request.method, request.path, request.user);
    }
    let pem = credentials.store.current()?;
    let certificate = pem.and_then(|pem| Certificate::from_pem(&pem));
    let valid = certificate.ok_or("there is no certificate")?.validity;
    println!("valid from {} to {}", valid.not_before, valid.not_after);
    for file in std::fs::read_dir(files.path().join("pki"))? {
        println!("  pki/{}", file?.file_name().to_string_lossy());
    }
    Ok(())
}

fn node(name: &str) -> Node {
    Node {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..Node::default()
    }
}
