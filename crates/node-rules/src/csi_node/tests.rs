//! Tables of changes to both objects.

use std::collections::{BTreeMap, BTreeSet};

use windlass_types::corev1::Node;
use windlass_types::storagev1::CSINode;

use super::{
    CsiNodePlan, NODE_ID, NodeDriver, NodeOwner, node_with_driver, node_without_drivers,
    plan_csi_node,
};

const OWNER: NodeOwner<'_> = NodeOwner {
    name: "n1",
    uid: "u1",
};

fn driver(name: &str, node_id: &str) -> NodeDriver {
    NodeDriver {
        name: name.to_owned(),
        node_id: node_id.to_owned(),
        max_volumes: None,
        topology: BTreeMap::new(),
    }
}

fn map(key: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(key.to_owned(), value.to_owned())])
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// The object after the drivers were installed one after the other.
fn object(drivers: &[NodeDriver]) -> CSINode {
    let plan = plan_csi_node(None, OWNER, None, &set(&[]));
    let CsiNodePlan::Create(mut object) = plan else {
        panic!("{plan}");
    };
    for driver in drivers {
        if let CsiNodePlan::Update(next) =
            plan_csi_node(Some(&object), OWNER, Some(driver), &set(&[]))
        {
            object = next;
        }
    }
    *object
}

#[test]
fn csi_node_has_entry_per_registered_driver() {
    fn check(
        existing: Option<&[NodeDriver]>,
        installed: Option<NodeDriver>,
        left: &[&str],
        expected: &str,
    ) {
        let existing = existing.map(object);
        let plan = plan_csi_node(existing.as_ref(), OWNER, installed.as_ref(), &set(left));
        assert_eq!(plan.to_string(), expected);
    }
    let (a, b) = (driver("a", "1"), driver("b", "2"));
    check(None, None, &[], "create []");
    check(None, Some(a.clone()), &[], "create [a=1]");
    check(Some(&[]), None, &[], "keep");
    check(Some(&[]), Some(a.clone()), &[], "update [a=1]");
    let both = [a.clone(), b.clone()];
    check(Some(&both), Some(a.clone()), &[], "keep");
    check(Some(&both), Some(driver("a", "3")), &[], "update [b=2 a=3]");
    check(Some(&both), None, &["a"], "update [b=2]");
    check(Some(&both), None, &["c"], "keep");
    check(
        Some(&both),
        Some(driver("c", "4")),
        &["a"],
        "update [b=2 c=4]",
    );

    let zoned = NodeDriver {
        max_volumes: Some(16),
        topology: map("zone", "z1"),
        ..a.clone()
    };
    check(
        Some(&both),
        Some(zoned.clone()),
        &[],
        "update [b=2 a=1+zone*16]",
    );
    check(
        Some(std::slice::from_ref(&zoned)),
        Some(zoned.clone()),
        &[],
        "keep",
    );
    check(Some(&[zoned]), Some(a.clone()), &[], "update [a=1]");
    let many = |max| NodeDriver {
        max_volumes: Some(max),
        ..a.clone()
    };
    check(None, Some(many(i64::MAX)), &[], "create [a=1*2147483647]");
    check(None, Some(many(-1)), &[], "create [a=1]");
    check(None, Some(many(0)), &[], "create [a=1]");
}

#[test]
fn csi_node_has_owner_and_migrated_plugins() {
    let mut existing = object(&[]);
    let owner = existing
        .metadata
        .owner_references
        .as_ref()
        .expect("an owner");
    assert_eq!(
        (owner[0].kind.as_str(), owner[0].uid.as_str()),
        ("Node", "u1")
    );
    let annotation = "storage.alpha.kubernetes.io/migrated-plugins";
    let annotations = existing.metadata.annotations.as_mut().expect("annotations");
    assert_eq!(annotations[annotation].split(',').count(), 7);
    assert!(!annotations[annotation].contains(' '));
    annotations.insert(annotation.to_owned(), "kubernetes.io/aws-ebs".to_owned());
    let plan = plan_csi_node(Some(&existing), OWNER, None, &set(&[]));
    assert_eq!(plan.to_string(), "update []");

    existing.metadata.uid = Some("the object's".to_owned());
    let other = NodeOwner { uid: "u2", ..OWNER };
    let plan = plan_csi_node(Some(&existing), other, None, &set(&[]));
    let uid = Some("the object's".to_owned());
    assert_eq!(plan, CsiNodePlan::Delete { uid });
}

#[test]
fn node_has_topology_and_ids_of_registered_drivers() {
    fn check(node: &Node, expected_labels: &[(&str, &str)], expected_ids: Option<&str>) {
        let labels = node.metadata.labels.iter().flatten();
        let labels: Vec<_> = labels.map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(labels, expected_labels);
        let annotations = node.metadata.annotations.as_ref();
        let ids = annotations.and_then(|all| all.get(NODE_ID));
        assert_eq!(ids.map(String::as_str), expected_ids);
    }
    let zoned = NodeDriver {
        topology: map("zone", "z1"),
        ..driver("a", "1")
    };
    let node = node_with_driver(&Node::default(), &zoned).expect("fits");
    check(&node, &[("zone", "z1")], Some(r#"{"a":"1"}"#));
    let node = node_with_driver(&node, &driver("b", "2")).expect("fits");
    check(&node, &[("zone", "z1")], Some(r#"{"a":"1","b":"2"}"#));
    let same = node_with_driver(&node, &zoned).expect("fits");
    assert_eq!(same, node);
    let node = node_without_drivers(&node, &set(&["a"])).expect("fits");
    check(&node, &[("zone", "z1")], Some(r#"{"b":"2"}"#));
    let node = node_without_drivers(&node, &set(&["b"])).expect("fits");
    check(&node, &[("zone", "z1")], None);
}

#[test]
fn topology_collision_and_invalid_annotation_are_errors() {
    let mut node = Node::default();
    node.metadata.labels = Some(map("zone", "z1"));
    let zoned = NodeDriver {
        topology: map("zone", "z2"),
        ..driver("a", "1")
    };
    let expected = "detected topology value collision: driver reported \"zone\":\"z2\" but \
                    existing label is \"zone\":\"z1\"";
    assert_eq!(node_with_driver(&node, &zoned), Err(expected.to_owned()));
    node.metadata.annotations = Some(map(NODE_ID, "no json"));
    let error = node_without_drivers(&node, &set(&["a"])).expect_err("malformed");
    assert!(error.starts_with("failed to parse node's"), "{error}");
}
