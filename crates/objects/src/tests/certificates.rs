//! Pod certificates: requested once, served with their keys, renewed in time; the tests act as
//! signer.

use windlass_fake_api::On;
use windlass_types::certificatesv1beta1::PodCertificateRequest;
use windlass_types::corev1::Node;

use super::*;

const REQUESTS: &str = "/podcertificaterequests";
const SIGNER: &str = "example.com/ca";
const HOUR: u64 = 3600;

/// An environment with a node and a service account for pods.
fn test_env() -> TestEnv {
    let env = TestEnv::with_node_clients();
    let node = env
        .server
        .create(&object::<Node>(json!({"metadata": {"name": "n1"}})));
    env.node.send_replace(NodeUpdate(Some(Arc::new(node))));
    let account = json!({"metadata": {"namespace": "default", "name": "robot"}});
    env.server.create(&object::<ServiceAccount>(account));
    env
}

fn source(key_type: &str) -> Value {
    json!({"podCertificate": {
        "signerName": SIGNER, "keyType": key_type, "maxExpirationSeconds": 7200,
        "userAnnotations": {"example.com/role": "db"},
        "credentialBundlePath": "bundle", "keyPath": "key", "certificateChainPath": "chain",
    }})
}

fn pod_of(env: &TestEnv, uid: &str, sources: Value) -> SharedPod {
    let spec = json!({
        "nodeName": "n1", "serviceAccountName": "robot",
        "volumes": [{"name": "v", "projected": {"sources": sources}}],
    });
    // the request requires an existing pod
    SharedPod::new(env.server.create(pod(uid, spec).as_ref()))
}

fn certificate_pod(env: &TestEnv, uid: &str) -> SharedPod {
    pod_of(env, uid, json!([source("ED25519")]))
}

fn uid(pod: &SharedPod) -> PodUid {
    windlass_types::PodExt::uid(pod.as_ref())
}

fn hours(n: u64) -> impl Future<Output = ()> {
    tokio::time::sleep(Duration::from_secs(n * HOUR))
}

impl TestEnv {
    fn certificate_requests(&self) -> Vec<PodCertificateRequest> {
        self.server.list()
    }

    /// Returns the names of undecided requests.
    fn undecided(&self) -> Vec<String> {
        let open = self.certificate_requests().into_iter();
        let open = open.filter(|request| request.status.is_none());
        open.filter_map(|request| request.metadata.name).collect()
    }

    /// Sets the status of all undecided requests.
    fn answer(&self, status: &Value) {
        for name in self.undecided() {
            let change = |request: &mut PodCertificateRequest| {
                let status = serde_json::from_value(status.clone());
                request.status = Some(status.expect("status"));
            };
            self.server.modify(Some("default"), &name, change);
        }
    }

    /// Signs all undecided requests: valid for two hours, to be renewed after one.
    fn sign(&self) {
        let now = windlass_types::Clock::now(&*self.clock);
        let after = |hours| windlass_types::later(now, Duration::from_secs(hours * HOUR));
        let mut status = condition("Issued", "Issued");
        status["certificateChain"] = json!(
            "mine\n-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\nand its issuer\n"
        );
        status["notBefore"] = json!(now.to_string());
        status["beginRefreshAt"] = json!(after(1).to_string());
        status["notAfter"] = json!(after(2).to_string());
        self.answer(&status);
    }

    /// Returns the pod's inputs while a signer signs all requests.
    async fn signed(&self, pod: &SharedPod) -> PodInputs {
        let signer = async {
            settle().await;
            self.sign();
        };
        let (inputs, ()) = futures::join!(self.inputs(pod), signer);
        inputs.expect("inputs")
    }

    fn states(&self) -> Vec<String> {
        let text = self.metrics.render().expect("text");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let lines = lines.filter_map(|line| line.strip_prefix("kubelet_podcertificate_states"));
        lines.map(str::to_owned).collect()
    }
}

fn condition(kind: &str, reason: &str) -> Value {
    json!({"conditions": [{
        "type": kind, "status": "True", "reason": reason, "message": "no \"way\"",
        "lastTransitionTime": "2026-11-21T00:00:00Z",
    }]})
}

fn text<'a>(inputs: &'a PodInputs, file: &str) -> &'a str {
    std::str::from_utf8(&files(inputs)[file].data).expect("text")
}

