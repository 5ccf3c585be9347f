//! Field and label selectors.

use serde_json::Value;

use crate::object::{field, meta};
use crate::status_error::StatusError;
use crate::store::Key;

/// The selectors of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    fields: Vec<Requirement>,
    labels: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
}

/// Selectable fields of types with more than name and namespace.
const FIELDS: &[(&str, &[&str])] = &[
    ("clustertrustbundles", &["spec.signerName"]),
    (
        "pods",
        &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
    ),
    ("nodes", &["spec.unschedulable"]),
    ("secrets", &["type"]),
    ("namespaces", &["status.phase"]),
    (
        "events",
        &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
    ),
    ("certificatesigningrequests", &["spec.signerName"]),
    (
        "podcertificaterequests",
        &["spec.signerName", "spec.podName", "spec.nodeName"],
    ),
    ("resourceslices", &["spec.nodeName", "spec.driver"]),
];

impl Selection {
    /// Parses the selectors of a request for objects of `resource`.
    pub(crate) fn parse(
        resource: &str,
        namespace: Option<&str>,
        fields: &str,
        labels: &str,
    ) -> Result<Self, StatusError> {
        let fields = parse_fields(fields)?;
        let more = FIELDS.iter().find(|(name, _)| *name == resource);
        for requirement in &fields {
            let key = requirement.key.as_str();
            let known = ["metadata.name", "metadata.namespace"].contains(&key)
                || more.is_some_and(|(_, keys)| keys.contains(&key));
            if !known {
                let message = format!("field label not supported: {key}");
                return Err(StatusError::bad_request(message));
            }
        }
        Ok(Self {
            namespace: namespace.map(str::to_owned),
            name: None,
            fields,
            labels: parse_labels(labels)?,
        })
    }

    /// Returns whether an object matches.
    pub(crate) fn matches(&self, key: &Key, object: &Value) -> bool {
        self.namespace.as_ref().is_none_or(|n| *n == key.namespace)
            && self.name.as_ref().is_none_or(|n| *n == key.name)
            && self.fields.iter().all(|requirement| {
                // a missing field is an empty text
                requirement.holds(Some(&field_text(object, &requirement.key)))
            })
            && self.labels.iter().all(|requirement| {
                let label = field(object, &["metadata", "labels"])
                    .and_then(|labels| labels.get(&requirement.key));
                requirement.holds(label.and_then(Value::as_str))
            })
    }
}

impl Requirement {
    fn holds(&self, value: Option<&str>) -> bool {
        let among = |list: &[String]| value.is_some_and(|v| list.iter().any(|one| one == v));
        match &self.test {
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::In(list) => among(list),
            Test::NotIn(list) => !among(list),
        }
    }
}

fn field_text(object: &Value, key: &str) -> String {
    let path: Vec<&str> = match key {
        "source" => vec!["source", "component"],
        key => key.split('.').collect(),
    };
    match field(object, &path) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(flag)) => flag.to_string(),
        Some(Value::Number(number)) => number.to_string(),
        _ if key == "metadata.namespace" => meta(object, "namespace").unwrap_or("").to_owned(),
        _ if ["spec.unschedulable", "spec.hostNetwork"].contains(&key) => "false".to_owned(),
        _ => String::new(),
    }
}

fn parse_fields(text: &str) -> Result<Vec<Requirement>, StatusError> {
    let terms = text.split(',').filter(|term| !term.is_empty());
    terms
        .map(|term| {
            let (key, value, equal) = if let Some((key, value)) = term.split_once("!=") {
                (key, value, false)
            } else if let Some((key, value)) = term.split_once("==") {
                (key, value, true)
            } else if let Some((key, value)) = term.split_once('=') {
                (key, value, true)
            } else {
                let message = format!("invalid selector: '{text}'; can't understand '{term}'");
                return Err(StatusError::bad_request(message));
            };
            Ok(requirement(key, equal, vec![value.to_owned()]))
        })
        .collect()
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>, StatusError> {
    let mut found = Vec::new();
    for term in split_outside_braces(text) {
        let term = term.trim();
        if term.is_empty() {
            continue;
        }
        found.push(parse_label(term).ok_or_else(|| {
            StatusError::bad_request(format!("unable to parse requirement: {term:?}"))
        })?);
    }
    Ok(found)
}

fn parse_label(term: &str) -> Option<Requirement> {
    if let Some((head, list)) = term.split_once('(') {
        let mut words = head.split_whitespace();
        let (key, operator) = (words.next()?, words.next()?);
        let values = list.strip_suffix(')')?.split(',');
        let values = values.map(|value| value.trim().to_owned()).collect();
        return match operator {
            "in" => Some(requirement(key, true, values)),
            "notin" => Some(requirement(key, false, values)),
            _ => None,
        };
    }
    for (sign, equal) in [("!=", false), ("==", true), ("=", true)] {
        if let Some((key, value)) = term.split_once(sign) {
            return Some(requirement(key, equal, vec![value.trim().to_owned()]));
        }
    }
    let (key, test) = match term.strip_prefix('!') {
        Some(key) => (key, Test::Absent),
        None => (term, Test::Exists),
    };
    let key = key.trim();
    (!key.contains(char::is_whitespace)).then(|| Requirement {
        key: key.to_owned(),
        test,
    })
}

fn requirement(key: &str, equal: bool, values: Vec<String>) -> Requirement {
    Requirement {
        key: key.trim().to_owned(),
        test: match equal {
            true => Test::In(values),
            false => Test::NotIn(values),
        },
    }
}

fn split_outside_braces(text: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let mut start = 0;
    let mut parts = Vec::new();
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

#[cfg(test)]
mod tests;
