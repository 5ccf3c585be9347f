//! Certificate signing requests: approval, denial, and the signer of nodes' certificates.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateSigningRequestParams, DnType, DnValue, SanType};
use serde_json::{Value, json};
use windlass_types::Timestamp;

use crate::authority::{Authority, Purpose};
use crate::identity::User;
use crate::object::{field, seconds, section, text};
use crate::store::{Key, Store};

const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING: &str = "kubernetes.io/kubelet-serving";
/// The minimum requested lifetime.
const MIN_VALIDITY: Duration = Duration::from_secs(600);

/// Records the user of a new CSR.
pub(crate) fn on_create(request: &mut Value, user: &User) {
    let spec = section(request, "spec");
    spec.insert("username".to_owned(), json!(user.name));
    spec.insert("groups".to_owned(), json!(user.groups));
}

/// Approves and signs a CSR, or records the failure in it. A shorter requested lifetime takes
/// precedence over `lifetime`.
pub(crate) fn approve(
    store: &mut Store,
    authority: &Authority,
    now: Timestamp,
    name: &str,
    lifetime: Duration,
) -> Result<(), String> {
    add_condition(store, now, name, "Approved", "a test approved it")?;
    let csr = store.get(&key(name)).ok_or("it is gone")?;
    let signed = sign(authority, now, &csr, lifetime);
    match signed {
        Ok(pem) => {
            let mut csr = (*csr).clone();
            let pem = STANDARD.encode(pem);
            section(&mut csr, "status").insert("certificate".to_owned(), json!(pem));
            store.put(key(name), csr);
            Ok(())
        }
        Err(why) => {
            add_condition(store, now, name, "Failed", &why)?;
            Err(why)
        }
    }
}

/// Denies a CSR.
pub(crate) fn deny(
    store: &mut Store,
    now: Timestamp,
    name: &str,
    message: &str,
) -> Result<(), String> {
    add_condition(store, now, name, "Denied", message)
}

fn key(name: &str) -> Key {
    Key {
        group: "certificates.k8s.io".to_owned(),
        resource: "certificatesigningrequests".to_owned(),
        namespace: String::new(),
        name: name.to_owned(),
    }
}

fn add_condition(
    store: &mut Store,
    now: Timestamp,
    name: &str,
    condition: &str,
    message: &str,
) -> Result<(), String> {
    let csr = store.get(&key(name));
    let mut csr = (*csr.ok_or_else(|| format!("no CSR {name:?}"))?).clone();
    let conditions = section(&mut csr, "status")
        .entry("conditions")
        .or_insert_with(|| json!([]));
    if let Value::Array(conditions) = conditions {
        conditions.push(json!({
            "type": condition, "status": "True", "reason": "Test", "message": message,
            "lastUpdateTime": seconds(now), "lastTransitionTime": seconds(now),
        }));
    }
    store.put(key(name), csr);
    Ok(())
}

fn sign(
    authority: &Authority,
    now: Timestamp,
    csr: &Value,
    lifetime: Duration,
) -> Result<String, String> {
    let signer = text(csr, &["spec", "signerName"]).unwrap_or_default();
    let purpose = match signer {
        CLIENT => Purpose::Client,
        SERVING => Purpose::Server,
        other => return Err(format!("no signer for {other:?}")),
    };
    let pem = text(csr, &["spec", "request"]).unwrap_or_default();
    let pem = STANDARD
        .decode(pem)
        .map_err(|_| "spec.request is not base64")?;
    let pem = String::from_utf8(pem).map_err(|_| "spec.request is not PEM")?;
    let request = CertificateSigningRequestParams::from_pem(&pem)
        .map_err(|error| format!("spec.request: {error}"))?;
    check(&request, csr, purpose)?;
    let asked = field(csr, &["spec", "expirationSeconds"]).and_then(Value::as_u64);
    let lifetime = match asked.map(Duration::from_secs) {
        Some(asked) => lifetime.min(asked.max(MIN_VALIDITY)),
        None => lifetime,
    };
    let certificate = authority
        .sign(request, purpose, now, lifetime)
        .map_err(|error| format!("cannot sign: {error}"))?;
    Ok(certificate.pem())
}

/// The rules of the two signers on subject, names and usages.
fn check(
    request: &CertificateSigningRequestParams,
    csr: &Value,
    purpose: Purpose,
) -> Result<(), String> {
    let name = &request.params.distinguished_name;
    let part = |of: DnType| match name.get(&of) {
        Some(DnValue::Utf8String(text)) => text.clone(),
        Some(DnValue::PrintableString(text)) => text.to_string(),
        _ => String::new(),
    };
    if part(DnType::OrganizationName) != "system:nodes" {
        return Err("subject organization is not system:nodes".to_owned());
    }
    if !part(DnType::CommonName).starts_with("system:node:") {
        return Err("subject common name does not begin with system:node:".to_owned());
    }
    let names = &request.params.subject_alt_names;
    match purpose {
        Purpose::Client if !names.is_empty() => {
            return Err("subject alternative names are not allowed".to_owned());
        }
        Purpose::Server if names.is_empty() => {
            return Err("at least one DNS or IP subject alternative name is required".to_owned());
        }
        Purpose::Client | Purpose::Server => {}
    }
    let known = |name: &SanType| matches!(name, SanType::DnsName(_) | SanType::IpAddress(_));
    if !names.iter().all(known) {
        return Err("only DNS and IP subject alternative names are allowed".to_owned());
    }
    let (needed, other) = match purpose {
        Purpose::Client => ("client auth", "server auth"),
        Purpose::Server => ("server auth", "client auth"),
    };
    let usages = field(csr, &["spec", "usages"]).and_then(Value::as_array);
    let usages: Vec<&str> = usages
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let has = |usage| usages.contains(&usage);
    let only = ["digital signature", "key encipherment", needed];
    if !has("digital signature") || !has(needed) || !usages.iter().all(|u| only.contains(u)) {
        return Err(format!(
            "usages must be digital signature, {needed} and perhaps key encipherment, never \
             {other}: {usages:?}"
        ));
    }
    Ok(())
}
