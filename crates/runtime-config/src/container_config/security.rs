//! User and privileges of a container. Its fields take precedence over those of the pod.

use std::path::Path;

use windlass_types::corev1::{
    AppArmorProfile, Container, PodSecurityContext, SeccompProfile, SecurityContext,
};
use windlass_types::cri::{ContainerSecurity, SecurityProfile};
use windlass_types::{Pod, PodExt};

use super::ContainerInput;
use crate::config_error::ConfigError;
use crate::sandbox_config::{
    pod_namespaces, selinux, supplemental_groups, supplemental_groups_policy,
};
use windlass_pod_inputs::paths::check_component;

/// Legacy annotation of AppArmor profiles, followed by the container's name.
const APPARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Valid user IDs.
const USER_IDS: std::ops::RangeInclusive<i64> = 0..=i32::MAX as i64;

const MASKED_PATHS: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
const READONLY_PATHS: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// Returns the security settings of a container.
pub(super) fn container_security(
    input: ContainerInput<'_>,
) -> Result<ContainerSecurity, ConfigError> {
    let own = context(input.container);
    let pod = pod_context(input.pod);
    let privileged = own.privileged.unwrap_or(false);
    let capabilities = own.capabilities.clone().unwrap_or_default();
    let user = effective_user(&own, &pod);
    let (masked_paths, readonly_paths) = proc_paths(input, &own, privileged)?;
    let (run_as_user, run_as_username) = match (user, input.image_user.uid) {
        (Some(uid), _) | (None, Some(uid)) => (Some(uid), String::new()),
        // an image without a user runs as root
        _ if input.image_user.username.is_empty() => (Some(0), String::new()),
        _ => (None, input.image_user.username.clone()),
    };
    Ok(ContainerSecurity {
        namespaces: pod_namespaces(input.pod, input.users),
        // set later, when an ephemeral container starts
        pid_target: None,
        add_capabilities: capabilities.add.unwrap_or_default(),
        drop_capabilities: capabilities.drop.unwrap_or_default(),
        privileged,
        run_as_user,
        run_as_username,
        run_as_group: own.run_as_group.or(pod.run_as_group),
        supplemental_groups: supplemental_groups(input.pod, input.pod_volumes),
        supplemental_groups_policy: supplemental_groups_policy(input.pod)?,
        readonly_rootfs: own.read_only_root_filesystem.unwrap_or(false),
        no_new_privs: own.allow_privilege_escalation == Some(false),
        seccomp: seccomp(input, &own, &pod)?,
        apparmor: apparmor(input, &own, &pod)?,
        selinux: own
            .se_linux_options
            .or(pod.se_linux_options)
            .as_ref()
            .map(selinux),
        masked_paths,
        readonly_paths,
    })
}

/// Rejects a container that would run as root with `runAsNonRoot`.
pub(super) fn verify_run_as_non_root(input: ContainerInput<'_>) -> Result<(), ConfigError> {
    let own = context(input.container);
    let pod = pod_context(input.pod);
    if own.run_as_non_root.or(pod.run_as_non_root) != Some(true) {
        return Ok(());
    }
    let image = input.image_user;
    let violation = match (effective_user(&own, &pod), image.uid) {
        (Some(0), _) => "container's runAsUser breaks non-root policy".to_owned(),
        (Some(_), _) => return Ok(()),
        (None, None) if !image.username.is_empty() => format!(
            "container has runAsNonRoot and image has non-numeric user ({}), cannot verify user \
             is non-root",
            image.username
        ),
        (None, None | Some(0)) => {
            "container has runAsNonRoot and image will run as root".to_owned()
        }
        (None, Some(uid)) if !USER_IDS.contains(&uid) => format!(
            "container has runAsNonRoot and image has an invalid user id ({uid}). (Must be \
             1-({max})): must be between 0 and {max}, inclusive",
            max = USER_IDS.end()
        ),
        (None, Some(_)) => return Ok(()),
    };
    Err(ConfigError::RunAsNonRoot {
        violation,
        pod: format!("{}({})", input.pod.full_name(), input.pod.uid()),
        container: input.container.name.clone(),
    })
}

fn context(container: &Container) -> SecurityContext {
    container.security_context.clone().unwrap_or_default()
}

fn pod_context(pod: &Pod) -> PodSecurityContext {
    PodExt::spec(pod)
        .security_context
        .clone()
        .unwrap_or_default()
}

fn effective_user(own: &SecurityContext, pod: &PodSecurityContext) -> Option<i64> {
    own.run_as_user.or(pod.run_as_user)
}

