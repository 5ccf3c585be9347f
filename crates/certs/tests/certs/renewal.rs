//! Renewal in time, too late, and by others.

use std::time::Duration;

use windlass_certs::{Bootstrap, ClientRotation};
use windlass_client::ClientIdentity;
use windlass_types::{Clock, Timestamp};

use crate::support::{BOOTSTRAPPER, DAY, HOUR, MINUTE, Node, Running, until, within};

/// A certificate for a day, and its start.
async fn with_certificate(node: &Node, rotation: ClientRotation) -> (Running, Timestamp) {
    node.server.auto_approve_csrs(Some(DAY));
    let running = Running::start(rotation);
    let ends = node.certificate().await;
    (running, ends)
}

#[tokio::test(start_paused = true)]
async fn certificate_is_renewed_between_70_and_90_percent() {
    let node = Node::new();
    let (_running, first) = with_certificate(&node, node.rotation()).await;
    tokio::time::sleep(DAY.mul_f64(0.69)).await;
    assert_eq!(node.identity.expires_at(), Some(first));
    tokio::time::sleep(DAY.mul_f64(0.22)).await;
    let second = node.identity.expires_at().unwrap();
    let later = second.duration_since(first).as_secs_f64() / DAY.as_secs_f64();
    assert!((0.69..0.91).contains(&later), "{later}");
    let askers: Vec<_> = node.csrs(2).await.into_iter().map(|csr| csr.1).collect();
    assert_eq!(askers, [BOOTSTRAPPER, "system:node:n1"]);
}

#[tokio::test(start_paused = true)]
async fn unapproved_renewal_stays_one_csr() {
    let node = Node::new();
    let (_running, first) = with_certificate(&node, node.rotation()).await;
    node.server.auto_approve_csrs(None);
    tokio::time::sleep(DAY.mul_f64(0.95)).await;
    // more than an hour of waiting, in pieces of a quarter
    let (name, _) = node.csrs(2).await.remove(1);
    node.server.approve_csr(&name, DAY).unwrap();
    within(MINUTE, until(|| node.identity.expires_at() > Some(first))).await;
    // attempts without a decision
    assert!(node.metrics.certificates.client_renew_errors.get() >= 1.0);
}

#[tokio::test(start_paused = true)]
async fn without_rotation_node_joins_again_after_expiry() {
    let node = Node::new();
    let rotation = ClientRotation {
        rotate: false,
        ..node.rotation()
    };
    let (_running, first) = with_certificate(&node, rotation).await;
    tokio::time::sleep(DAY - HOUR).await;
    assert_eq!(node.identity.expires_at(), Some(first));
    tokio::time::sleep(HOUR + 2 * MINUTE).await;
    assert!(node.identity.expires_at() > Some(node.clock.now()));
    let askers: Vec<_> = node.csrs(2).await.into_iter().map(|csr| csr.1).collect();
    assert_eq!(askers, [BOOTSTRAPPER, BOOTSTRAPPER]);
}

#[tokio::test(start_paused = true)]
async fn node_offline_beyond_expiry_joins_again() {
    let node = Node::new();
    let (running, _) = with_certificate(&node, node.rotation()).await;
    until(|| node.store.current_path().exists()).await;
    running.kill().await;
    node.server.auto_approve_csrs(None);
    tokio::time::sleep(400 * DAY).await;

    let rotation = ClientRotation {
        identity: ClientIdentity::none(),
        ..node.rotation()
    };
    let identity = rotation.identity.clone();
    let _running = Running::start(rotation);
    let (name, asker) = node.csrs(2).await.remove(1);
    assert_eq!(asker, BOOTSTRAPPER);
    node.server.approve_csr(&name, DAY).unwrap();
    within(
        MINUTE,
        until(|| identity.expires_at() > Some(node.clock.now())),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn externally_provided_certificate_ends_recovery() {
    let node = Node::new();
    let rotation = ClientRotation {
        bootstrap: Bootstrap::None,
        rotate: false,
        ..node.rotation()
    };
    let other = Node::new();
    let (_other, _) = with_certificate(&other, other.rotation()).await;
    until(|| other.store.current_path().exists()).await;
    let _running = Running::start(rotation);
    tokio::time::sleep(MINUTE).await;
    assert!(!node.identity.is_present());
    std::fs::create_dir_all(&node.directory).unwrap();
    std::fs::copy(other.store.current_path(), node.store.current_path()).unwrap();
    within(Duration::from_secs(11), node.certificate()).await;
}

#[tokio::test(start_paused = true)]
async fn externally_renewed_file_is_used_and_a_torn_one_ignored() {
    let node = Node::new();
    let (_running, first) = with_certificate(&node, node.rotation()).await;
    until(|| node.store.current_path().exists()).await;
    tokio::time::sleep(HOUR).await;

    let other = Node::new();
    tokio::time::sleep(HOUR).await;
    let (_other, second) = with_certificate(&other, other.rotation()).await;
    until(|| other.store.current_path().exists()).await;
    // both clocks read the same base
    assert!(second < first + Duration::from_secs(2 * 3600));
    let newer = std::fs::read(other.store.current_path()).unwrap();

    std::fs::write(node.store.current_path(), "-----BEGIN CERT").unwrap();
    tokio::time::sleep(2 * MINUTE).await;
    assert_eq!(node.identity.expires_at(), Some(first));
    std::fs::write(node.store.current_path(), &newer).unwrap();
    within(
        2 * MINUTE,
        until(|| node.identity.expires_at() == Some(second)),
    )
    .await;
    assert_eq!(node.csrs(1).await.len(), 1, "no CSR was created");
}

#[tokio::test(start_paused = true)]
async fn external_certificate_ends_the_wait_for_approval() {
    let node = Node::new();
    let _running = node.start();
    node.csrs(1).await;
    let other = Node::new();
    let (_other, _) = with_certificate(&other, other.rotation()).await;
    until(|| other.store.current_path().exists()).await;
    std::fs::copy(other.store.current_path(), node.store.current_path()).unwrap();
    within(2 * MINUTE, node.certificate()).await;
}

#[tokio::test(start_paused = true)]
async fn certificates_due_at_once_are_requested_once_a_minute() {
    let node = Node::new();
    // backdated by five minutes: 97 % of its life are over when it is signed
    node.server.auto_approve_csrs(Some(Duration::from_secs(10)));
    let _running = node.start();
    node.certificate().await;
    tokio::time::sleep(10 * MINUTE).await;
    let asked = crate::support::csrs_of(&node.server).len();
    assert!((9..=12).contains(&asked), "{asked}");
}
