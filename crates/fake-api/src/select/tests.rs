//! Objects that match a selector.

use serde_json::json;

use super::Selection;
use crate::store::Key;

fn selected(fields: &str, labels: &str) -> Result<bool, String> {
    let key = Key {
        group: String::new(),
        resource: "pods".to_owned(),
        namespace: "ns".to_owned(),
        name: "web".to_owned(),
    };
    let pod = json!({
        "metadata": { "name": "web", "namespace": "ns", "labels": { "app": "web", "empty": "" } },
        "spec": { "nodeName": "n1" },
        "status": { "phase": "Running" },
    });
    Selection::parse("pods", None, fields, labels)
        .map(|selection| selection.matches(&key, &pod))
        .map_err(|error| error.message)
}

#[test]
fn field_selectors_compare_texts_and_missing_is_empty() {
    for (fields, expected) in [
        ("", true),
        ("metadata.name=web", true),
        ("metadata.name==web,metadata.namespace=ns", true),
        ("metadata.name!=web", false),
        ("spec.nodeName=n1,status.phase!=Failed", true),
        ("spec.nodeName=n2", false),
        ("spec.schedulerName=", true),
        ("spec.hostNetwork=false", true),
    ] {
        assert_eq!(selected(fields, ""), Ok(expected), "{fields}");
    }
    let unknown = selected("spec.hostname=a", "").unwrap_err();
    assert_eq!(unknown, "field label not supported: spec.hostname");
    assert!(selected("nonsense", "").is_err());
}

#[test]
fn label_selectors_support_equality_sets_and_existence() {
    for (labels, expected) in [
        ("app=web", true),
        ("app==web,app!=db", true),
        ("app", true),
        ("empty", true),
        ("!app", false),
        ("!other", true),
        ("other!=x", true),
        ("app in (web, db)", true),
        ("app notin (web,db)", false),
        ("other notin (a),app in (web)", true),
        ("other in (a)", false),
        ("empty=", true),
    ] {
        assert_eq!(selected("", labels), Ok(expected), "{labels}");
    }
    for wrong in ["a b", "app within (x)", "app in (x"] {
        assert!(selected("", wrong).is_err(), "{wrong}");
    }
}
