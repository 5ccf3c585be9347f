//! The encoding, decoded by field numbers.

use serde_json::{Value, json};
use windlass_types::corev1::Pod;

use super::{Kind, Message, pod_bytes, schema};

/// Reads a varint.
fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..70).step_by(7) {
        let byte = *bytes.split_off_first().expect("a byte");
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

/// Fields of a message by number; `messages` are the fields that are messages.
pub(crate) fn line(mut bytes: &[u8], messages: &Value) -> String {
    let mut words = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let number = (key >> 3).to_string();
        words.push(match key & 7 {
            0 => format!("{number}={}", varint(&mut bytes).cast_signed()),
            2 => {
                let length = usize::try_from(varint(&mut bytes)).expect("a length");
                let content = bytes.split_off(..length).expect("the content");
                match messages.get(&number) {
                    Some(inner) => format!("{number}{{{}}}", line(content, inner)),
                    None => format!("{number}:{}", String::from_utf8_lossy(content)),
                }
            }
            other => panic!("wire type {other}"),
        });
    }
    words.join(" ")
}

#[track_caller]
fn check(pod: Value, messages: Value, expected: &str) {
    let pod: Pod = serde_json::from_value(pod).expect("a pod");
    let bytes = pod_bytes(&pod).expect("it has a JSON form");
    assert_eq!(line(&bytes, &messages), expected);
}

#[test]
fn metadata_encodes_maps_times_and_json() {
    check(
        json!({"metadata": {
            "name": "web", "namespace": "default", "uid": "u-1", "generation": -3,
            "creationTimestamp": "2026-11-22T06:00:00Z",
            "deletionTimestamp": "1969-12-31T23:59:59Z",
            "labels": {"a": "1", "b": ""},
            "finalizers": ["x", "y"],
            "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}],
        }}),
        json!({"1": {"8": {}, "9": {}, "11": {}, "17": {"7": {}}}}),
        "1{1:web 3:default 5:u-1 7=-3 8{1=1795327200 2=0} 9{1=-1 2=0} 11{1:a 2:1} 11{1:b 2:} \
         14:x 14:y 17{1:m 7{1:{\"f:spec\":{}}}}}",
    );
}

#[test]
fn spec_encodes_quantities_named_ports_and_inline_messages() {
    let probe = json!({"httpGet": {"port": "web"}, "periodSeconds": 5});
    let hook = json!({"preStop": {"tcpSocket": {"port": 80}}});
    check(
        json!({"spec": {
            "containers": [{
                "name": "c",
                "resources": {"limits": {"cpu": "100m"}},
                "livenessProbe": probe,
                "lifecycle": hook,
                "env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
                "securityContext": {"privileged": true, "runAsUser": 0},
            }],
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}, {"name": "e", "emptyDir": {}}],
            "ephemeralContainers": [{"name": "d", "image": "i", "targetContainerName": "c"}],
            "securityContext": {"supplementalGroups": [1, 300]},
        }}),
        json!({"2": {
            "1": {"2": {"2": {"2": {}}}},
            "2": {"8": {"1": {"2": {}}}, "10": {"1": {"2": {"2": {}}}}, "12": {"2": {"3": {"1": {}}}},
                  "7": {"3": {"4": {"1": {}}}}, "15": {}},
            "14": {}, "34": {"1": {}},
        }}),
        "1: 2{1{1:v 2{2{2{1:1Gi}}}} 1{1:e 2{2{}}} \
         2{1:c 7{1:E 3{4{1{1:s} 2:k}}} 8{1{1:cpu 2{1:100m}}} 10{1{2{2{1=1 3:web}}} 4=5} \
         12{2{3{1{2=80}}}} 15{2=1 4=0}} \
         14{4=1 4=300} 34{1{1:d 2:i} 2:c}}",
    );
}

#[test]
fn status_encodes_container_states() {
    check(
        json!({"status": {
            "phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
            "startTime": "2026-11-22T06:00:00Z", "hostIPs": [{"ip": "10.1.0.1"}],
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": null}],
            "containerStatuses": [{
                "name": "c", "ready": true, "restartCount": 2, "image": "i", "imageID": "id",
                "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
                "started": false,
            }],
        }}),
        json!({"3": {"2": {}, "7": {}, "8": {"2": {"3": {}}}, "12": {}, "16": {}}}),
        "1: 3{1:Running 2{1:Ready 2:True} 6:10.0.0.1 7{1=1795327200 2=0} \
         8{1:c 2{3{1=137 3:OOMKilled}} 4=1 5=2 6:i 7:id 9=0} 12{1:10.0.0.1} 16{1:10.1.0.1}}",
    );
}

/// Message of a kind.
fn inner(kind: Kind) -> Option<&'static Message> {
    match kind {
        Kind::Of(message) | Kind::Inlined(message) => Some(message),
        _ => None,
    }
}

#[test]
fn field_numbers_are_unique_within_a_message() {
    let mut messages: Vec<&'static Message> = vec![&schema::POD];
    let mut seen = 0;
    while let Some(message) = messages.get(seen).copied() {
        seen += 1;
        let numbers = message.0.iter().map(|(_, number, _)| *number);
        assert!(numbers.is_sorted_by(|a, b| a < b));
        for (index, (name, _, kind)) in message.0.iter().enumerate() {
            assert!(message.0[..index].iter().all(|(other, ..)| other != name));
            let known = |new| messages.iter().any(|it| std::ptr::eq(*it, new));
            messages.extend(inner(*kind).filter(|new| !known(*new)));
        }
    }
    assert_eq!(seen, 133);
}
