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
async fn seen(world: &World, pod: &SharedPod) -> Result<Vec<String>, String> {
    let inputs = world.inputs(pod).await?;
    let lines = shown(&inputs).lines().filter(|line| !line.starts_with('-'));
    Ok(lines.map(str::to_owned).collect())
}

#[tokio::test(start_paused = true)]
async fn a_named_bundle_is_watched_alone_and_its_changes_are_told() {
    let mut world = World::of_node();
    let pod = trust_pod("a", json!({"name": "roots"}));
    let refused = seen(&world, &pod).await.expect_err("missing");
    assert_eq!(
        refused,
        "volume v: while getting ClusterTrustBundle: \
         clustertrustbundle.certificates.k8s.io \"roots\" not found"
    );
    world.server.create(&bundle("other", "", "AAAA"));
    assert_eq!(world.told().await, [""; 0]);
    world.server.create(&bundle("roots", "", "BBBB"));
    assert_eq!(world.told().await, ["a"]);
    assert_eq!(seen(&world, &pod).await, Ok(vec!["BBBB".to_owned()]));
    assert_eq!(world.watches(BUNDLES), 1);
    world.cache.unregister(&"a".into());
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert!(!world.is_watched(BUNDLES).await);
}

#[tokio::test(start_paused = true)]
async fn bundles_of_a_signer_come_and_go() {
    let mut world = World::new();
    let signer = "example.com/ca";
    world.server.create(&bundle("one", signer, "AAAA"));
    world.server.create(&bundle("two", signer, "BBBB"));
    world
        .server
        .create(&bundle("three", "example.com/other", "CCCC"));
    let of = json!({"signerName": signer, "labelSelector": {"matchLabels": {"live": "yes"}}});
    let pod = trust_pod("a", of);
    let both = vec!["AAAA".to_owned(), "BBBB".to_owned()];
    assert_eq!(seen(&world, &pod).await, Ok(both));
    assert_eq!(world.told().await, [""; 0]);
    world.server.delete::<ClusterTrustBundle>(None, "one", None);
    assert_eq!(world.told().await, ["a"]);
    assert_eq!(seen(&world, &pod).await, Ok(vec!["BBBB".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_server_without_trust_bundles_holds_up_only_who_wants_one() {
    let world = World::new();
    world
        .server
        .authorize(|_, access| access.resource != "clustertrustbundles");
    let refused = seen(&world, &trust_pod("a", json!({"name": "roots"}))).await;
    let refused = refused.expect_err("forbidden");
    assert!(
        refused.starts_with("volume v: failed to read clustertrustbundle \"roots\": "),
        "{refused}"
    );
    world.inputs(&pod("b", json!({}))).await.expect("inputs");
}