/// Returns the masked and read-only paths of `/proc` and `/sys`.
fn proc_paths(
    input: ContainerInput<'_>,
    own: &SecurityContext,
    privileged: bool,
) -> Result<(Vec<String>, Vec<String>), ConfigError> {
    let unmasked = match own.proc_mount.as_deref() {
        None | Some("" | "Default") => false,
        Some("Unmasked") => true,
        Some(other) => return Err(invalid("securityContext.procMount", other, "")),
    };
    // in the host's user namespace an unmasked /proc would expose the host
    if unmasked && !privileged && PodExt::spec(input.pod).host_users != Some(false) {
        return Err(invalid(
            "securityContext.procMount",
            "Unmasked",
            ": it requires hostUsers: false",
        ));
    }
    if unmasked {
        return Ok((Vec::new(), Vec::new()));
    }
    let mut masked: Vec<String> = MASKED_PATHS.map(str::to_owned).to_vec();
    masked.extend(input.node.thermal_throttle_paths.iter().cloned());
    Ok((masked, READONLY_PATHS.map(str::to_owned).to_vec()))
}

fn seccomp(
    input: ContainerInput<'_>,
    own: &SecurityContext,
    pod: &PodSecurityContext,
) -> Result<SecurityProfile, ConfigError> {
    let chosen = own
        .seccomp_profile
        .as_ref()
        .or(pod.seccomp_profile.as_ref());
    let Some(SeccompProfile {
        type_,
        localhost_profile,
    }) = chosen
    else {
        return Ok(if input.node.seccomp_default {
            SecurityProfile::RuntimeDefault
        } else {
            SecurityProfile::Unconfined
        });
    };
    match type_.as_str() {
        "RuntimeDefault" => Ok(SecurityProfile::RuntimeDefault),
        "Unconfined" => Ok(SecurityProfile::Unconfined),
        "Localhost" => {
            let name = localhost_profile.as_deref().unwrap_or_default();
            if !is_descending(name) {
                return Err(invalid(
                    "seccompProfile.localhostProfile",
                    name,
                    ": it must name a file below the seccomp directory",
                ));
            }
            let path = input.node.paths.seccomp_dir().join(name);
            Ok(SecurityProfile::Localhost(path.display().to_string()))
        }
        other => Err(invalid("seccompProfile.type", other, "")),
    }
}

/// Returns the AppArmor profile: the container's field, its annotation from before 1.30, or the
/// pod's field.
fn apparmor(
    input: ContainerInput<'_>,
    own: &SecurityContext,
    pod: &PodSecurityContext,
) -> Result<Option<SecurityProfile>, ConfigError> {
    if let Some(profile) = &own.app_armor_profile {
        return app_armor_field(profile).map(Some);
    }
    let key = format!("{APPARMOR_ANNOTATION}{}", input.container.name);
    match input.pod.annotation(&key) {
        None | Some("") => pod
            .app_armor_profile
            .as_ref()
            .map(app_armor_field)
            .transpose(),
        Some("runtime/default") => Ok(Some(SecurityProfile::RuntimeDefault)),
        Some("unconfined") => Ok(Some(SecurityProfile::Unconfined)),
        Some(text) => match text.strip_prefix("localhost/") {
            Some(name) if !name.is_empty() => Ok(Some(SecurityProfile::Localhost(name.to_owned()))),
            _ => Err(ConfigError::Invalid {
                field: format!("annotation {key}"),
                value: text.to_owned(),
                hint: "",
            }),
        },
    }
}

fn app_armor_field(profile: &AppArmorProfile) -> Result<SecurityProfile, ConfigError> {
    let name = profile.localhost_profile.as_deref().unwrap_or_default();
    match profile.type_.as_str() {
        "RuntimeDefault" => Ok(SecurityProfile::RuntimeDefault),
        "Unconfined" => Ok(SecurityProfile::Unconfined),
        "Localhost" if !name.is_empty() => Ok(SecurityProfile::Localhost(name.to_owned())),
        "Localhost" => Err(invalid(
            "appArmorProfile.localhostProfile",
            "",
            ": it must name a profile",
        )),
        other => Err(invalid("appArmorProfile.type", other, "")),
    }
}

/// Returns true for a relative path without `..`.
fn is_descending(path: &str) -> bool {
    !path.is_empty()
        && Path::new(path).is_relative()
        && path
            .split('/')
            .all(|part| check_component("path", part).is_ok())
}

fn invalid(field: &str, value: &str, hint: &'static str) -> ConfigError {
    ConfigError::Invalid {
        field: field.to_owned(),
        value: value.to_owned(),
        hint,
    }
}
