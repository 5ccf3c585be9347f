//! Pod certificates in projected volumes.

use super::*;

fn check_with(node: NodeFacts, spec: Value, sources: Value, expected: &[&str]) {
    let pod = pod(
        spec,
        json!([{"name": "v", "projected": {"defaultMode": 0o444, "sources": sources}}]),
    );
    let projection = project_volumes(ProjectionInput {
        pod: &pod,
        node: &node,
        objects: &objects(),
    });
    let lines = match projection.errors.get("v") {
        Some(errors) => vec![format!("error: {errors}")],
        None => {
            let files = projection.payloads["v"].files.iter();
            let lines = files.map(|(path, file)| {
                let text = String::from_utf8_lossy(&file.data);
                format!("{path} {:o} {text}", file.mode)
            });
            lines.collect()
        }
    };
    assert_eq!(lines, expected);
}

fn check(sources: Value, expected: &[&str]) {
    let node = NodeFacts {
        pod_certificates: true,
        ..NodeFacts::default()
    };
    check_with(node, json!({"containers": []}), sources, expected);
}

fn source(paths: Value) -> Value {
    let mut source = paths;
    source["signerName"] = json!("example.com/ca");
    source["keyType"] = json!("ED25519");
    json!({"podCertificate": source})
}

/// The second source of the volume, which has its certificate.
fn second(paths: Value) -> Value {
    json!([{"downwardAPI": {}}, source(paths)])
}

#[test]
fn key_and_chain_are_at_requested_paths() {
    check(
        second(json!({
            "credentialBundlePath": "bundle.pem", "keyPath": "key.pem",
            "certificateChainPath": "chain.pem",
        })),
        &[
            "bundle.pem 444 KEY;CHAIN;",
            "chain.pem 444 CHAIN;",
            "key.pem 444 KEY;",
        ],
    );
    check(
        second(json!({"credentialBundlePath": "b", "keyPath": ""})),
        &["b 444 KEY;CHAIN;"],
    );
    check(second(json!({})), &[]);
}

#[test]
fn certificate_files_are_private_with_fs_group() {
    let node = NodeFacts {
        pod_certificates: true,
        ..NodeFacts::default()
    };
    check_with(
        node,
        json!({"containers": [], "securityContext": {"fsGroup": 5}}),
        second(json!({"keyPath": "k"})),
        &["k 600 KEY;"],
    );
}

#[test]
fn missing_certificate_has_upstream_errors() {
    let fails = |sources: Value, why: &str| {
        let line = format!("error: {why}");
        check(sources, &[&line]);
    };
    let key = || source(json!({"keyPath": "k"}));
    fails(json!([key()]), "credential bundle is not issued yet");
    let third = json!([{"downwardAPI": {}}, {"downwardAPI": {}}, key()]);
    fails(third, "no credentials yet");
    check_with(
        NodeFacts::default(),
        json!({"containers": []}),
        second(json!({"keyPath": "k"})),
        &["error: unimplemented"],
    );
}

#[test]
fn chain_has_pem_blocks_only() {
    let body = "A".repeat(68);
    let text = format!(
        "leaf for you\n-----BEGIN CERTIFICATE-----\nComment: mine\n\n{body}\n\
         -----END CERTIFICATE-----\nand its issuer\n-----BEGIN X-----\nAAAA\n-----END X-----\n"
    );
    let clean = String::from_utf8(clean_chain(&text).to_vec()).expect("text");
    assert_eq!(
        clean,
        format!(
            "-----BEGIN CERTIFICATE-----\n{}\nAAAA\n-----END CERTIFICATE-----\n\
             -----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "A".repeat(64)
        )
    );
}
