//! Trust anchors in volumes.

use windlass_types::certificatesv1beta1::ClusterTrustBundle;

use super::*;

const BUNDLES: &str = "/clustertrustbundles";

/// A bundle with one "certificate".
fn bundle(name: &str, signer: &str, body: &str) -> ClusterTrustBundle {
    let block = format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n");
    object(json!({
        "metadata": {"name": name, "labels": {"live": "yes"}},
        "spec": {"signerName": signer, "trustBundle": block},
    }))
}

fn trust_pod(uid: &str, mut source: Value) -> SharedPod {
    source["path"] = json!("key");
    let sources = json!([{"clusterTrustBundle": source}]);
    pod(
        uid,
        json!({"volumes": [{"name": "v", "projected": {"sources": sources}}]}),
    )
}

/// Returns the bodies of the PEM blocks in the volume.
async fn seen(env: &TestEnv, pod: &SharedPod) -> Result<Vec<String>, String> {
    let inputs = env.inputs(pod).await?;
    let lines = content(&inputs)
        .lines()
        .filter(|line| !line.starts_with('-'));
    Ok(lines.map(str::to_owned).collect())
}

#[tokio::test(start_paused = true)]
async fn named_bundle_is_watched_and_changes_requeue_pod() {
    let mut env = TestEnv::with_node_clients();
    let pod = trust_pod("a", json!({"name": "roots"}));
    let error = seen(&env, &pod).await.expect_err("missing");
    assert_eq!(
        error,
        "volume v: while getting ClusterTrustBundle: \
         clustertrustbundle.certificates.k8s.io \"roots\" not found"
    );
    env.server.create(&bundle("other", "", "AAAA"));
    assert_eq!(env.requeued().await, [""; 0]);
    env.server.create(&bundle("roots", "", "BBBB"));
    assert_eq!(env.requeued().await, ["a"]);
    assert_eq!(seen(&env, &pod).await, Ok(vec!["BBBB".to_owned()]));
    assert_eq!(env.watches(BUNDLES), 1);
    env.cache.unregister(&"a".into());
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert!(!env.is_watched(BUNDLES).await);
}

#[tokio::test(start_paused = true)]
async fn bundles_of_signer_are_added_and_removed() {
    let mut env = TestEnv::new();
    let signer = "example.com/ca";
    env.server.create(&bundle("one", signer, "AAAA"));
    env.server.create(&bundle("two", signer, "BBBB"));
    env.server
        .create(&bundle("three", "example.com/other", "CCCC"));
    let of = json!({"signerName": signer, "labelSelector": {"matchLabels": {"live": "yes"}}});
    let pod = trust_pod("a", of);
    let both = vec!["AAAA".to_owned(), "BBBB".to_owned()];
    assert_eq!(seen(&env, &pod).await, Ok(both));
    assert_eq!(env.requeued().await, [""; 0]);
    env.server.delete::<ClusterTrustBundle>(None, "one", None);
    assert_eq!(env.requeued().await, ["a"]);
    assert_eq!(seen(&env, &pod).await, Ok(vec!["BBBB".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn missing_trust_bundle_api_blocks_only_its_users() {
    let env = TestEnv::new();
    env.server
        .authorize(|_, access| access.resource != "clustertrustbundles");
    let error = seen(&env, &trust_pod("a", json!({"name": "roots"}))).await;
    let error = error.expect_err("forbidden");
    assert!(
        error.starts_with("volume v: failed to read clustertrustbundle \"roots\": "),
        "{error}"
    );
    env.inputs(&pod("b", json!({}))).await.expect("inputs");
}
