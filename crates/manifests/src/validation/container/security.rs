//! Validates security contexts.

use windlass_types::corev1::{SeccompProfile, SecurityContext};

use super::super::field::Errors;
use super::super::names;

pub(super) fn check(context: &SecurityContext, path: &str, errors: &mut Errors) {
    numeric_id(&format!("{path}.runAsUser"), context.run_as_user, errors);
    numeric_id(&format!("{path}.runAsGroup"), context.run_as_group, errors);
    let proc_mount = context.proc_mount.as_deref();
    let field = format!("{path}.procMount");
    errors.one_of(&field, proc_mount, &["Default", "Unmasked"]);
    seccomp(path, context.seccomp_profile.as_ref(), errors);
    if context.allow_privilege_escalation == Some(false) && context.privileged == Some(true) {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        errors.invalid(&format!("{path}.allowPrivilegeEscalation"), false, detail);
    }
}

pub(in super::super) fn numeric_id(field: &str, id: Option<i64>, errors: &mut Errors) {
    if let Some(id) = id.filter(|id| !(0..=i64::from(i32::MAX)).contains(id)) {
        errors.invalid(field, id, "must be between 0 and 2147483647, inclusive");
    }
}

pub(in super::super) fn seccomp(path: &str, profile: Option<&SeccompProfile>, errors: &mut Errors) {
    let Some(profile) = profile else { return };
    let path = format!("{path}.seccompProfile");
    let supported = ["Localhost", "RuntimeDefault", "Unconfined"];
    errors.one_of(&format!("{path}.type"), Some(&profile.type_), &supported);
    let field = format!("{path}.localhostProfile");
    match profile.localhost_profile.as_deref() {
        None | Some("") if profile.type_ == "Localhost" => {
            errors.required(&field, "must be set when seccomp type is Localhost");
        }
        // the name is a path below the seccomp directory
        Some(name) if profile.type_ == "Localhost" => {
            errors.name(&field, name, names::descending_path);
        }
        Some(_) => errors.forbidden(&field, "can only be set when seccomp type is Localhost"),
        None => {}
    }
}