#[tokio::test(start_paused = true)]
async fn certificate_request_is_issued_with_its_key() {
    let env = test_env();
    let pod = certificate_pod(&env, "a");
    let inputs = env.signed(&pod).await;
    let requests = env.certificate_requests();
    assert_eq!(requests.len(), 1);
    let request = serde_json::to_value(&requests[0]).expect("JSON");
    let name = request["metadata"]["name"].as_str().expect("a name");
    assert!(name.starts_with("req-"), "{name}");
    let owner = json!([{
        "apiVersion": "v1", "kind": "Pod", "name": "pod-a", "uid": uid(&pod).as_str(),
    }]);
    assert_eq!(request["metadata"]["ownerReferences"], owner);
    let mut spec = request["spec"].clone();
    let proof = spec["stubPKCS10Request"].take();
    assert!(
        proof.as_str().is_some_and(|proof| proof.len() > 100),
        "{proof}"
    );
    let account = env.server.get::<ServiceAccount>(Some("default"), "robot");
    let node = env.server.get::<Node>(None, "n1");
    assert_eq!(
        spec,
        json!({
            "signerName": SIGNER,
            "podName": "pod-a",
            "podUID": uid(&pod).as_str(),
            "serviceAccountName": "robot",
            "serviceAccountUID": account.expect("there").metadata.uid,
            "nodeName": "n1",
            "nodeUID": node.expect("there").metadata.uid,
            "maxExpirationSeconds": 7200,
            "stubPKCS10Request": null,
            "unverifiedUserAnnotations": {"example.com/role": "db"},
        })
    );
    let chain = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let key = text(&inputs, "key");
    assert!(key.starts_with("-----BEGIN PRIVATE KEY-----\n"));
    assert_eq!(text(&inputs, "chain"), chain);
    assert_eq!(text(&inputs, "bundle"), format!("{key}{chain}"));
    assert_eq!(env.watches(REQUESTS), 1);
}

#[tokio::test(start_paused = true)]
async fn each_certificate_source_has_its_own_key() {
    let env = test_env();
    let kinds = [
        "RSA3072",
        "ECDSAP256",
        "ECDSAP384",
        "ECDSAP521",
        "ED25519",
        "ED25519",
    ];
    let sources = kinds.iter().enumerate().map(|(index, kind)| {
        let mut source = source(kind);
        source["podCertificate"] = json!({
            "signerName": SIGNER, "keyType": kind, "keyPath": format!("key{index}"),
        });
        source
    });
    let pod = pod_of(&env, "a", sources.collect());
    let inputs = env.signed(&pod).await;
    assert_eq!(env.certificate_requests().len(), kinds.len());
    let keys: std::collections::BTreeSet<_> = files(&inputs).values().map(|f| &f.data).collect();
    assert_eq!(keys.len(), kinds.len());
    // the API server fills in defaults
    let first = &env.certificate_requests()[0];
    assert_eq!(first.spec.max_expiration_seconds, Some(86_400));
}

#[tokio::test(start_paused = true)]
async fn late_certificate_requeues_pod_after_ten_seconds() {
    let mut env = test_env();
    let pod = certificate_pod(&env, "a");
    let began = tokio::time::Instant::now();
    let why = env.inputs(&pod).await.expect_err("no signer");
    assert!(
        why.ends_with("credential bundle is not issued yet"),
        "{why}"
    );
    assert_eq!(began.elapsed().as_secs(), 10);
    // no second wait of ten seconds
    env.inputs(&pod).await.expect_err("no signer");
    assert_eq!(began.elapsed().as_secs(), 10);
    assert_eq!(
        env.states(),
        [format!(
            "{{signer_name=\"{SIGNER}\",state=\"not_yet_issued\"}} 1"
        )]
    );
    hours(1).await;
    assert_eq!(env.requeued().await, [""; 0]);
    env.sign();
    assert_eq!(env.requeued().await, [uid(&pod).to_string()]);
    env.inputs(&pod).await.expect("inputs");
    assert_eq!(env.certificate_requests().len(), 1);
    assert_eq!(
        env.states(),
        [format!("{{signer_name=\"{SIGNER}\",state=\"fresh\"}} 1")]
    );
}

