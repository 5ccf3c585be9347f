//! Host name and `/etc/hosts` of a pod.

use std::fmt::Write;
use std::net::IpAddr;

use windlass_types::corev1::HostAlias;
use windlass_types::{Pod, PodExt};

use windlass_pod_inputs::node_facts::NodeFacts;

/// Maximum length of a host name: a DNS label.
const MAX_HOSTNAME: usize = 63;
/// Maximum length of a host name in the kernel.
const MAX_KERNEL_HOSTNAME: usize = 64;
/// Maximum length of a DNS subdomain.
const MAX_SUBDOMAIN: usize = 253;

const HEADER: &str = "# Kubernetes-managed hosts file.\n";
const HEADER_HOST_NETWORK: &str = "# Kubernetes-managed hosts file (host network).\n";
const ALIASES_HEADER: &str = "\n# Entries added by HostAliases.\n";
const LOCALHOST: &str = "127.0.0.1\tlocalhost\n\
                         ::1\tlocalhost ip6-localhost ip6-loopback\n\
                         fe00::0\tip6-localnet\n\
                         fe00::0\tip6-mcastprefix\n\
                         fe00::1\tip6-allnodes\n\
                         fe00::2\tip6-allrouters\n";

/// Host name of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodHostname {
    /// Short name.
    pub hostname: String,
    /// Domain; empty without `spec.subdomain`.
    pub domain: String,
}

/// Error of the host name of a pod.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostnameError {
    /// `spec.hostname` or `spec.subdomain` is not a DNS label.
    #[error("{field} {value:?} is not a valid DNS label")]
    Label {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
    },
    /// `spec.hostnameOverride` is not a DNS subdomain.
    #[error("spec.hostnameOverride {0:?} is not a valid DNS subdomain")]
    Override(String),
    /// The truncated name is empty.
    #[error("host name {0:?} is invalid")]
    Invalid(String),
    /// The name for `setHostnameAsFQDN` is too long for the kernel.
    #[error(
        "failed to construct FQDN from pod hostname and cluster domain, FQDN {fqdn} is too long \
         ({MAX_KERNEL_HOSTNAME} characters is the max, {} characters requested)", fqdn.len()
    )]
    FqdnTooLong {
        /// The name.
        fqdn: String,
    },
}

/// Returns the host name of a pod: `hostnameOverride` (feature gate `HostnameOverride`), `hostname`
/// or the pod name, truncated to 63 characters; with its domain if it has a subdomain.
///
/// # Errors
/// A field is not a valid DNS name.
pub fn pod_hostname(pod: &Pod, node: &NodeFacts) -> Result<PodHostname, HostnameError> {
    let spec = PodExt::spec(pod);
    let over = spec.hostname_override.as_ref();
    if let Some(name) = over.filter(|_| node.hostname_override) {
        if !is_dns_subdomain(name) {
            return Err(HostnameError::Override(name.clone()));
        }
        return Ok(PodHostname {
            hostname: cut(name)?,
            domain: String::new(),
        });
    }
    let hostname = match label("spec.hostname", spec.hostname.as_deref())? {
        Some(name) => cut(name)?,
        None => cut(pod.name())?,
    };
    let domain = label("spec.subdomain", spec.subdomain.as_deref())?
        .map(|subdomain| {
            format!(
                "{subdomain}.{}.svc.{}",
                pod.namespace(),
                node.cluster_domain
            )
        })
        .unwrap_or_default();
    Ok(PodHostname { hostname, domain })
}

/// Returns the host name for the kernel: the full one for `setHostnameAsFQDN`, else the short one.
///
/// # Errors
/// The full name is longer than 64 characters.
pub(crate) fn kernel_hostname(pod: &Pod, name: &PodHostname) -> Result<String, HostnameError> {
    let as_fqdn = PodExt::spec(pod).set_hostname_as_fqdn.unwrap_or(false);
    if name.domain.is_empty() || !as_fqdn {
        return Ok(name.hostname.clone());
    }
    let fqdn = format!("{}.{}", name.hostname, name.domain);
    if fqdn.len() > MAX_KERNEL_HOSTNAME {
        return Err(HostnameError::FqdnTooLong { fqdn });
    }
    Ok(fqdn)
}

/// Returns `/etc/hosts` of a pod. `node_hosts` is the text of the node's file, for pods on the host
/// network.
pub fn hosts_file(pod: &Pod, name: &PodHostname, pod_ips: &[IpAddr], node_hosts: &str) -> String {
    let mut text = String::new();
    if pod.host_network() {
        text.push_str(HEADER_HOST_NETWORK);
        text.push_str(node_hosts);
    } else {
        text.push_str(HEADER);
        text.push_str(LOCALHOST);
        for ip in pod_ips {
            // writing to a String cannot fail
            let _ = if name.domain.is_empty() {
                writeln!(text, "{ip}\t{}", name.hostname)
            } else {
                writeln!(text, "{ip}\t{0}.{1}\t{0}", name.hostname, name.domain)
            };
        }
    }
    push_aliases(
        &mut text,
        PodExt::spec(pod)
            .host_aliases
            .as_deref()
            .unwrap_or_default(),
    );
    text
}

/// Returns true if the agent provides `/etc/hosts`: the pod has an address or is on the host
/// network. A container with its own mount at this path does not get it.
pub(crate) fn provides_hosts_file(pod: &Pod, pod_ips: &[IpAddr]) -> bool {
    pod.host_network() || !pod_ips.is_empty()
}

/// Returns true for an RFC 1123 label: lower-case letters, digits and inner hyphens, at most 63.
pub(crate) fn is_dns_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !text.is_empty()
        && text.len() <= MAX_HOSTNAME
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Returns true for an RFC 1123 subdomain: labels of any length joined by dots, at most 253
/// characters.
pub(crate) fn is_dns_subdomain(text: &str) -> bool {
    let part = |p: &str| {
        !p.is_empty()
            && !p.starts_with('-')
            && !p.ends_with('-')
            && p.bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    text.len() <= MAX_SUBDOMAIN && text.split('.').all(part)
}

fn push_aliases(text: &mut String, aliases: &[HostAlias]) {
    if aliases.is_empty() {
        return;
    }
    text.push_str(ALIASES_HEADER);
    for alias in aliases {
        let names = alias.hostnames.as_deref().unwrap_or_default().join("\t");
        let _ = writeln!(text, "{}\t{names}", alias.ip);
    }
}

fn label<'a>(
    field: &'static str,
    value: Option<&'a str>,
) -> Result<Option<&'a str>, HostnameError> {
    match value {
        None | Some("") => Ok(None),
        Some(text) if is_dns_label(text) => Ok(Some(text)),
        Some(text) => Err(HostnameError::Label {
            field,
            value: text.to_owned(),
        }),
    }
}

/// Truncates a long name so that it ends in a letter or digit.
fn cut(name: &str) -> Result<String, HostnameError> {
    if name.len() <= MAX_HOSTNAME {
        return Ok(name.to_owned());
    }
    let mut end = MAX_HOSTNAME;
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    let short = name[..end].trim_end_matches(['-', '.']);
    if short.is_empty() {
        return Err(HostnameError::Invalid(name.to_owned()));
    }
    Ok(short.to_owned())
}

#[cfg(test)]
mod tests;
