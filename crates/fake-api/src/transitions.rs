//! Terminated containers do not restart: such a status is rejected.

use serde_json::Value;

use crate::object::{field, text};
use crate::status_error::StatusError;

/// Container status lists of a pod and their specs. Ephemeral containers never restart.
const LISTS: [(&str, Option<&str>); 3] = [
    ("containerStatuses", Some("containers")),
    ("initContainerStatuses", Some("initContainers")),
    ("ephemeralContainerStatuses", None),
];

/// Compares the old and new status of a pod (upstream `ValidatePodStatusUpdate`).
pub(crate) fn check(old: &Value, new: &Value) -> Result<(), StatusError> {
    for (statuses, specs) in LISTS {
        if specs.is_some() && all_may_restart(old) {
            continue;
        }
        for (at, before) in list(old, &["status", statuses]).iter().enumerate() {
            let Some(end) = terminated(before) else {
                continue;
            };
            let of_it = |one: &&Value| one.get("name") == before.get("name");
            let now = list(new, &["status", statuses]).iter().find(of_it);
            if now.is_none_or(|now| terminated(now).is_some()) {
                continue;
            }
            let code = end.get("exitCode").and_then(Value::as_i64);
            let spec = specs.and_then(|specs| list(old, &["spec", specs]).iter().find(of_it));
            if !spec.is_some_and(|spec| restarts(old, spec, code.unwrap_or_default())) {
                let field = format!("status.{statuses}[{at}].state");
                return Err(StatusError::invalid(format!(
                    "{field}: Forbidden: may not be transitioned to non-terminated state"
                )));
            }
        }
    }
    Ok(())
}

/// A restart rule of one container may restart all of them.
fn all_may_restart(pod: &Value) -> bool {
    let of = |specs| list(pod, &["spec", specs]).iter();
    of("containers").chain(of("initContainers")).any(|spec| {
        let rules = list(spec, &["restartPolicyRules"]).iter();
        let mut actions = rules.map(|rule| text(rule, &["action"]));
        actions.any(|action| action == Some("RestartAllContainers"))
    })
}

fn restarts(pod: &Value, container: &Value, code: i64) -> bool {
    let matches = |rule: &Value| {
        let values = list(rule, &["exitCodes", "values"]).iter();
        let listed = values.into_iter().any(|value| value.as_i64() == Some(code));
        match text(rule, &["exitCodes", "operator"]) {
            Some("In") => listed,
            Some("NotIn") => !listed,
            _ => false,
        }
    };
    let own = text(container, &["restartPolicy"]);
    list(container, &["restartPolicyRules"]).iter().any(matches)
        || match own.or_else(|| text(pod, &["spec", "restartPolicy"])) {
            Some("Never") => false,
            Some("OnFailure") => code != 0,
            _ => true,
        }
}

fn terminated(status: &Value) -> Option<&Value> {
    field(status, &["state", "terminated"]).filter(|end| !end.is_null())
}

fn list<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    let list = field(object, path).and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}
