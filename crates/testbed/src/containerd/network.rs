//! Bridge network for the pods of a private containerd.
//!
//! Pods reach each other and the host only, without packet filter rules. The bridge is created here,
//! because the CNI plugin as a gateway enables forwarding for the whole host.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::json;

/// Subnets are parts of 10.88.0.0/16, the default of podman.
const SUBNET_PREFIX: [u8; 2] = [10, 88];
/// 16 instances with 4,000 pod addresses each.
const SUBNET_LENGTH: u8 = 20;
const SUBNETS: u8 = 1 << (SUBNET_LENGTH - 16);
const ROUTES: &str = "/proc/net/route";

/// The address families of the pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IpFamilies {
    /// IPv4 only.
    #[default]
    Ipv4,
    /// IPv6 only.
    Ipv6,
    /// Both, with IPv6 as the primary family of the node.
    Ipv6AndIpv4,
}

/// A bridge with a subnet, and the CNI configuration for it.
#[derive(Debug)]
pub struct Network {
    bridge: String,
    gateway: Ipv4Addr,
    families: IpFamilies,
    conf_dir: PathBuf,
}

impl Network {
    /// Creates the bridge and writes the CNI configuration below `base`.
    pub(super) fn create(
        instance: &str,
        base: &Path,
        families: IpFamilies,
    ) -> anyhow::Result<Self> {
        let routes = std::fs::read_to_string(ROUTES).context(ROUTES)?;
        let mut hasher = DefaultHasher::new();
        instance.hash(&mut hasher);
        let first = hasher.finish() as u8;
        let [a, b] = SUBNET_PREFIX;
        let subnet = (0..SUBNETS)
            .map(|offset| (first.wrapping_add(offset) % SUBNETS) << (24 - SUBNET_LENGTH))
            .find(|third| !is_routed(&routes, Ipv4Addr::from([a, b, *third, 0])))
            .context("every subnet of 10.88.0.0/16 is routed on this machine")?;
        let network = Self {
            bridge: bridge_name(instance),
            gateway: Ipv4Addr::new(a, b, subnet, 1),
            families,
            conf_dir: base.join("cni"),
        };
        std::fs::create_dir_all(&network.conf_dir)?;
        std::fs::write(
            network.conf_dir.join("10-windlass.conflist"),
            serde_json::to_vec_pretty(&network.conflist(instance, base))?,
        )?;
        let address = format!("{}/{SUBNET_LENGTH}", network.gateway);
        ip(&["link", "add", &network.bridge, "type", "bridge"])?;
        ip(&["address", "add", &address, "dev", &network.bridge])?;
        if families != IpFamilies::Ipv4 {
            let address = format!("{}/64", network.gateway6());
            // duplicate address detection does not end without a carrier
            ip(&["address", "add", &address, "dev", &network.bridge, "nodad"])?;
        }
        ip(&["link", "set", &network.bridge, "up"])?;
        Ok(network)
    }

    /// Name of the bridge.
    pub fn bridge(&self) -> &str {
        &self.bridge
    }

    /// Returns the IPv4 address of the host on the bridge.
    pub fn gateway(&self) -> Ipv4Addr {
        self.gateway
    }

    /// Returns the IPv6 address of the host on the bridge.
    fn gateway6(&self) -> Ipv6Addr {
        let [a, b, subnet, _] = self.gateway.octets().map(u16::from);
        Ipv6Addr::new(0xfd00, a, b, subnet, 0, 0, 0, 1)
    }

    /// Addresses for `--node-ip`, primary first.
    pub fn node_ips(&self) -> Vec<IpAddr> {
        match self.families {
            IpFamilies::Ipv4 => vec![self.gateway.into()],
            IpFamilies::Ipv6 => vec![self.gateway6().into()],
            IpFamilies::Ipv6AndIpv4 => vec![self.gateway6().into(), self.gateway.into()],
        }
    }

    /// The CNI configuration directory.
    pub fn conf_dir(&self) -> &Path {
        &self.conf_dir
    }

    fn conflist(&self, instance: &str, base: &Path) -> serde_json::Value {
        let [a, b, c, _] = self.gateway.octets();
        let ipv4 = json!([{ "subnet": format!("{a}.{b}.{c}.0/{SUBNET_LENGTH}") }]);
        let [first, second, third, fourth, ..] = self.gateway6().segments();
        let subnet6 = Ipv6Addr::new(first, second, third, fourth, 0, 0, 0, 0);
        let ipv6 = json!([{ "subnet": format!("{subnet6}/64") }]);
        let (ranges, routes) = match self.families {
            IpFamilies::Ipv4 => (json!([ipv4]), json!([{ "dst": "0.0.0.0/0" }])),
            IpFamilies::Ipv6 => (json!([ipv6]), json!([{ "dst": "::/0" }])),
            IpFamilies::Ipv6AndIpv4 => (
                json!([ipv4, ipv6]),
                json!([{ "dst": "0.0.0.0/0" }, { "dst": "::/0" }]),
            ),
        };
        json!({
            "cniVersion": "1.0.0",
            "name": network_name(instance),
            "plugins": [{
                "type": "bridge",
                "bridge": self.bridge,
                "isGateway": false,
                "ipMasq": false,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "ranges": ranges,
                    "routes": routes,
                    "dataDir": base.join("ipam"),
                },
            }],
        })
    }
}

/// Name of an instance's bridge.
pub(super) fn bridge_name(instance: &str) -> String {
    format!("wl-{instance}")
}

/// Name of an instance's CNI network, which is how CNI's result cache names its files.
pub(super) fn network_name(instance: &str) -> String {
    format!("windlass-{instance}")
}

/// Removes an instance's bridge and the veth pairs on it, if they exist.
pub(super) fn remove(instance: &str) -> anyhow::Result<()> {
    let bridge = bridge_name(instance);
    let ports = Path::new("/sys/class/net").join(&bridge).join("brif");
    let Ok(ports) = std::fs::read_dir(ports) else {
        return Ok(());
    };
    for port in ports.flatten() {
        // the kernel may be removing it
        let _ = ip(&["link", "delete", &port.file_name().to_string_lossy()]);
    }
    ip(&["link", "delete", &bridge])
}

/// Whether a non-default route overlaps with `subnet`.
fn is_routed(routes: &str, subnet: Ipv4Addr) -> bool {
    let subnet_mask = u32::MAX << (32 - SUBNET_LENGTH);
    let hex = |field: Option<&str>| field.and_then(|f| u32::from_str_radix(f, 16).ok());
    routes.lines().skip(1).any(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let destination = hex(fields.next()).map(u32::from_be);
        let mask = hex(fields.nth(5)).map(u32::from_be);
        match (destination, mask) {
            (Some(destination), Some(mask)) if mask != 0 => {
                let both = mask & subnet_mask;
                destination & both == u32::from(subnet) & both
            }
            _ => false,
        }
    })
}

fn ip(args: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("ip")
        .args(args)
        .output()
        .context("cannot run ip (iproute2)")?;
    if !output.status.success() {
        bail!(
            "ip {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnet_is_free_unless_a_route_overlaps() {
        let routes = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\n\
            eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
            cni0\t0005580A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
            cni1\t8007580A\t00000000\t0001\t0\t0\t0\t80FFFFFF\t0\t0\t0\n";
        assert!(is_routed(routes, Ipv4Addr::new(10, 88, 0, 0)));
        assert!(!is_routed(routes, Ipv4Addr::new(10, 88, 16, 0)));
    }
}
