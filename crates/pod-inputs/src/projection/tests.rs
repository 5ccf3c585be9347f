//! Tables of volumes as lines of `path mode owner content`, or the error.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::pod_references::{BundleRef, CertificateRef, TokenSpec};

mod certificate;
mod trust;

fn objects() -> ObjectSnapshot {
    let config_map = ConfigMapContent {
        data: [("a", "1"), ("b.conf", "2")]
            .map(|(k, v)| (k.to_owned(), v.into()))
            .into(),
        binary_data: [("bin".to_owned(), [b'x'].into())].into(),
    };
    let secret = SecretContent {
        uid: String::new(),
        secret_type: "Opaque".to_owned(),
        data: [("pw", "s3"), ("a", "from-secret")]
            .map(|(k, v)| (k.to_owned(), v.as_bytes().into()))
            .into(),
    };
    let spec = |audience: Option<&str>| TokenSpec {
        audience: audience.map(str::to_owned),
        expiration_seconds: 3600,
        account_uid: None,
    };
    ObjectSnapshot {
        config_maps: [("conf".to_owned(), Arc::new(config_map))].into(),
        secrets: [("cred".to_owned(), Arc::new(secret))].into(),
        tokens: [
            (spec(None), Ok(Token("jwt".to_owned()))),
            (
                spec(Some("vault")),
                Err("the API server is unreachable".to_owned()),
            ),
        ]
        .into(),
        trust_bundles: [
            (
                BundleRef::Name("roots".to_owned()),
                vec![bundle("a", &[b"one", b"two"])],
            ),
            (
                BundleRef::Signer("example.com/ca".to_owned()),
                vec![bundle("a", &[b"two"]), bundle("b", &[b"three", b"two"])],
            ),
        ]
        .into(),
        certificates: [
            (
                reference(0),
                Err("credential bundle is not issued yet".to_owned()),
            ),
            (
                reference(1),
                Ok(Credential {
                    key: b"KEY;".as_slice().into(),
                    chain: b"CHAIN;".as_slice().into(),
                }),
            ),
        ]
        .into(),
        unread: [
            Referent::ConfigMap("far".to_owned()),
            Referent::Secret("far".to_owned()),
            Referent::TrustBundles(BundleRef::Name("far".to_owned())),
        ]
        .map(|object| (object, "no way".to_owned()))
        .into(),
    }
}

fn reference(index: usize) -> CertificateRef {
    CertificateRef {
        volume: "v".to_owned(),
        index,
    }
}

fn bundle(stage: &str, anchors: &[&[u8]]) -> Arc<TrustBundle> {
    Arc::new(TrustBundle {
        labels: [("stage".to_owned(), stage.to_owned())].into(),
        anchors: anchors.iter().map(|der| der.to_vec()).collect(),
    })
}

fn pod(mut spec: Value, volumes: Value) -> Pod {
    spec["volumes"] = volumes;
    serde_json::from_value(json!({
        "metadata": {
            "name": "p", "namespace": "ns", "uid": "u",
            "labels": {"b": "2", "a": "say \"hi\""},
            "annotations": {"note": "one\ntwo"},
        },
        "spec": spec,
    }))
    .expect("pod")
}

fn lines(pod: &Pod) -> Vec<String> {
    let node = NodeFacts {
        allocatable_memory: 1 << 30,
        trust_bundles: true,
        ..NodeFacts::default()
    };
    let objects = objects();
    let projection = project_volumes(ProjectionInput {
        pod,
        node: &node,
        objects: &objects,
    });
    let errors = projection.errors.into_iter();
    let mut lines: Vec<_> = errors
        .map(|(name, errors)| format!("{name} error: {errors}"))
        .collect();
    for (name, payload) in projection.payloads {
        let medium = if payload.in_memory { "memory" } else { "disk" };
        lines.push(format!("{name} {medium}"));
        for (path, file) in payload.files {
            let owner = file.owner.map(|o| format!(" {o}")).unwrap_or_default();
            let text = std::str::from_utf8(&file.data).expect("text");
            lines.push(format!("{path} {:o}{owner} {text}", file.mode));
        }
    }
    lines
}

fn check(volume: Value, expected: &[&str]) {
    let mut volume = volume;
    volume["name"] = json!("v");
    let spec = json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": "1500m"}}}]});
    assert_eq!(lines(&pod(spec, json!([volume]))), expected);
}

fn fails(volume: Value, error: &str) {
    check(volume, &[&format!("v error: {error}")]);
}

