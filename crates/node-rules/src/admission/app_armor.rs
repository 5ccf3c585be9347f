//! Checks AppArmor profiles.
//!
//! As upstream since 1.22, the runtime checks whether a profile is loaded.

use windlass_types::corev1::{AppArmorProfile, Container};
use windlass_types::{Pod, PodExt};

use super::Rejection;

/// Prefix of the legacy annotation of a container.
const ANNOTATION_PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Rejects a pod with a profile that cannot be enforced, except a pod that has run before.
pub(super) fn check(pod: &Pod, host_enforces: bool) -> Result<(), Rejection> {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    if !matches!(phase, None | Some("" | "Pending")) || !is_required(pod) {
        return Ok(());
    }
    let reject = |why: &str| {
        let message = format!("Cannot enforce AppArmor: {why}");
        Err(Rejection::new("AppArmor", message))
    };
    if !host_enforces {
        return reject("AppArmor is not enabled on the host");
    }
    if containers(pod).any(|c| has_empty_name(pod, c)) {
        return reject("invalid empty AppArmor profile name: \"\"");
    }
    Ok(())
}

/// Returns whether a profile other than `Unconfined` is set.
fn is_required(pod: &Pod) -> bool {
    let confined =
        |profile: Option<&AppArmorProfile>| profile.is_some_and(|p| p.type_ != "Unconfined");
    let annotations = pod.metadata.annotations.iter().flatten();
    let mut legacy = annotations.filter(|(key, _)| key.starts_with(ANNOTATION_PREFIX));
    confined(of_pod(pod))
        || containers(pod).any(|c| confined(of_container(c)))
        || legacy.any(|(_, value)| value != "unconfined")
}

/// Returns whether the effective profile of a container is `Localhost` without a name.
fn has_empty_name(pod: &Pod, container: &Container) -> bool {
    // the annotation overrides the profile of the pod; an invalid one fails the container
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
