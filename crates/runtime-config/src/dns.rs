//! `resolv.conf` of a pod: from its DNS policy, its `dnsConfig` and the node's resolver file.
//!
//! As upstream's `dns.Configurer`, but options have a fixed order instead of that of a Go map. The
//! limits are glibc's; excess entries are cut with a warning.

use std::net::IpAddr;

use windlass_types::corev1::PodDNSConfigOption;
use windlass_types::cri::DnsConfig;
use windlass_types::{Pod, PodExt, Reason};

use windlass_pod_inputs::node_facts::NodeFacts;

/// Maximum number of nameservers in glibc.
pub(crate) const MAX_NAMESERVERS: usize = 3;
/// Maximum number of search domains.
pub(crate) const MAX_SEARCHES: usize = 32;
/// Maximum length of the search line.
pub(crate) const MAX_SEARCH_CHARS: usize = 2048;
/// Maximum length of one domain: glibc 2.28 aborts on longer ones.
const MAX_DOMAIN: usize = 253;
/// Options of a pod that uses the cluster DNS; the node's options are not inherited.
const CLUSTER_OPTIONS: [&str; 1] = ["ndots:5"];

/// DNS configuration of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodDns {
    /// Content of the pod's `resolv.conf`.
    pub config: DnsConfig,
    /// Warning events for the pod.
    pub warnings: Vec<DnsWarning>,
}

/// Warning event of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsWarning {
    /// Reason: `DNSConfigForming` or `MissingClusterDNS`.
    pub reason: Reason,
    /// Message.
    pub message: String,
}

/// Error of the node's resolver file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("resolv.conf line {line}: nameserver without an address")]
pub struct ResolvConfError {
    /// Line number, from 1.
    pub line: usize,
}

/// Parses a `resolv.conf`: nameservers accumulate, the last `search` line wins, options merge by
/// name. The trailing dot of a domain is dropped.
///
/// # Errors
/// A `nameserver` line has no address; upstream rejects it too.
pub fn parse_resolv_conf(text: &str) -> Result<DnsConfig, ResolvConfError> {
    let mut config = DnsConfig::default();
    for (index, line) in text.lines().enumerate() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => {
                let address = words.next().ok_or(ResolvConfError { line: index + 1 })?;
                config.servers.push(address.to_owned());
            }
            Some("search") => {
                config.searches = words.map(|w| without_dot(w).to_owned()).collect();
            }
            Some("options") => {
                for word in words {
                    set_option(&mut config.options, word.to_owned());
                }
            }
            _ => {}
        }
    }
    Ok(config)
}

/// Returns the DNS configuration of a pod. `host_resolv_conf` is the text of the node's resolver
/// file; `None` if `resolvConf` is empty, which disables lookups.
///
/// # Errors
/// The node's resolver file is invalid.
pub fn pod_dns(
    pod: &Pod,
    node: &NodeFacts,
    host_resolv_conf: Option<&str>,
) -> Result<PodDns, ResolvConfError> {
    let mut config = parse_resolv_conf(host_resolv_conf.unwrap_or_default())?;
    let mut warnings = Vec::new();

    let mut source = DnsSource::of(pod);
    if source == DnsSource::Cluster && node.cluster_dns.is_empty() {
        source = DnsSource::Node;
        warnings.push(DnsWarning {
            reason: Reason::MissingClusterDns,
            message: format!(
                "pod: \"{}({})\". kubelet does not have ClusterDNS IP configured and cannot \
                 create Pod using \"ClusterFirst\" policy. Falling back to \"Default\" policy.",
                pod.full_name(),
                pod.uid()
            ),
        });
    }
    match source {
        DnsSource::Nothing => config = DnsConfig::default(),
        DnsSource::Cluster => {
            config.servers = node.cluster_dns.iter().map(ToString::to_string).collect();
            config.searches =
                cluster_searches(pod.namespace(), &node.cluster_domain, config.searches);
            config.options = CLUSTER_OPTIONS.map(str::to_owned).to_vec();
        }
        DnsSource::Node if host_resolv_conf.is_none() => {
            config.servers = loopback_servers(&node.node_ips);
            config.searches = vec![".".to_owned()];
        }
        DnsSource::Node => {}
    }

    if let Some(own) = &PodExt::spec(pod).dns_config {
        config.servers = unique(
            config
                .servers
                .into_iter()
                .chain(own.nameservers.iter().flatten().cloned()),
        );
        config.searches = unique(
            config
                .searches
                .into_iter()
                .chain(own.searches.iter().flatten().cloned()),
        );
        for option in own.options.iter().flatten() {
            set_option(&mut config.options, option_text(option));
        }
    }
    cut_nameservers(&mut config.servers, &mut warnings);
    cut_searches(&mut config.searches, &mut warnings);
    Ok(PodDns { config, warnings })
}