#[test]
fn config_map_has_all_text_and_binary_keys() {
    check(
        json!({"configMap": {"name": "conf"}}),
        &["v disk", "a 644 1", "b.conf 644 2", "bin 644 x"],
    );
}

#[test]
fn items_select_keys_paths_and_modes() {
    check(
        json!({"configMap": {"name": "conf", "defaultMode": 0o400, "items": [
            {"key": "a", "path": "x/y"},
            {"key": "bin", "path": "./z//", "mode": 0o755},
        ]}}),
        &["v disk", "x/y 400 1", "z 755 x"],
    );
}

#[test]
fn secret_is_in_memory() {
    check(
        json!({"secret": {"secretName": "cred", "defaultMode": 0o440}}),
        &["v memory", "a 440 from-secret", "pw 440 s3"],
    );
}

#[test]
fn missing_objects_and_keys_have_upstream_errors() {
    fails(
        json!({"configMap": {"name": "nope"}}),
        "configmap \"nope\" not found",
    );
    fails(
        json!({"secret": {"secretName": "nope", "optional": false}}),
        "secret \"nope\" not found",
    );
    fails(
        json!({"configMap": {"name": "conf", "items": [{"key": "k", "path": "p"}]}}),
        "configmap references non-existent config key: k",
    );
    fails(
        json!({"secret": {"secretName": "cred", "items": [{"key": "k", "path": "p"}]}}),
        "references non-existent secret key: k",
    );
}

#[test]
fn unread_object_is_not_treated_as_missing() {
    for optional in [false, true] {
        fails(
            json!({"configMap": {"name": "far", "optional": optional}}),
            "failed to read configmap \"far\": no way",
        );
        fails(
            json!({"secret": {"secretName": "far", "optional": optional}}),
            "failed to read secret \"far\": no way",
        );
        let bundle = json!({"name": "far", "path": "p", "optional": optional});
        fails(
            json!({"projected": {"sources": [{"clusterTrustBundle": bundle}]}}),
            "failed to read clustertrustbundle \"far\": no way",
        );
    }
}

#[test]
fn optional_source_may_be_missing() {
    check(
        json!({"configMap": {"name": "nope", "optional": true}}),
        &["v disk"],
    );
    check(
        json!({"secret": {"secretName": "nope", "optional": true}}),
        &["v memory"],
    );
    check(
        json!({"secret": {"secretName": "cred", "optional": true, "items": [
            {"key": "k", "path": "p"}, {"key": "pw", "path": "q"},
        ]}}),
        &["v memory", "q 644 s3"],
    );
}

#[test]
fn downward_api_files_have_metadata_and_resources() {
    check(
        json!({"downwardAPI": {"items": [
            {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
            {"path": "notes", "fieldRef": {"fieldPath": "metadata.annotations"}},
            {"path": "one", "fieldRef": {"fieldPath": "metadata.annotations['note']"}},
            {"path": "none", "fieldRef": {"fieldPath": "metadata.labels['x']"}},
            {"path": "name", "mode": 0o400, "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}},
            {"path": "uid", "fieldRef": {"fieldPath": "metadata.uid"}},
            {"path": "cpu", "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu"}},
            {"path": "milli", "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu", "divisor": "1m"}},
            {"path": "mem", "resourceFieldRef": {"containerName": "c", "resource": "limits.memory", "divisor": "1Mi"}},
        ]}}),
        &[
            "v memory",
            "cpu 644 2",
            "labels 644 a=\"say \\\"hi\\\"\"\nb=\"2\"",
            "mem 644 1024",
            "milli 644 1500",
            "name 400 p",
            "none 644 ",
            "notes 644 note=\"one\\ntwo\"",
            "one 644 one\ntwo",
            "uid 644 u",
        ],
    );
}

#[test]
fn env_only_fields_are_rejected_in_volumes() {
    fails(
        json!({"downwardAPI": {"items": [{"path": "ip", "fieldRef": {"fieldPath": "status.podIP"}}]}}),
        "downwardAPI[ip].fieldRef: unsupported field \"status.podIP\"",
    );
    fails(
        json!({"downwardAPI": {"items": [{"path": "x", "resourceFieldRef": {"resource": "limits.cpu"}}]}}),
        "downwardAPI[x].resourceFieldRef: container \"\" not found",
    );
    fails(
        json!({"downwardAPI": {"items": [{"path": "x", "resourceFieldRef": {"containerName": "d", "resource": "limits.cpu"}}]}}),
        "downwardAPI[x].resourceFieldRef: container d not found",
    );
}

