//! Name and addresses of the node.

use std::net::IpAddr;

use crate::flags::KubeletFlags;

/// Name and addresses of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeIdentity {
    /// Lower-case name.
    pub name: String,
    /// Addresses, primary first; never empty.
    pub ips: Vec<IpAddr>,
}

/// A node flag is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// The name is not a DNS name.
    #[error(
        "node name {0:?} is not a DNS name (lower-case letters, digits, - and .); set \
         --hostname-override"
    )]
    Name(String),
    /// `--node-ip` is neither an address nor a pair.
    #[error(
        "--node-ip={0:?}: must be one IP address, an IPv4 and an IPv6 address separated by a \
         comma, or 0.0.0.0 or :: to select a family"
    )]
    Ip(String),
    /// `--node-ip` is not an address of the host.
    #[error("--node-ip={0}: no interface of this host has this address")]
    Foreign(IpAddr),
}

impl NodeError {
    /// Returns the invalid flag.
    pub(crate) fn flag(&self) -> &'static str {
        match self {
            Self::Name(_) => "--hostname-override",
            Self::Ip(_) | Self::Foreign(_) => "--node-ip",
        }
    }
}

/// Network settings of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostNetwork {
    /// Host name.
    pub hostname: String,
    /// Interface names and addresses of active interfaces, in kernel order.
    pub addresses: Vec<(String, IpAddr)>,
    /// Interface of the default route.
    pub default_interface: Option<String>,
}

impl HostNetwork {
    /// Reads the settings; unreadable ones stay empty, as a standalone node may have no network.
    pub fn read() -> Self {
        let hostname = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        let routes = std::fs::read_to_string("/proc/net/route").unwrap_or_default();
        let routes6 = std::fs::read_to_string("/proc/net/ipv6_route").unwrap_or_default();
        Self {
            hostname,
            addresses: addresses(),
            default_interface: default_interface(&routes).or_else(|| default_interface6(&routes6)),
        }
    }
}

fn addresses() -> Vec<(String, IpAddr)> {
    let Ok(interfaces) = nix::ifaddrs::getifaddrs() else {
        return Vec::new();
    };
    interfaces
        .filter(|i| i.flags.contains(nix::net::if_::InterfaceFlags::IFF_UP))
        .filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
            let v6 = || address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip()));
            Some((interface.interface_name, v4.or_else(v6)?))
        })
        .collect()
}

/// Determines name and addresses from flags and host.
pub fn identify(flags: &KubeletFlags, host: &HostNetwork) -> Result<NodeIdentity, NodeError> {
    let name = flags.hostname_override.as_deref();
    let name = parse_name(name.unwrap_or(&host.hostname))?;
    let ips = match parse_node_ip(flags)?.as_slice() {
        [] => vec![default_ip(host, None)],
        [one] if one.is_unspecified() => vec![default_ip(host, Some(one.is_ipv4()))],
        ips => ips
            .iter()
            .map(|ip| check_ip(*ip, host))
            .collect::<Result<_, _>>()?,
    };
    Ok(NodeIdentity { name, ips })
}

/// Validates the flags without reading the host.
pub(crate) fn check_flags(flags: &KubeletFlags) -> [Result<(), NodeError>; 2] {
    let name = flags.hostname_override.as_deref();
    [
        name.map_or(Ok(()), |name| parse_name(name).map(drop)),
        parse_node_ip(flags).map(drop),
    ]
}

fn parse_name(text: &str) -> Result<String, NodeError> {
    let name = text.trim().to_lowercase();
    match is_dns_name(&name) {
        true => Ok(name),
        false => Err(NodeError::Name(name)),
    }
}

/// Parses `--node-ip`: none, one or two addresses of different families.
fn parse_node_ip(flags: &KubeletFlags) -> Result<Vec<IpAddr>, NodeError> {
    let text = flags.node_ip.as_deref().unwrap_or_default().trim();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let ips: Result<Vec<IpAddr>, _> = text.split(',').map(|part| part.trim().parse()).collect();
    let usable = |ips: &Vec<IpAddr>| match ips.as_slice() {
        [_] => true,
        [first, second] => {
            first.is_ipv4() != second.is_ipv4() && !ips.iter().any(IpAddr::is_unspecified)
        }
        _ => false,
    };
    ips.ok()
        .filter(usable)
        .ok_or_else(|| NodeError::Ip(text.to_owned()))
}

/// Rejects an address that the host does not have, unless its addresses are unknown.
fn check_ip(ip: IpAddr, host: &HostNetwork) -> Result<IpAddr, NodeError> {
    if host.addresses.is_empty() || host.addresses.iter().any(|(_, own)| *own == ip) {
        Ok(ip)
    } else {
        Err(NodeError::Foreign(ip))
    }
}

