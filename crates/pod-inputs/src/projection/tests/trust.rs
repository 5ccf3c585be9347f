//! Trust anchors in projected volumes.

use windlass_types::certificatesv1beta1::ClusterTrustBundle;

use super::*;

/// Compares the certificates in the file `ca`, in order, or the error.
fn check(source: Value, expected: &str) {
    check_with(
        NodeFacts {
            trust_bundles: true,
            ..NodeFacts::default()
        },
        source,
        expected,
    );
}

fn check_with(node: NodeFacts, mut source: Value, expected: &str) {
    source["path"] = json!("ca");
    let sources = json!([{"clusterTrustBundle": source}]);
    let pod = pod(
        json!({"containers": []}),
        json!([{"name": "v", "projected": {"sources": sources}}]),
    );
    let projection = project_volumes(ProjectionInput {
        pod: &pod,
        node: &node,
        objects: &objects(),
    });
    let line = match projection.errors.get("v") {
        Some(errors) => format!("error: {errors}"),
        None => {
            let file = &projection.payloads["v"].files["ca"];
            let text = String::from_utf8(file.data.to_vec()).expect("text");
            let bundle: ClusterTrustBundle =
                serde_json::from_value(json!({"metadata": {}, "spec": {"trustBundle": text}}))
                    .expect("bundle");
            let anchors = TrustBundle::from(bundle).anchors;
            let names = anchors.iter().map(|der| String::from_utf8_lossy(der));
            names.collect::<Vec<_>>().join(" ")
        }
    };
    assert_eq!(line, expected);
}

fn fails(source: Value, expected: &str) {
    check(source, &format!("error: {expected}"));
}

#[test]
fn bundle_is_selected_by_name() {
    check(json!({"name": "roots"}), "one two");
    fails(
        json!({"name": "none"}),
        "while getting ClusterTrustBundle: \
         clustertrustbundle.certificates.k8s.io \"none\" not found",
    );
    check(json!({"name": "none", "optional": true}), "");
    fails(
        json!({}),
        "ClusterTrustBundle projection requires either name or signerName to be set",
    );
}

#[test]
fn bundles_of_signer_are_selected_by_label() {
    let of = |selector: Value| json!({"signerName": "example.com/ca", "labelSelector": selector});
    let expression = |operator: &str, values: Value| {
        of(json!({"matchExpressions": [{"key": "stage", "operator": operator, "values": values}]}))
    };
    let none = "combination of signerName and labelSelector matched zero ClusterTrustBundles";
    check(of(json!({})), "three two");
    check(of(json!({"matchLabels": {"stage": "a"}})), "two");
    fails(of(json!({"matchLabels": {"stage": "c"}})), none);
    fails(of(Value::Null), none);
    check(expression("In", json!(["b", "c"])), "three two");
    check(expression("NotIn", json!(["b"])), "two");
    check(expression("Exists", Value::Null), "three two");
    fails(expression("DoesNotExist", Value::Null), none);
    check(
        json!({"signerName": "example.com/other", "labelSelector": {}, "optional": true}),
        "",
    );
}

#[test]
fn trust_bundles_require_feature_gate() {
    check_with(
        NodeFacts::default(),
        json!({"name": "roots"}),
        "error: \
         ClusterTrustBundle projection is not supported in static kubelet mode",
    );
}

#[test]
fn bundle_is_written_as_pem_and_other_text_ignored() {
    let read = |text: &str| {
        let bundle: ClusterTrustBundle =
            serde_json::from_value(json!({"metadata": {}, "spec": {"trustBundle": text}}))
                .expect("bundle");
        TrustBundle::from(bundle).anchors
    };
    let block = |label: &str, body: &str| {
        format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n")
    };
    let text = [
        "a comment\n".to_owned(),
        block("CERTIFICATE", "not base64!"),
        block("CERTIFICATE", "b25l"),
        "-----BEGIN CERTIFICATE-----\nb25l\n-----END OTHER-----\n".to_owned(),
        block("CERTIFICATE", "Key: value\n\ndHdv"),
        block("CERTIFICATE", "b25l"),
        "-----BEGIN CERTIFICATE-----\ndGhyZWU=".to_owned(),
    ];
    assert_eq!(
        read(&text.concat()),
        [b"one".to_vec(), b"two".to_vec()].into()
    );
    let long = bundle("a", &[&[7; 100]]);
    let written = super::super::trust::file([&*long].into_iter());
    let written = std::str::from_utf8(&written).expect("text");
    assert_eq!(read(written), long.anchors);
    assert_eq!(written.lines().map(str::len).max(), Some(64));
}
