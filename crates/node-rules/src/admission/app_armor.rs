//! AppArmor profiles need a kernel that enforces them.
//!
//! Whether a named profile is loaded is not checked here: as upstream since 1.22, that is the
//! runtime's answer when the container is created.

use windlass_types::corev1::{AppArmorProfile, Container};
use windlass_types::{Pod, PodExt};

use super::Rejection;

/// Legacy annotation of one container, before its name.
const ANNOTATION_PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Refuses a pod with a profile that cannot be enforced. One that has run before is let through.
pub(super) fn check(pod: &Pod, host_enforces: bool) -> Result<(), Rejection> {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    if !matches!(phase, None | Some("" | "Pending")) || !is_required(pod) {
        return Ok(());
    }
    let refuse = |why: &str| {
        let message = format!("Cannot enforce AppArmor: {why}");
        Err(Rejection::new("AppArmor", message))
    };
    if !host_enforces {
        return refuse("AppArmor is not enabled on the host");
    }
    if containers(pod).any(|c| names_nothing(pod, c)) {
        return refuse("invalid empty AppArmor profile name: \"\"");
    }
    Ok(())
}

/// Something in the pod asks for a profile other than `Unconfined`.
fn is_required(pod: &Pod) -> bool {
    let confined =
        |profile: Option<&AppArmorProfile>| profile.is_some_and(|p| p.type_ != "Unconfined");
    let annotations = pod.metadata.annotations.iter().flatten();
    let mut legacy = annotations.filter(|(key, _)| key.starts_with(ANNOTATION_PREFIX));
    confined(of_pod(pod))
        || containers(pod).any(|c| confined(of_container(c)))
        || legacy.any(|(_, value)| value != "unconfined")
}

/// The profile in force for a container is `Localhost` without a name.
fn names_nothing(pod: &Pod, container: &Container) -> bool {
    // the annotation is the container's own; what it cannot mean is refused with the container
    let key = format!("{ANNOTATION_PREFIX}{}", container.name);
    let of_pod = of_pod(pod).filter(|_| pod.annotation(&key).is_none());
    let profile = of_container(container).or(of_pod);
    profile.is_some_and(|p| {
        let name = p.localhost_profile.as_deref().unwrap_or_default();
        p.type_ == "Localhost" && name.trim().is_empty()
    })
}

fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.init_containers().iter().chain(pod.containers())
}

fn of_pod(pod: &Pod) -> Option<&AppArmorProfile> {
    let security = PodExt::spec(pod).security_context.as_ref()?;
    security.app_armor_profile.as_ref()
}

fn of_container(container: &Container) -> Option<&AppArmorProfile> {
    let security = container.security_context.as_ref()?;
    security.app_armor_profile.as_ref()
}