/// Checks the node's resolver file at agent start (upstream `CheckLimitsForResolvConf`). Returns
/// the message of the node's warning event.
pub fn check_host_resolv_conf(path: &str, text: &str, cluster_domain: &str) -> Option<String> {
    let searches = match parse_resolv_conf(text) {
        Ok(config) => config.searches,
        Err(error) => return Some(error.to_string()),
    };
    // three cluster domains precede the node's
    let room = MAX_SEARCHES - if cluster_domain.is_empty() { 0 } else { 3 };
    if searches.len() > room {
        return Some(format!(
            "Resolv.conf file '{path}' contains search line consisting of more than {room} domains!"
        ));
    }
    if searches.iter().any(|s| s.len() > MAX_DOMAIN) {
        return Some(format!(
            "Resolv.conf file \"{path}\" contains a search path which length is more than \
             allowed {MAX_DOMAIN} chars!"
        ));
    }
    (searches.join(" ").len() > MAX_SEARCH_CHARS).then(|| {
        format!(
            "Resolv.conf file '{path}' contains search line which length is more than allowed \
             {MAX_SEARCH_CHARS} chars!"
        )
    })
}

/// Base of the DNS settings of a pod.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DnsSource {
    Nothing,
    Cluster,
    Node,
}

impl DnsSource {
    fn of(pod: &Pod) -> Self {
        match PodExt::spec(pod).dns_policy.as_deref() {
            Some("None") => Self::Nothing,
            Some("Default") => Self::Node,
            Some("ClusterFirstWithHostNet") => Self::Cluster,
            // also for a missing or unknown policy
            _ if pod.host_network() => Self::Node,
            _ => Self::Cluster,
        }
    }
}

fn cluster_searches(namespace: &str, domain: &str, host: Vec<String>) -> Vec<String> {
    if domain.is_empty() {
        return host;
    }
    let cluster = [
        format!("{namespace}.svc.{domain}"),
        format!("svc.{domain}"),
        domain.to_owned(),
    ];
    unique(cluster.into_iter().chain(host))
}

/// Returns the default nameservers of a host without any: localhost, per IP family.
fn loopback_servers(node_ips: &[IpAddr]) -> Vec<String> {
    let families = node_ips
        .iter()
        .map(|ip| if ip.is_ipv6() { "::1" } else { "127.0.0.1" }.to_owned());
    let servers = unique(families);
    if servers.is_empty() {
        return vec!["127.0.0.1".to_owned()];
    }
    servers
}

fn cut_nameservers(servers: &mut Vec<String>, warnings: &mut Vec<DnsWarning>) {
    if servers.len() <= MAX_NAMESERVERS {
        return;
    }
    servers.truncate(MAX_NAMESERVERS);
    warnings.push(DnsWarning {
        reason: Reason::DnsConfigForming,
        message: format!(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied \
             nameserver line is: {}",
            servers.join(" ")
        ),
    });
}

fn cut_searches(searches: &mut Vec<String>, warnings: &mut Vec<DnsWarning>) {
    let before = searches.len();
    searches.truncate(MAX_SEARCHES);
    searches.retain(|s| s.len() <= MAX_DOMAIN);
    while searches.join(" ").len() > MAX_SEARCH_CHARS {
        searches.pop();
    }
    if searches.len() == before {
        return;
    }
    warnings.push(DnsWarning {
        reason: Reason::DnsConfigForming,
        message: format!(
            "Search Line limits were exceeded, some search paths have been omitted, the applied \
             search line is: {}",
            searches.join(" ")
        ),
    });
}

fn option_text(option: &PodDNSConfigOption) -> String {
    let name = option.name.as_deref().unwrap_or_default();
    match option.value.as_deref() {
        Some(value) if !value.is_empty() => format!("{name}:{value}"),
        _ => name.to_owned(),
    }
}

/// Replaces the option of the same name in place, or appends.
fn set_option(options: &mut Vec<String>, option: String) {
    let name = |text: &str| text.split(':').next().unwrap_or_default().to_owned();
    match options.iter_mut().find(|o| name(o) == name(&option)) {
        Some(slot) => *slot = option,
        None => options.push(option),
    }
}

fn without_dot(domain: &str) -> &str {
    match domain {
        "." => domain,
        _ => domain.strip_suffix('.').unwrap_or(domain),
    }
}

fn unique(items: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for item in items {
        if !kept.contains(&item) {
            kept.push(item);
        }
    }
    kept
}

#[cfg(test)]
mod tests;
