//! Results of strategic merge patches.

use serde_json::{Value, json};

use super::apply;

#[track_caller]
fn check(resource: &str, mut object: Value, patch: Value, expected: Value) {
    apply(resource, &mut object, &patch).unwrap();
    assert_eq!(object, expected, "{patch}");
}

fn conditions(list: Value) -> Value {
    json!({ "status": { "conditions": list } })
}

#[test]
fn maps_merge_and_nulls_remove() {
    check(
        "pods",
        json!({ "metadata": { "labels": { "a": "1", "b": "2" } }, "x": 1 }),
        json!({ "metadata": { "labels": { "a": null, "c": "3" } }, "y": { "z": null, "w": 1 } }),
        json!({ "metadata": { "labels": { "b": "2", "c": "3" } }, "x": 1, "y": { "w": 1 } }),
    );
}

#[test]
fn conditions_merge_by_type() {
    let old =
        conditions(json!([{ "type": "A", "status": "False", "reason": "R" }, { "type": "B" }]));
    check(
        "nodes",
        old.clone(),
        conditions(json!([{ "type": "A", "status": "True", "reason": null }, { "type": "C" }])),
        conditions(json!([{ "type": "A", "status": "True" }, { "type": "B" }, { "type": "C" }])),
    );
    check(
        "pods",
        old.clone(),
        conditions(json!([{ "$patch": "delete", "type": "A" }])),
        conditions(json!([{ "type": "B" }])),
    );
    check(
        "pods",
        old.clone(),
        conditions(json!([{ "$patch": "replace" }, { "type": "Z" }])),
        conditions(json!([{ "type": "Z" }])),
    );
    // a type without rules replaces its lists
    check(
        "leases",
        old,
        conditions(json!([{ "type": "C" }])),
        conditions(json!([{ "type": "C" }])),
    );
}

#[test]
fn element_without_its_merge_key_is_rejected() {
    let mut object = conditions(json!([]));
    let patch = conditions(json!([{ "status": "True" }]));
    let error = apply("pods", &mut object, &patch).unwrap_err();
    assert!(
        error.message.contains("declared merge key: type"),
        "{}",
        error.message
    );
}

#[test]
fn container_statuses_images_and_taints_are_replaced() {
    for (resource, section, list) in [
        ("pods", "status", "containerStatuses"),
        ("nodes", "status", "images"),
        ("nodes", "spec", "taints"),
        ("pods", "spec", "tolerations"),
    ] {
        check(
            resource,
            json!({ section: { list: [{ "name": "a", "x": 1 }, { "name": "b" }] } }),
            json!({ section: { list: [{ "name": "a" }] } }),
            json!({ section: { list: [{ "name": "a" }] } }),
        );
    }
}

#[test]
fn pod_ips_merge_by_ip_and_containers_by_name() {
    check(
        "pods",
        json!({ "status": { "podIPs": [{ "ip": "10.0.0.1" }] } }),
        json!({ "status": { "podIPs": [
            { "ip": "10.0.0.2" }, { "$patch": "delete", "ip": "10.0.0.1" },
        ] } }),
        json!({ "status": { "podIPs": [{ "ip": "10.0.0.2" }] } }),
    );
    check(
        "pods",
        json!({ "spec": { "containers": [
            { "name": "a", "image": "x", "env": [{ "name": "E", "value": "1" }], "args": ["1"] },
        ] } }),
        json!({ "spec": { "containers": [
            { "name": "a", "env": [{ "name": "F", "value": "2" }], "args": ["2"] },
        ] } }),
        json!({ "spec": { "containers": [
            { "name": "a", "image": "x", "args": ["2"],
              "env": [{ "name": "E", "value": "1" }, { "name": "F", "value": "2" }] },
        ] } }),
    );
}

#[test]
fn finalizers_are_a_set_and_owners_merge_by_uid() {
    check(
        "pods",
        json!({ "metadata": { "finalizers": ["a", "b"], "ownerReferences": [{ "uid": "1", "x": 1 }] } }),
        json!({ "metadata": {
            "$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["b", "c"],
            "ownerReferences": [{ "uid": "1", "y": 2 }],
        } }),
        json!({ "metadata": {
            "finalizers": ["b", "c"], "ownerReferences": [{ "uid": "1", "x": 1, "y": 2 }],
        } }),
    );
}

#[test]
fn element_order_follows_the_patch_and_keeps_the_others() {
    let types = |types: &[&str]| {
        let list: Vec<Value> = types.iter().map(|t| json!({ "type": t })).collect();
        conditions(json!(list))
    };
    let order = |types: &[&str], changes: Value| {
        let order: Vec<Value> = types.iter().map(|t| json!({ "type": t })).collect();
        json!({ "status": { "$setElementOrder/conditions": order, "conditions": changes } })
    };
    check(
        "pods",
        types(&["A", "B", "C"]),
        order(&["C", "A"], json!([{ "type": "A" }])),
        types(&["B", "C", "A"]),
    );
    check(
        "pods",
        types(&["A", "X", "B"]),
        order(&["A", "N", "B"], json!([{ "type": "N" }])),
        types(&["A", "N", "X", "B"]),
    );
    // the order alone, as in a patch that changes no element
    check(
        "pods",
        types(&["A", "B"]),
        json!({ "status": { "$setElementOrder/conditions": [{ "type": "B" }, { "type": "A" }] } }),
        types(&["B", "A"]),
    );
}

#[test]
fn directives_replace_remove_and_retain() {
    check(
        "pods",
        json!({ "spec": { "securityContext": { "a": 1 } } }),
        json!({ "spec": { "securityContext": { "$patch": "replace", "b": 2 } } }),
        json!({ "spec": { "securityContext": { "b": 2 } } }),
    );
    check(
        "pods",
        json!({ "spec": { "securityContext": { "a": 1 }, "x": 1 } }),
        json!({ "spec": { "securityContext": { "$patch": "delete" } } }),
        json!({ "spec": { "x": 1 } }),
    );
    check(
        "pods",
        json!({ "spec": { "volumes": [{ "name": "v", "emptyDir": {} }] } }),
        json!({ "spec": { "volumes": [
            { "name": "v", "$retainKeys": ["name", "secret"], "secret": { "secretName": "s" } },
        ] } }),
        json!({ "spec": { "volumes": [{ "name": "v", "secret": { "secretName": "s" } }] } }),
    );
}