/// Returns the address of the default route's interface, else any reachable one, else loopback.
fn default_ip(host: &HostNetwork, prefer_v4: Option<bool>) -> IpAddr {
    let usable = |ip: &IpAddr| !ip.is_loopback() && !is_link_local(ip);
    let default = host.default_interface.as_deref();
    let rank = |(name, ip): &&(String, IpAddr)| {
        let family = prefer_v4.unwrap_or(true) != ip.is_ipv4();
        (family, Some(name.as_str()) != default)
    };
    host.addresses
        .iter()
        .filter(|(_, ip)| usable(ip))
        // the first minimum, in kernel order
        .min_by_key(rank)
        .map_or(IpAddr::from([127, 0, 0, 1]), |(_, ip)| *ip)
}

fn is_link_local(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// Returns the interface of the default route with the lowest metric in `/proc/net/route`.
fn default_interface(routes: &str) -> Option<String> {
    routes
        .lines()
        .skip(1)
        .filter_map(|line| {
            let columns: Vec<_> = line.split_whitespace().collect();
            let [name, destination, _, flags, _, _, metric, mask, ..] = columns.as_slice() else {
                return None;
            };
            let up = u32::from_str_radix(flags, 16).ok()? & 1 == 1;
            (up && *destination == "00000000" && *mask == "00000000")
                .then(|| Some((metric.parse::<u32>().ok()?, (*name).to_owned())))?
        })
        .min_by_key(|(metric, _)| *metric)
        .map(|(_, name)| name)
}

/// The same for `/proc/net/ipv6_route`, whose last column is the interface.
fn default_interface6(routes: &str) -> Option<String> {
    routes.lines().find_map(|line| {
        let columns: Vec<_> = line.split_whitespace().collect();
        let (destination, length, name) = (columns.first()?, columns.get(1)?, columns.last()?);
        let default = destination.bytes().all(|b| b == b'0') && *length == "00" && *name != "lo";
        default.then(|| (*name).to_owned())
    })
}

/// Whether a name is an RFC 1123 subdomain.
fn is_dns_name(name: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::{HostNetwork, default_interface, identify};
    use crate::flags::KubeletFlags;

    fn host() -> HostNetwork {
        HostNetwork {
            hostname: "Worker-1".to_owned(),
            addresses: [
                ("lo", "127.0.0.1"),
                ("docker0", "172.17.0.1"),
                ("eth0", "10.0.0.5"),
                ("eth0", "fe80::1"),
                ("eth0", "2001:db8::5"),
            ]
            .map(|(name, ip)| (name.to_owned(), ip.parse().expect("address")))
            .into(),
            default_interface: Some("eth0".to_owned()),
        }
    }

    fn check(args: &[&str], host: &HostNetwork, expected: &str) {
        let args = std::iter::once("windlass").chain(args.iter().copied());
        let flags = KubeletFlags::from_args(args.map(Into::into)).expect("flags");
        let line = match identify(&flags, host) {
            Ok(node) => format!("{} {:?}", node.name, node.ips),
            Err(error) => error.to_string(),
        };
        assert!(line.starts_with(expected), "{line}, expected {expected}");
    }

    #[test]
    fn identity_comes_from_flags_or_host() {
        let m = host();
        check(&[], &m, "worker-1 [10.0.0.5]");
        check(
            &["--hostname-override=Edge.Example"],
            &m,
            "edge.example [10.0.0.5]",
        );
        check(&["--node-ip=172.17.0.1"], &m, "worker-1 [172.17.0.1]");
        check(&["--node-ip=::"], &m, "worker-1 [2001:db8::5]");
        check(
            &["--node-ip=10.0.0.5,2001:db8::5"],
            &m,
            "worker-1 [10.0.0.5, 2001:db8::5]",
        );
        check(
            &["--node-ip=10.0.0.5,10.0.0.6"],
            &m,
            "--node-ip=\"10.0.0.5,10.0.0.6\": must be",
        );
        check(
            &["--node-ip=192.0.2.1"],
            &m,
            "--node-ip=192.0.2.1: no interface",
        );
        check(
            &["--hostname-override=a_b"],
            &m,
            "node name \"a_b\" is not a DNS name",
        );
    }

    #[test]
    fn host_without_network_has_loopback_address() {
        let offline = HostNetwork {
            hostname: "box".to_owned(),
            ..HostNetwork::default()
        };
        check(&[], &offline, "box [127.0.0.1]");
    }

    #[test]
    fn default_route_with_lowest_metric_is_used() {
        let routes = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n\
            wlan0\t00000000\t0101A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n\
            eth0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
            eth1\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n";
        assert_eq!(default_interface(routes).as_deref(), Some("eth0"));
        assert_eq!(default_interface("heading\n"), None);
    }
}
