//! Allowed sysctls of a pod: safe sysctls and `allowedUnsafeSysctls`.

use std::collections::BTreeMap;

use windlass_types::{Pod, PodExt};

use windlass_types::names::dotted_sysctl;

/// Safe sysctls, with the first kernel in which they are namespaced.
const SAFE: &[(&str, (u32, u32))] = &[
    ("kernel.shm_rmid_forced", (0, 0)),
    ("net.ipv4.ip_local_port_range", (0, 0)),
    ("net.ipv4.tcp_syncookies", (0, 0)),
    ("net.ipv4.ping_group_range", (0, 0)),
    ("net.ipv4.ip_unprivileged_port_start", (0, 0)),
    ("net.ipv4.ip_local_reserved_ports", (3, 16)),
    ("net.ipv4.tcp_keepalive_time", (4, 5)),
    ("net.ipv4.tcp_fin_timeout", (4, 6)),
    ("net.ipv4.tcp_keepalive_intvl", (4, 5)),
    ("net.ipv4.tcp_keepalive_probes", (4, 5)),
    ("net.ipv4.tcp_rmem", (4, 15)),
    ("net.ipv4.tcp_wmem", (4, 15)),
];

/// Max length of a pattern, as upstream.
const MAX_LENGTH: usize = 253;

/// Kernel namespace of a sysctl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Namespace {
    Ipc,
    Net,
}

/// Allowed sysctls and prefixes, with their namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SysctlAllowList {
    exact: BTreeMap<String, Namespace>,
    prefixes: BTreeMap<String, Namespace>,
}

/// Invalid entry of `allowedUnsafeSysctls`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SysctlPatternError {
    /// Not a sysctl name, optionally with a final `*`.
    #[error("allowedUnsafeSysctls: {0:?} is not a sysctl name or a prefix followed by *")]
    Form(String),
    /// Not namespaced, so that it would affect other pods.
    #[error(
        "allowedUnsafeSysctls: {0:?} is not known to be namespaced; set it on the node instead"
    )]
    NotNamespaced(String),
}

impl SysctlAllowList {
    /// Creates the list from the kernel version (major and minor) and `allowedUnsafeSysctls`:
    /// names, or prefixes followed by `*`.
    ///
    /// # Errors
    /// The first invalid pattern.
    pub fn new(kernel: (u32, u32), allowed_unsafe: &[String]) -> Result<Self, SysctlPatternError> {
        let mut list = Self::default();
        for (name, since) in SAFE {
            if kernel >= *since
                && let Some(namespace) = namespace_of(name)
            {
                list.exact.insert((*name).to_owned(), namespace);
            }
        }
        for pattern in allowed_unsafe {
            if !is_pattern(pattern) {
                return Err(SysctlPatternError::Form(pattern.clone()));
            }
            let name = dotted_sysctl(pattern);
            let prefix = name.strip_suffix('*');
            let namespace = namespace_of(prefix.unwrap_or(&name))
                .ok_or_else(|| SysctlPatternError::NotNamespaced(pattern.clone()))?;
            match prefix {
                Some(prefix) => list.prefixes.insert(prefix.to_owned(), namespace),
                None => list.exact.insert(name, namespace),
            };
        }
        Ok(list)
    }

    /// Checks one sysctl of a pod; the name may be written with `/` or with `.`.
    pub(super) fn check(&self, pod: &Pod, name: &str) -> Result<(), String> {
        let name = dotted_sysctl(name);
        let by_prefix = || self.prefixes.iter().find(|(p, _)| name.starts_with(*p));
        let namespace = self
            .exact
            .get(&name)
            .or_else(|| by_prefix().map(|(_, namespace)| namespace));
        let host_ipc = PodExt::spec(pod).host_ipc == Some(true);
        match namespace {
            None => Err(format!("{name:?} not allowlisted")),
            Some(Namespace::Ipc) if host_ipc => {
                Err(format!("{name:?} not allowed with host ipc enabled"))
            }
            Some(Namespace::Net) if pod.host_network() => {
                Err(format!("{name:?} not allowed with host net enabled"))
            }
            Some(_) => Ok(()),
        }
    }
}

/// Returns the namespace of a sysctl or prefix.
fn namespace_of(name: &str) -> Option<Namespace> {
    let ipc = ["kernel.shm", "kernel.msg", "fs.mqueue."];
    if name == "kernel.sem" || ipc.iter().any(|p| name.starts_with(p)) {
        return Some(Namespace::Ipc);
    }
    name.starts_with("net.").then_some(Namespace::Net)
}

/// Returns whether a text has segments of lower-case letters, digits, `-` and `_`, separated by `.`
/// or `/`, and an optional final `*`.
fn is_pattern(text: &str) -> bool {
    let name = text.strip_suffix('*').unwrap_or(text);
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let inner = |c: char| edge(c) || c == '-' || c == '_';
    let mut segments = name.split(['.', '/']).peekable();
    let mut well_formed = true;
    while let Some(segment) = segments.next() {
        let open_end = segments.peek().is_none() && text.ends_with('*');
        well_formed &= segment.chars().all(inner)
            && if open_end {
                segment.is_empty() || segment.starts_with(edge)
            } else {
                segment.starts_with(edge) && segment.ends_with(edge)
            };
    }
    well_formed && text.len() <= MAX_LENGTH
}