#[test]
fn last_source_wins_on_same_path() {
    check(
        json!({"projected": {"defaultMode": 0o440, "sources": [
            {"configMap": {"name": "conf"}},
            {"secret": {"name": "cred", "items": [{"key": "a", "path": "a", "mode": 0o600}]}},
            {"downwardAPI": {"items": [{"path": "b.conf", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
            {"serviceAccountToken": {"path": "token"}},
        ]}}),
        &[
            "v memory",
            "a 600 from-secret",
            "b.conf 440 ns",
            "bin 440 x",
            "token 440 jwt",
        ],
    );
}

#[test]
fn all_errors_of_all_volumes_are_returned() {
    let volumes = json!([
        {"name": "good", "configMap": {"name": "conf"}},
        {"name": "one", "secret": {"secretName": "gone"}},
        {"name": "two", "projected": {"sources": [
            {"configMap": {"name": "gone"}},
            {"serviceAccountToken": {"path": "t", "audience": "vault"}},
            {"clusterTrustBundle": {"name": "b", "path": "p"}},
            {"podCertificate": {"signerName": "s", "keyType": "ED25519"}},
        ]}},
    ]);
    assert_eq!(
        lines(&pod(json!({"containers": []}), volumes)),
        [
            "one error: secret \"gone\" not found",
            "two error: configmap \"gone\" not found, \
             failed to fetch token: the API server is unreachable, \
             while getting ClusterTrustBundle: \
             clustertrustbundle.certificates.k8s.io \"b\" not found, \
             unimplemented",
            "good disk",
            "a 644 1",
            "b.conf 644 2",
            "bin 644 x",
        ]
    );
}

#[test]
fn invalid_and_conflicting_paths_are_rejected() {
    let item =
        |path: &str| json!({"configMap": {"name": "conf", "items": [{"key": "a", "path": path}]}});
    fails(item("../x"), "invalid path \"../x\": must not contain '..'");
    fails(item("/x"), "invalid path \"/x\": must be relative");
    fails(
        json!({"configMap": {"name": "conf", "items": [
            {"key": "a", "path": "x"}, {"key": "b.conf", "path": "x/y"},
        ]}}),
        "invalid path \"x\": it is a file and a directory",
    );
}

#[test]
fn token_is_private_to_single_user_or_fs_group() {
    let check = |spec: Value, expected: &str| {
        let volumes = json!([{"name": "v", "projected": {"sources": [
            {"serviceAccountToken": {"path": "token"}},
        ]}}]);
        assert_eq!(lines(&pod(spec, volumes)), ["v memory", expected]);
    };
    let user = |id: i64| json!({"name": "c", "securityContext": {"runAsUser": id}});
    let any = || json!({"name": "d"});
    check(json!({"containers": [any()]}), "token 644 jwt");
    check(json!({"containers": [user(7), any()]}), "token 644 jwt");
    check(json!({"containers": [user(7), user(8)]}), "token 644 jwt");
    check(json!({"containers": [user(7), user(7)]}), "token 600 7 jwt");
    check(
        json!({"initContainers": [user(8)], "containers": [user(7)]}),
        "token 644 jwt",
    );
    check(
        json!({"securityContext": {"runAsUser": 7}, "containers": [user(7), any()]}),
        "token 600 7 jwt",
    );
    check(
        json!({"securityContext": {"fsGroup": 9}, "containers": [any()]}),
        "token 600 jwt",
    );
    check(
        json!({"securityContext": {"fsGroup": 9, "runAsUser": 7}, "containers": [any()]}),
        "token 600 7 jwt",
    );
}

#[test]
fn default_mode_does_not_make_token_public() {
    let volumes = json!([{"name": "v", "projected": {"defaultMode": 0o777, "sources": [
        {"serviceAccountToken": {"path": "token"}},
        {"configMap": {"name": "conf", "items": [{"key": "a", "path": "a"}]}},
    ]}}]);
    let spec = json!({"containers": [{"name": "c", "securityContext": {"runAsUser": 7}}]});
    assert_eq!(
        lines(&pod(spec, volumes)),
        ["v memory", "a 777 1", "token 600 7 jwt"]
    );
}

#[test]
fn debug_output_has_no_object_content() {
    let objects = objects();
    let text = format!("{objects:?} {:?}", objects.secrets["cred"]);
    assert!(
        ["s3", "jwt", "KEY"]
            .iter()
            .all(|secret| !text.contains(secret)),
        "{text}"
    );
}
