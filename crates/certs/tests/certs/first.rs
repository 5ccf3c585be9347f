//! The first certificate.

use std::fs;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use windlass_fake_api::On;

use crate::support::{BOOTSTRAPPER, DAY, MINUTE, Node, within};

#[tokio::test(start_paused = true)]
async fn first_csr_uses_bootstrap_credentials_and_waits_for_approval() {
    let node = Node::new();
    let _running = node.start();
    let csrs = node.csrs(1).await;
    let (name, user) = &csrs[0];
    assert_eq!(user, BOOTSTRAPPER);
    let csr: CertificateSigningRequest = node.server.get(None, name).unwrap();
    let spec = csr.spec;
    assert_eq!(
        spec.signer_name,
        "kubernetes.io/kube-apiserver-client-kubelet"
    );
    assert_eq!(spec.usages.unwrap(), ["digital signature", "client auth"]);
    assert_eq!(spec.expiration_seconds, None);

    tokio::time::sleep(30 * MINUTE).await;
    assert!(!node.identity.is_present());
    assert_eq!(node.csrs(1).await, csrs, "no further CSR");
    node.server.approve_csr(name, DAY).unwrap();
    within(MINUTE, node.certificate()).await;

    within(
        MINUTE,
        crate::support::until(|| node.store.current_path().exists()),
    )
    .await;
    let link = fs::read_link(node.store.current_path()).unwrap();
    assert_eq!(
        link.to_str().unwrap(),
        "kubelet-client-2026-01-01-00-30-00.pem"
    );
    assert_eq!(node.store.pending_key().unwrap(), None);
    let text = fs::read_to_string(node.store.current_path()).unwrap();
    let blocks: Vec<_> = text.lines().filter(|l| l.contains("BEGIN")).collect();
    assert_eq!(
        blocks,
        ["-----BEGIN CERTIFICATE-----", "-----BEGIN PRIVATE KEY-----"]
    );
}

#[tokio::test(start_paused = true)]
async fn auto_approved_csr_yields_a_certificate_within_a_second() {
    let node = Node::new();
    node.server.auto_approve_csrs(Some(DAY));
    let _running = node.start();
    within(std::time::Duration::from_secs(1), node.certificate()).await;
}

#[tokio::test(start_paused = true)]
async fn denied_csr_is_followed_by_one_with_a_new_key() {
    let node = Node::new();
    let _running = node.start();
    let denied = node.csrs(1).await[0].0.clone();
    node.server.deny_csr(&denied, "not yet").unwrap();
    let csrs = node.csrs(2).await;
    let (second, _) = csrs.iter().find(|(name, _)| *name != denied).unwrap();
    node.server.approve_csr(second, DAY).unwrap();
    within(MINUTE, node.certificate()).await;
}

#[tokio::test(start_paused = true)]
async fn deleted_csr_is_created_again() {
    let node = Node::new();
    let _running = node.start();
    let (name, _) = node.csrs(1).await.remove(0);
    node.server.auto_approve_csrs(Some(DAY));
    node.server
        .delete::<CertificateSigningRequest>(None, &name, None);
    within(MINUTE, node.certificate()).await;
}

#[tokio::test(start_paused = true)]
async fn restarted_agent_continues_its_pending_csr() {
    let node = Node::new();
    let before = node.start();
    let csrs = node.csrs(1).await;
    before.kill().await;

    let _after = node.start();
    let posts = |status: u16| {
        move |server: &windlass_fake_api::FakeApiServer| {
            let mut requests = server.requests().into_iter();
            requests.any(|it| it.method == "POST" && it.status == status)
        }
    };
    within(MINUTE, node.server.wait_for(posts(409))).await;
    assert_eq!(node.csrs(1).await, csrs);
    node.server.approve_csr(&csrs[0].0, DAY).unwrap();
    within(MINUTE, node.certificate()).await;
}

#[tokio::test(start_paused = true)]
async fn torn_pending_key_is_replaced() {
    let node = Node::new();
    node.store.save_pending_key("-----BEGIN PRIV").unwrap();
    node.server.auto_approve_csrs(Some(DAY));
    let _running = node.start();
    within(MINUTE, node.certificate()).await;
}

#[tokio::test(start_paused = true)]
async fn unreachable_api_server_is_retried_about_twice_a_minute() {
    let node = Node::new();
    node.server.auto_approve_csrs(Some(DAY));
    node.server.faults().down(On::any());
    let _running = node.start();
    tokio::time::sleep(10 * MINUTE).await;
    let asked = node.server.requests().len();
    assert!((10..=25).contains(&asked), "{asked}");
    node.server.faults().clear();
    within(MINUTE, node.certificate()).await;
}

#[tokio::test(start_paused = true)]
async fn broken_or_forbidden_watch_does_not_lose_the_approval() {
    let node = Node::new();
    let _running = node.start();
    let (name, _) = node.csrs(1).await.remove(0);
    node.server.faults().close_watches();
    // as for a user who may read requests but not watch them
    let refused = node.server.faults().error(On::any().method("WATCH"), 403);
    node.server.approve_csr(&name, DAY).unwrap();
    within(2 * MINUTE, node.certificate()).await;
    node.server.faults().lift(refused);
}

#[tokio::test(start_paused = true)]
async fn expired_certificate_of_previous_agent_run_is_not_used() {
    let node = Node::new();
    let before = node.start();
    let (name, _) = node.csrs(1).await.remove(0);
    before.kill().await;
    node.server.approve_csr(&name, MINUTE).unwrap();
    tokio::time::sleep(2 * MINUTE).await;
    node.server.auto_approve_csrs(Some(DAY));
    let _after = node.start();
    let ends = within(MINUTE, node.certificate()).await;
    assert!(ends > windlass_types::Clock::now(&*node.clock));
    assert_eq!(node.csrs(2).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn expired_bootstrap_credentials_are_read_again() {
    let node = Node::new();
    let _running = node.start();
    let (name, _) = node.csrs(1).await.remove(0);
    let refused = node.server.faults().error(On::any().method("WATCH"), 401);
    node.server.faults().close_watches();
    let went_on = |server: &windlass_fake_api::FakeApiServer| {
        let mut requests = server.requests().into_iter();
        requests.any(|it| it.method == "POST" && it.status == 409)
    };
    within(MINUTE, node.server.wait_for(went_on)).await;
    node.server.faults().lift(refused);
    node.server.approve_csr(&name, DAY).unwrap();
    within(MINUTE, node.certificate()).await;
}
