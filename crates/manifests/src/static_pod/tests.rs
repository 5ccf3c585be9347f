//! Loading static pods from bytes.

use proptest::prelude::*;
use serde_json::json;
use windlass_types::{PodExt, PodSource, names};

use super::load;
use crate::manifest::Origin;

const WEB: &str = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n  containers:\n  - name: a\n    image: x:1\n";

fn file(path: &str) -> Origin {
    Origin::File(path.into())
}

fn uid(text: &str, origin: &Origin, node: &str) -> String {
    let loaded = load(text.as_bytes(), origin, node).expect("a good manifest");
    loaded.pods[0].uid().to_string()
}

fn check(text: &str, expected: &str) {
    let line = match load(text.as_bytes(), &file("/m/web.yaml"), "Node-1") {
        Ok(loaded) => {
            let names = loaded.pods.iter().map(|p| p.full_name().to_string());
            let names: Vec<String> = names.chain(loaded.warnings).collect();
            names.join(" ")
        }
        Err(error) => format!("error: {error}"),
    };
    assert_eq!(line, expected);
}

#[test]
fn static_pod_has_node_suffix_annotations_and_toleration() {
    let loaded = load(WEB.as_bytes(), &file("/m/web.yaml"), "Node-1").expect("good");
    let pod = &loaded.pods[0];
    assert_eq!(pod.full_name().to_string(), "web-node-1_default");
    assert_eq!(PodExt::spec(&**pod).node_name.as_deref(), Some("Node-1"));
    assert_eq!(
        pod.annotation(names::ANN_CONFIG_HASH),
        Some(pod.uid().as_str())
    );
    assert_eq!(PodExt::source(&**pod), PodSource::File);
    assert_eq!(pod.annotation(names::ANN_CONFIG_SEEN), None);
    assert_eq!(
        serde_json::to_value(&PodExt::spec(&**pod).tolerations).expect("JSON"),
        json!([{"operator": "Exists", "effect": "NoExecute"}])
    );
    assert_eq!(
        serde_json::to_value(&pod.status).expect("JSON"),
        json!({"phase": "Pending"})
    );
}

#[test]
fn pod_from_url_has_no_toleration() {
    let origin = Origin::Url("http://x/pods".into());
    let loaded = load(WEB.as_bytes(), &origin, "n").expect("good");
    assert_eq!(PodExt::source(&*loaded.pods[0]), PodSource::Http);
    assert_eq!(PodExt::spec(&*loaded.pods[0]).tolerations, None);
}

#[test]
fn uid_is_stable_and_hashes_content_node_and_origin() {
    let origin = file("/m/web.yaml");
    let first = uid(WEB, &origin, "n");
    assert_eq!(first.len(), 32);
    // a new value would restart every static pod on upgrade
    assert_eq!(first, "d16b411f853c32fe94abd9d6e151a7da");
    let spaced = WEB.replace("kind: Pod\n", "# comment\nkind:   Pod\n\n");
    assert_eq!(uid(&spaced, &origin, "n"), first);
    assert_ne!(uid(&WEB.replace("x:1", "x:2"), &origin, "n"), first);
    assert_ne!(uid(WEB, &origin, "m"), first);
    assert_ne!(uid(WEB, &file("/m/other.yaml"), "n"), first);
    assert_ne!(uid(WEB, &Origin::Url("/m/web.yaml".into()), "n"), first);
    let own = WEB.replace("name: web", "name: web\n  uid: mine");
    assert_eq!(uid(&own, &origin, "n"), "mine");
}

#[test]
fn unknown_fields_are_warnings_with_line() {
    check(
        &WEB.replace("image: x:1", "image: x:1\n    imagge: y"),
        "web-node-1_default /m/web.yaml: line 9: unknown field \"spec.containers[0].imagge\" is ignored",
    );
}

#[test]
fn invalid_fields_are_reported_with_line() {
    check(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: Web\nspec:\n  restartPolicy: Sometimes\n  containers:\n  - name: a\n",
        "error: /m/web.yaml: line 4: metadata.name: Invalid value: \"Web-node-1\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character; line 8: spec.containers[0].image: Required value; line 6: spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\" (correct the named fields)",
    );
    check(
        "apiVersion: v1\nkind: PodList\nitems:\n- spec:\n    containers: [{name: a, image: x}]\n",
        "error: /m/web.yaml: line 4: items[0].metadata.name: Required value (correct the named fields)",
    );
}

