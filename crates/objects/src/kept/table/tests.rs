//! Tables of kept objects: what is wanted, what fits, and what a pod gets.

use serde_json::json;
use windlass_pod_inputs::pod_references::pod_references;

use super::*;
use crate::kept::file::FileContent;

fn pod(spec: Value) -> Pod {
    let pod = json!({
        "metadata": {"namespace": "default", "name": "web", "uid": "web"}, "spec": spec,
    });
    serde_json::from_value(pod).expect("pod")
}

/// A pod that refers to one object of each type.
fn with_everything() -> Pod {
    let sources = json!([
        {"serviceAccountToken": {"path": "token"}},
        {"clusterTrustBundle": {"path": "roots", "name": "roots"}},
    ]);
    pod(json!({
        "runtimeClassName": "kata",
        "imagePullSecrets": [{"name": "pull"}],
        "containers": [{
            "name": "c", "envFrom": [{"configMapRef": {"name": "settings"}}],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }],
        "volumes": [
            {"name": "cred", "secret": {"secretName": "cred"}},
            {"name": "api", "projected": {"sources": sources}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        ],
    }))
}

fn key(name: &str) -> ItemKey {
    ("default".to_owned(), name.to_owned())
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("time")
}

fn config_map(bytes: usize) -> Option<Arc<ConfigMapContent>> {
    let data = [("key".to_owned(), "x".repeat(bytes).into())];
    Some(Arc::new(ConfigMapContent {
        data: data.into(),
        binary_data: [("raw".to_owned(), vec![0, 255].into())].into(),
    }))
}

fn secret(bytes: usize) -> Option<Arc<SecretContent>> {
    Some(Arc::new(SecretContent {
        uid: "1".to_owned(),
        secret_type: "Opaque".to_owned(),
        data: [("key".to_owned(), vec![7; bytes].into())].into(),
    }))
}

fn token(valid_until: i64) -> TokenRecord {
    TokenRecord::new(Token("opaque".to_owned()), at(valid_until))
}

fn full_table() -> Table {
    let volume = json!({"metadata": {"name": "pv"}, "spec": {"csi": {
        "driver": "d", "volumeHandle": "h",
        "nodeStageSecretRef": {"namespace": "system", "name": "stage"},
    }}});
    let state = PvcState {
        pvc: Lookup::Found(Arc::default()),
        volume: Lookup::Found(Arc::new(serde_json::from_value(volume).expect("volume"))),
    };
    let service = ServiceLink {
        namespace: "default".to_owned(),
        name: "db".to_owned(),
        cluster_ip: "10.0.0.9".to_owned(),
        ports: vec![windlass_pod_inputs::service_env::PortLink {
            name: None,
            port: 5432,
            protocol: "TCP".to_owned(),
        }],
    };
    let bundle = TrustBundle {
        labels: [("a".to_owned(), "b".to_owned())].into(),
        anchors: [vec![1, 2, 3]].into(),
    };
    Table {
        pods: ["web".into()].into(),
        config_maps: [(key("settings"), config_map(3)), (key("gone"), None)].into(),
        secrets: [(key("cred"), secret(3)), (key("pull"), None)].into(),
        services: Some(vec![Arc::new(service)]),
        runtime_classes: [("kata".to_owned(), Some("kata-qemu".to_owned()))].into(),
        trust_bundles: [(BundleRef::Name("roots".to_owned()), vec![Arc::new(bundle)])].into(),
        pvcs: [(key("data"), Arc::new(state))].into(),
        drivers: [("d".to_owned(), Some(CsiDriverSpec::default()))].into(),
        tokens: [(("web".into(), TokenSpec::new("", None)), token(1000))].into(),
    }
}

/// What a pod gets of a table at a time, as one line.
fn check(table: &Table, pod: &Pod, now: i64, expected: &str) {
    let references = pod_references(pod);
    let (found, unresolved) = table.snapshot(pod, &references, at(now));
    let mut parts = Vec::new();
    parts.extend(
        found
            .config_maps
            .keys()
            .map(|name| format!("configmap {name}")),
    );
    parts.extend(found.secrets.keys().map(|name| format!("secret {name}")));
    let bundles = found.trust_bundles.values().map(Vec::len).sum::<usize>();
    parts.extend((bundles > 0).then(|| format!("{bundles} bundle")));
    parts.extend(found.tokens.values().map(|token| match token {
        Ok(_) => "token".to_owned(),
        Err(error) => format!("no token: {error}"),
    }));
    parts.extend(unresolved.iter().map(|it| format!("lacks {}", it.name)));
    match table.runtime_handler(&references) {
        Ok(handler) if handler.is_empty() => {}
        Ok(handler) => parts.push(format!("handler {handler}")),
        Err(error) => parts.push(error.to_string()),
    }
    match table.service_variables(pod, &references) {
        Ok(variables) => parts.push(format!("{} variables", variables.len())),
        Err(error) => parts.push(error.to_string()),
    }
    assert_eq!(parts.join("; "), expected);
}

#[test]
fn pod_gets_kept_objects_and_a_valid_token() {
    let all = "configmap settings; secret cred; 1 bundle; token; handler kata-qemu; 7 variables";
    check(&full_table(), &with_everything(), 999, all);
    let optional = json!({"containers": [{"name": "c", "envFrom": [
        {"configMapRef": {"name": "gone", "optional": true}},
    ]}]});
    check(&full_table(), &pod(optional), 0, "7 variables");
    let expired = "configmap settings; secret cred; 1 bundle; no token: the kept token expired at \
                   1970-01-01T00:16:40Z, and the API server is unreachable; handler kata-qemu; \
                   7 variables";
    check(&full_table(), &with_everything(), 1000, expired);
}

#[test]
fn object_that_is_not_kept_is_unresolved() {
    let not_kept = "not kept on this node, and the API server is unreachable";
    check(
        &Table::default(),
        &with_everything(),
        0,
        &format!(
            "no token: it is {not_kept}; lacks settings; lacks cred; lacks pull; failed to read \
             RuntimeClass \"kata\": {not_kept}; services have not yet been read at least once, \
             cannot construct envvars: {not_kept}"
        ),
    );
    let state = Table::default().pvc(&key("data"));
    assert_eq!(state.pvc, Lookup::Unread(not_kept.to_owned()));
    assert!(matches!(
        full_table().pvc(&key("data")).pvc,
        Lookup::Found(_)
    ));
}

#[test]
fn token_is_valid_until_its_own_expiry() {
    let check = |claims: &str, expected: i64| {
        let token = format!("e30.{}.sig", URL_SAFE_NO_PAD.encode(claims));
        let record = TokenRecord::new(Token(token), at(1000));
        assert_eq!(record.valid_until, at(expected), "{claims}");
    };
    check(r#"{"exp": 90000}"#, 90_000);
    check(r#"{"exp": 10}"#, 1000);
    check(r#"{"sub": "x"}"#, 1000);
    check(r#"{"exp": 1e300}"#, 1000);
    check("no JSON", 1000);
    for text in ["", "opaque", "a.%%.c"] {
        assert_eq!(
            TokenRecord::new(Token(text.to_owned()), at(5)).valid_until,
            at(5)
        );
    }
}

#[test]
fn read_objects_replace_kept_ones_and_unused_are_dropped() {
    let mut wanted = WantedObjects::default();
    wanted.add(
        &"web".into(),
        "default",
        &pod_references(&with_everything()),
    );
    let kept = full_table();
    wanted.add_csi(&kept.pvcs);
    assert!(
        wanted
            .secrets
            .contains(&("system".to_owned(), "stage".to_owned()))
    );
    // nothing was read yet in this run
    let mut expected = kept.clone();
    expected.config_maps.remove(&key("gone"));
    assert_eq!(kept.next(&Table::default(), &wanted), expected);
    // a Secret was deleted, another one and a token are new
    let spec = || ("web".into(), TokenSpec::new("", None));
    let read = Table {
        secrets: [
            (key("cred"), None),
            (key("pull"), secret(9)),
            (key("other"), secret(1)),
        ]
        .into(),
        tokens: [
            (spec(), token(2000)),
            (("x".into(), TokenSpec::new("", None)), token(1)),
        ]
        .into(),
        ..Table::default()
    };
    let next = kept.next(&read, &wanted);
    expected.secrets = [(key("cred"), None), (key("pull"), secret(9))].into();
    expected.tokens = [(spec(), token(2000))].into();
    assert_eq!(next, expected);
    // the pod was removed
    let empty = kept.next(&read, &WantedObjects::default());
    assert!(empty.secrets.is_empty() && empty.tokens.is_empty() && empty.pvcs.is_empty());
}

#[test]
fn largest_objects_are_left_out_first() {
    let mut table = full_table();
    assert_eq!(table.shrink(10_000), [""; 0]);
    table.config_maps.insert(key("large"), config_map(6000));
    table.secrets.insert(key("larger"), secret(9000));
    assert_eq!(table.shrink(10_000), ["secret default/larger"]);
    assert_eq!(table.shrink(5000), ["configmap default/large"]);
    assert_eq!(table.secrets, full_table().secrets);
    assert_eq!(table.shrink(0).len(), 2);
}

#[test]
fn file_content_round_trips() {
    let content = FileContent::new(&full_table(), at(77));
    let text = serde_json::to_vec(&content).expect("encoded");
    let content: FileContent = serde_json::from_slice(&text).expect("decoded");
    assert_eq!(content.saved_at, at(77));
    assert_eq!(content.into_table(), full_table());
}

#[test]
fn sizes_are_not_below_those_of_the_file() {
    for bytes in [0, 1, 100, 10_000] {
        let with = |table: &mut Table| {
            table.config_maps.insert(key("large"), config_map(bytes));
            table.secrets.insert(key("large"), secret(bytes));
        };
        let encoded = |table: &Table| {
            let content = FileContent::new(table, at(0));
            serde_json::to_vec(&content).expect("encoded").len()
        };
        let mut table = full_table();
        let before = encoded(&table);
        with(&mut table);
        let added = encoded(&table) - before;
        let (map, secret) = (config_map(bytes), secret(bytes));
        let counted = config_map_bytes(&map.expect("map")) + secret_bytes(&secret.expect("secret"));
        // names and braces of two objects
        assert!(added <= counted + 250, "{added} {counted}");
    }
}

#[test]
fn table_debug_has_no_content() {
    let mut table = full_table();
    let spec = TokenSpec::new("vault", None);
    let token = TokenRecord::new(Token("swordfish".to_owned()), at(1));
    table.tokens.insert(("web".into(), spec), token);
    let data = [("key".to_owned(), b"swordfish"[..].into())];
    let secret = SecretContent {
        data: data.into(),
        ..SecretContent::default()
    };
    table.secrets.insert(key("cred"), Some(Arc::new(secret)));
    let text = format!("{table:?}");
    let bytes = format!("{:?}", b"swordfish");
    assert!(
        !text.contains("swordfish") && !text.contains(&bytes),
        "{text}"
    );
}