#[tokio::test(start_paused = true)]
async fn certificate_is_renewed_with_new_key_while_old_serves() {
    let mut env = test_env();
    let pod = certificate_pod(&env, "a");
    let first = env.signed(&pod).await;
    env.requeued().await;
    tokio::time::sleep(Duration::from_secs(HOUR - 60)).await;
    assert_eq!(env.certificate_requests().len(), 1);
    // the renewal starts within five minutes of its time
    tokio::time::sleep(Duration::from_secs(60 + 300)).await;
    assert_eq!(env.undecided().len(), 1);
    assert_eq!(env.requeued().await, [""; 0]);
    let meanwhile = env.inputs(&pod).await.expect("inputs");
    assert_eq!(text(&meanwhile, "bundle"), text(&first, "bundle"));
    env.sign();
    assert_eq!(env.requeued().await, [uid(&pod).to_string()]);
    let second = env.inputs(&pod).await.expect("inputs");
    assert_ne!(text(&second, "key"), text(&first, "key"));
    assert_eq!(env.certificate_requests().len(), 2);
    assert_eq!(env.events(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn unsigned_renewal_records_event_and_keeps_certificate() {
    let env = test_env();
    let pod = certificate_pod(&env, "a");
    let first = env.signed(&pod).await;
    hours(3).await;
    assert_eq!(
        env.events(),
        [
            "CertificateOverdueForRefresh PodCertificate refresh overdue",
            "CertificateExpired PodCertificate expired",
        ]
    );
    let after = env.inputs(&pod).await.expect("inputs");
    assert_eq!(text(&after, "bundle"), text(&first, "bundle"));
    assert_eq!(
        env.states(),
        [format!("{{signer_name=\"{SIGNER}\",state=\"expired\"}} 1")]
    );
}

#[tokio::test(start_paused = true)]
async fn denied_certificate_request_is_reported_and_final() {
    for (condition_type, how, state) in [
        ("Denied", "was denied", "denied"),
        ("Failed", "failed", "failed"),
    ] {
        let mut env = test_env();
        let pod = certificate_pod(&env, "a");
        env.inputs(&pod).await.expect_err("no signer");
        let name = env.undecided().remove(0);
        env.answer(&condition(condition_type, "UnsupportedKeyType"));
        assert_eq!(env.requeued().await, [uid(&pod).to_string()]);
        let words = "reason=\"UnsupportedKeyType\", message=\"no \\\"way\\\"\"";
        let event = format!("{condition_type} PodCertificateRequest default/{name} {how}, {words}");
        assert_eq!(env.events(), [event]);
        let why = env.inputs(&pod).await.expect_err("refused");
        let words = words.replace(',', "");
        let expected = format!("PodCertificateRequest was permanently {state}: {words}");
        assert!(why.ends_with(&expected), "{why}");
        hours(100).await;
        assert_eq!(env.certificate_requests().len(), 1);
        assert_eq!(
            env.states(),
            [format!("{{signer_name=\"{SIGNER}\",state=\"{state}\"}} 1")]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn failed_certificate_request_is_reported_and_retried() {
    let mut env = test_env();
    let pod = certificate_pod(&env, "a");
    let down = env
        .server
        .faults()
        .error(On::path("*/podcertificaterequests"), 503);
    let why = env.inputs(&pod).await.expect_err("down");
    let begins = "credential bundle is not issued yet: while creating PodCertificateRequest: \
                  while creating on API: POST ";
    assert!(why.contains(begins), "{why}");
    env.server.faults().lift(down);
    tokio::time::sleep(Duration::from_secs(120)).await;
    env.sign();
    assert_eq!(env.requeued().await, [uid(&pod).to_string()]);
    env.inputs(&pod).await.expect("inputs");
}

#[tokio::test(start_paused = true)]
async fn deleted_certificate_request_is_recreated() {
    let mut env = test_env();
    let pod = certificate_pod(&env, "a");
    env.inputs(&pod).await.expect_err("no signer");
    let name = env.undecided().remove(0);
    let gone = env
        .server
        .delete::<PodCertificateRequest>(Some("default"), &name, None);
    assert!(gone);
    settle().await;
    assert_eq!(env.undecided().len(), 1);
    env.sign();
    assert_eq!(env.requeued().await, [uid(&pod).to_string()]);
}

#[tokio::test(start_paused = true)]
async fn certificate_request_waits_for_node() {
    let mut env = test_env();
    let node = env.node.send_replace(NodeUpdate(None));
    let pod = certificate_pod(&env, "a");
    env.inputs(&pod).await.expect_err("not requested");
    assert_eq!(env.certificate_requests().len(), 0);
    env.node.send_replace(node);
    settle().await;
    env.sign();
    assert_eq!(env.requeued().await, [uid(&pod).to_string()]);
}

#[tokio::test(start_paused = true)]
async fn certificate_keys_and_watch_end_with_their_pods() {
    let mut env = test_env();
    let pods = ["a", "b"].map(|uid| certificate_pod(&env, uid));
    let first = env.signed(&pods[0]).await;
    env.signed(&pods[1]).await;
    env.requeued().await;
    env.cache.unregister(&uid(&pods[0]));
    assert_eq!(env.states().len(), 1);
    assert!(env.is_watched(REQUESTS).await);
    hours(2).await;
    assert_eq!(env.undecided().len(), 1, "for the other one");
    env.cache.unregister(&uid(&pods[1]));
    assert_eq!(env.states(), [""; 0]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!env.is_watched(REQUESTS).await);
    hours(9).await;
    assert_eq!(env.certificate_requests().len(), 3);
    let again = env.signed(&pods[0]).await;
    assert_ne!(text(&again, "key"), text(&first, "key"));
}

#[tokio::test(start_paused = true)]
async fn pod_certificates_without_gate_report_upstream_error() {
    let mut env = test_env();
    env.cache = Arc::new(ObjectCache::new(ObjectCacheDeps {
        clients: Some(env.server.clients_of_node("n1")),
        clock: env.clock.clone(),
        events: env.events.clone(),
        changed: slots(ActorKind::new("SyncLoop", 50), &env.metrics.mailboxes).0,
        node: Arc::new(NodeFacts::default()),
        node_seen: env.node.subscribe(),
        metrics: env.metrics.volumes.clone(),
        change_detection: ChangeDetection::Watch,
        csi: None,
        credential_dirs: None,
        kept: None,
    }));
    let pod = certificate_pod(&env, "a");
    let why = env.inputs(&pod).await.expect_err("switched off");
    assert!(why.ends_with("unimplemented"), "{why}");
    hours(1).await;
    assert_eq!(env.watches(REQUESTS), 0);
    assert_eq!(env.certificate_requests().len(), 0);
}
