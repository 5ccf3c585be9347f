//! Which sysctls a pod may set: those that harm nobody else, and those the operator allows.

use std::collections::BTreeMap;

use windlass_types::{Pod, PodExt};

use windlass_types::names::dotted_sysctl;

/// Sysctls that are safe for every pod, with the first kernel that keeps them per namespace.
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

/// Longest pattern upstream accepts.
const MAX_LENGTH: usize = 253;

/// A kernel namespace that has its own copy of a sysctl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Namespace {
    Ipc,
    Net,
}

/// Sysctls and prefixes a pod may set, with the namespace each lives in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SysctlAllowList {
    exact: BTreeMap<String, Namespace>,
    prefixes: BTreeMap<String, Namespace>,
}

/// An entry of `allowedUnsafeSysctls` that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SysctlPatternError {
    /// Not the name of a sysctl, nor one that ends in `*`.
    #[error("allowedUnsafeSysctls: {0:?} is no sysctl name, nor the beginning of one and a *")]
    Form(String),
    /// The kernel does not keep it per namespace, so a pod's value would be everybody's.
    #[error(
        "allowedUnsafeSysctls: {0:?} is not known to be namespaced; set it on the node instead"
    )]
    NotNamespaced(String),
}

impl SysctlAllowList {
    /// The safe sysctls of a kernel (major and minor version) and the patterns of
    /// `allowedUnsafeSysctls`: names, or beginnings of names followed by `*`.
    ///
    /// # Errors
    /// The first pattern that cannot be used.
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

/// The namespace a sysctl, or all that begin so, live in.
fn namespace_of(name: &str) -> Option<Namespace> {
    let ipc = ["kernel.shm", "kernel.msg", "fs.mqueue."];
    if name == "kernel.sem" || ipc.iter().any(|p| name.starts_with(p)) {
        return Some(Namespace::Ipc);
    }
    name.starts_with("net.").then_some(Namespace::Net)
}

/// Segments of lower-case letters, digits, `-` and `_`, separated by `.` or `/`, at the end
/// perhaps a `*`.
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
