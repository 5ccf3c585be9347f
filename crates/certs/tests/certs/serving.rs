//! The serving certificate.

use std::net::IpAddr;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use tokio::sync::watch;
use windlass_certs::certificate::Certificate;
use windlass_certs::{
    CertificateStore, ServingNames, ServingPair, ServingRotation, run_serving_rotation,
};

use crate::support::{DAY, HOUR, MINUTE, Node, Running, until, within};

struct Serving {
    node: Node,
    names: watch::Sender<ServingNames>,
    current: watch::Receiver<Option<ServingPair>>,
    rotation: ServingRotation,
}

fn names(ips: &[[u8; 4]]) -> ServingNames {
    ServingNames {
        dns: vec!["n1".to_owned()],
        ips: ips.iter().copied().map(IpAddr::from).collect(),
    }
}

fn serving(ips: &[[u8; 4]]) -> Serving {
    let node = Node::new();
    let (names, of_names) = watch::channel(names(ips));
    let (current, of_current) = watch::channel(None);
    let rotation = ServingRotation {
        node: "n1".to_owned(),
        names: of_names,
        store: CertificateStore::serving(&node.directory),
        client: node.server.clients_of_node("n1").main,
        clock: node.clock.clone(),
        current,
        metrics: Some(node.metrics.certificates.clone()),
    };
    Serving {
        node,
        names,
        current: of_current,
        rotation,
    }
}

impl Serving {
    fn run(&self) -> Running {
        Running::spawn(run_serving_rotation(self.rotation.clone()))
    }

    fn certificate(&self) -> Option<Certificate> {
        let pair = self.current.borrow().clone();
        Certificate::from_pem(pair?.pem())
    }

    async fn for_names(&self, names: &ServingNames) -> Certificate {
        let covers = || self.certificate().is_some_and(|it| it.covers(names));
        within(HOUR, until(covers)).await;
        self.certificate().unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn serving_csr_needs_an_address_and_names_it() {
    let serving = serving(&[]);
    let _running = serving.run();
    tokio::time::sleep(10 * MINUTE).await;
    assert!(serving.node.csrs(0).await.is_empty());

    let wanted = names(&[[10, 0, 0, 1]]);
    serving.names.send_replace(wanted.clone());
    let (name, asker) = serving.node.csrs(1).await.remove(0);
    assert_eq!(asker, "system:node:n1");
    let csr: CertificateSigningRequest = serving.node.server.get(None, &name).unwrap();
    assert_eq!(csr.spec.signer_name, "kubernetes.io/kubelet-serving");
    let usages = csr.spec.usages.unwrap();
    assert_eq!(usages, ["digital signature", "server auth"]);
    serving.node.server.approve_csr(&name, DAY).unwrap();
    let certificate = serving.for_names(&wanted).await;
    assert_eq!(certificate.names, wanted);
    let file = serving.node.directory.join("kubelet-server-current.pem");
    within(MINUTE, until(|| file.exists())).await;
}

#[tokio::test(start_paused = true)]
async fn added_address_triggers_a_csr_and_a_removed_one_does_not() {
    let serving = serving(&[[10, 0, 0, 1]]);
    serving.node.server.auto_approve_csrs(Some(DAY));
    let _running = serving.run();
    serving.for_names(&names(&[[10, 0, 0, 1]])).await;
    let two = names(&[[10, 0, 0, 1], [10, 0, 0, 2]]);
    serving.names.send_replace(two.clone());
    serving.for_names(&two).await;
    serving.names.send_replace(names(&[[10, 0, 0, 2]]));
    tokio::time::sleep(10 * MINUTE).await;
    serving.node.csrs(2).await;
}

#[tokio::test(start_paused = true)]
async fn changed_address_replaces_a_pending_csr() {
    let serving = serving(&[[10, 0, 0, 1]]);
    let _running = serving.run();
    let (first, _) = serving.node.csrs(1).await.remove(0);
    let wanted = names(&[[10, 0, 0, 9]]);
    serving.names.send_replace(wanted.clone());
    let csrs = within(MINUTE, serving.node.csrs(2)).await;
    let (second, _) = csrs.iter().find(|(name, _)| *name != first).unwrap();
    serving.node.server.approve_csr(second, DAY).unwrap();
    serving.for_names(&wanted).await;
}

#[tokio::test(start_paused = true)]
async fn serving_certificate_survives_restart_and_is_renewed() {
    let serving = serving(&[[10, 0, 0, 1]]);
    serving.node.server.auto_approve_csrs(Some(DAY));
    let running = serving.run();
    let first = serving.for_names(&names(&[[10, 0, 0, 1]])).await;
    let file = serving.node.directory.join("kubelet-server-current.pem");
    within(MINUTE, until(|| file.exists())).await;
    running.kill().await;
    serving.rotation.current.send_replace(None);

    let _running = serving.run();
    let again = serving.for_names(&names(&[[10, 0, 0, 1]])).await;
    assert_eq!(again, first);
    serving.node.csrs(1).await;
    tokio::time::sleep(DAY.mul_f64(0.91)).await;
    let second = serving.certificate().unwrap();
    assert!(second.validity.not_after > first.validity.not_after);
    serving.node.csrs(2).await;
    let lived = &serving.node.metrics.certificates.server_rotation;
    assert_eq!(lived.get_sample_count(), 1);
    let days = lived.get_sample_sum() / DAY.as_secs_f64();
    assert!((0.69..0.91).contains(&days), "{days}");
}