#[test]
fn references_to_api_objects_are_rejected() {
    check(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  serviceAccountName: sa\n  imagePullSecrets: [{name: s}]\n  resourceClaims: [{name: c}]\n  containers:\n  - name: a\n    image: x\n    envFrom:\n    - secretRef: {name: s}\n    env:\n    - name: E\n      valueFrom: {configMapKeyRef: {name: c, key: k}}\n  volumes:\n  - {name: v0, persistentVolumeClaim: {claimName: c}}\n  - {name: v1, projected: {sources: [{downwardAPI: {}}, {serviceAccountToken: {path: t}}]}}\n  - {name: v2, cephfs: {monitors: [], secretRef: {name: s}}}\n  - {name: v3, emptyDir: {}}\n",
        "error: /m/web.yaml: line 5: spec.serviceAccountName: a static pod may not refer to serviceaccounts; line 6: spec.imagePullSecrets: a static pod may not refer to secrets; line 7: spec.resourceClaims: a static pod may not refer to resourceclaims; line 12: spec.containers[0].envFrom[0].secretRef: a static pod may not refer to secrets; line 15: spec.containers[0].env[0].valueFrom.configMapKeyRef: a static pod may not refer to configmaps; line 17: spec.volumes[0].persistentVolumeClaim: a static pod may not refer to persistentvolumeclaims; line 18: spec.volumes[1].projected.sources[1].serviceAccountToken: a static pod may not refer to serviceaccounts; line 19: spec.volumes[2].cephfs.secretRef: a static pod may not refer to secrets (use hostPath, emptyDir, fieldRef or literal values instead)",
    );
}

#[test]
fn one_invalid_pod_rejects_the_manifest() {
    check(
        &format!("{WEB}---\napiVersion: v1\nkind: Pod\nmetadata: {{name: b}}\nspec: {{}}\n"),
        "error: /m/web.yaml: line 13: spec.containers: Required value (correct the named fields)",
    );
}

/// A manifest with most fields that are decoded, defaulted and validated.
const RICH: &str = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  labels: &l {a: b, c/d: e}\n  annotations: *l\nspec:\n  hostNetwork: true\n  initContainers:\n  - {name: i, image: 'x@sha256:0', restartPolicy: Always, command: [a, \"b\\n\"]}\n  containers:\n  - name: a\n    image: r:5000/x:1\n    ports: [{containerPort: 80, hostPort: 80}]\n    env:\n    - {name: N, valueFrom: {fieldRef: {fieldPath: metadata.labels['a']}}}\n    resources: {limits: {cpu: 1, memory: 1.5Gi}, requests: {cpu: 100m}}\n    livenessProbe: {httpGet: {port: web, path: /}, periodSeconds: 5}\n    lifecycle: {preStop: {exec: {command: [sh, -c, |\n      x]}}}\n    securityContext: {runAsUser: 0, seccompProfile: {type: Localhost, localhostProfile: p}}\n    volumeMounts: [{name: v, mountPath: /v, subPath: a/b}]\n  volumes:\n  - {name: v, projected: {defaultMode: 0644, sources: [{downwardAPI: {items: [{path: p, fieldRef: {fieldPath: metadata.name}}]}}]}}\n  tolerations: [{key: k, operator: Exists, effect: NoExecute, tolerationSeconds: 5}]\n---\n";

proptest! {
    // a panic would abort the agent
    #[test]
    fn loader_never_panics(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        cuts in prop::collection::vec((0..RICH.len(), 0..12usize, "[ -~\n\t]{0,8}"), 0..6),
    ) {
        let _ = load(&bytes, &file("/m/x"), "n");
        let mut text = RICH.to_owned();
        for (at, length, replacement) in cuts {
            let at = at.min(text.len());
            let end = (at + length).min(text.len());
            text.replace_range(at..end, &replacement);
        }
        if let Err(error) = load(text.as_bytes(), &file("/m/x"), "n") {
            prop_assert!(error.to_string().starts_with("/m/x: "));
        }
    }
}
