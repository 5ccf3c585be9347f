//! Resolver configurations of pods, as one line each.

use windlass_types::corev1::{PodDNSConfig, PodSpec};

use super::*;

const HOST: &str = "# written by hand\nnameserver 10.0.0.1\nnameserver 10.0.0.2 x\n\
                    search a.example. b.example\noptions ndots:2 rotate\noptions timeout:1 ndots:3\n";

fn pod(policy: &str, host_network: bool) -> Pod {
    let mut pod = Pod {
        spec: Some(PodSpec {
            dns_policy: (!policy.is_empty()).then(|| policy.to_owned()),
            host_network: Some(host_network),
            ..PodSpec::default()
        }),
        ..Pod::default()
    };
    pod.metadata.name = Some("p".to_owned());
    pod.metadata.namespace = Some("ns".to_owned());
    pod.metadata.uid = Some("u".to_owned());
    pod
}

fn cluster() -> NodeFacts {
    NodeFacts {
        cluster_dns: vec!["10.96.0.10".parse().expect("ip")],
        cluster_domain: "cluster.local".to_owned(),
        node_ips: vec!["192.0.2.1".parse().expect("ip")],
        ..NodeFacts::default()
    }
}

/// `servers | searches | options` and the reasons of the warnings.
fn line(dns: &PodDns) -> String {
    let c = &dns.config;
    let mut line = format!(
        "{} | {} | {}",
        c.servers.join(" "),
        c.searches.join(" "),
        c.options.join(" ")
    );
    for w in &dns.warnings {
        line += &format!(" !{}", w.reason);
    }
    line
}

fn check(pod: &Pod, node: &NodeFacts, host: Option<&str>, expected: &str) {
    assert_eq!(line(&pod_dns(pod, node, host).expect("usable")), expected);
}

#[test]
fn dns_policies_have_their_sources() {
    let node = cluster();
    let in_cluster = "10.96.0.10 | ns.svc.cluster.local svc.cluster.local cluster.local \
                      a.example b.example | ndots:5";
    let on_node = "10.0.0.1 10.0.0.2 | a.example b.example | ndots:3 rotate timeout:1";
    check(&pod("ClusterFirst", false), &node, Some(HOST), in_cluster);
    check(&pod("", false), &node, Some(HOST), in_cluster);
    check(&pod("ClusterFirst", true), &node, Some(HOST), on_node);
    check(
        &pod("ClusterFirstWithHostNet", true),
        &node,
        Some(HOST),
        in_cluster,
    );
    check(&pod("Default", false), &node, Some(HOST), on_node);
    check(&pod("None", false), &node, Some(HOST), " |  | ");
}

#[test]
fn missing_cluster_dns_uses_node_resolver_with_warning() {
    let node = NodeFacts::default();
    check(
        &pod("ClusterFirst", false),
        &node,
        Some("nameserver 10.0.0.1\n"),
        "10.0.0.1 |  |  !MissingClusterDNS",
    );
    let dns = pod_dns(&pod("ClusterFirst", false), &node, Some("")).expect("usable");
    assert!(
        dns.warnings[0]
            .message
            .starts_with("pod: \"p_ns(u)\". kubelet does not have")
    );
}

#[test]
fn empty_resolv_conf_setting_uses_loopback() {
    let mut node = cluster();
    check(&pod("Default", false), &node, None, "127.0.0.1 | . | ");
    node.node_ips.push("2001:db8::1".parse().expect("ip"));
    check(&pod("Default", false), &node, None, "127.0.0.1 ::1 | . | ");
    node.node_ips.clear();
    check(&pod("Default", false), &node, None, "127.0.0.1 | . | ");
    check(
        &pod("ClusterFirst", false),
        &node,
        None,
        "10.96.0.10 | ns.svc.cluster.local svc.cluster.local cluster.local | ndots:5",
    );
}

fn with_config(
    mut pod: Pod,
    servers: &[&str],
    searches: &[String],
    options: &[(&str, Option<&str>)],
) -> Pod {
    let config = PodDNSConfig {
        nameservers: Some(servers.iter().map(|s| (*s).to_owned()).collect()),
        searches: Some(searches.to_vec()),
        options: Some(
            options
                .iter()
                .map(|(name, value)| PodDNSConfigOption {
                    name: Some((*name).to_owned()),
                    value: value.map(str::to_owned),
                })
                .collect(),
        ),
    };
    if let Some(spec) = &mut pod.spec {
        spec.dns_config = Some(config);
    }
    pod
}

#[test]
fn dns_config_is_merged_and_overrides_options() {
    let pod = with_config(
        pod("Default", false),
        &["10.0.0.2", "1.1.1.1"],
        &["b.example".to_owned(), "c.example".to_owned()],
        &[("ndots", Some("1")), ("edns0", None), ("rotate", Some(""))],
    );
    check(
        &pod,
        &cluster(),
        Some(HOST),
        "10.0.0.1 10.0.0.2 1.1.1.1 | a.example b.example c.example | ndots:1 rotate timeout:1 edns0",
    );
}

#[test]
fn dns_over_limits_is_cut_with_a_warning() {
    let none = || pod("None", false);
    check(
        &with_config(
            none(),
            &["1.0.0.1", "1.0.0.2", "1.0.0.3", "1.0.0.4"],
            &[],
            &[],
        ),
        &cluster(),
        None,
        "1.0.0.1 1.0.0.2 1.0.0.3 |  |  !DNSConfigForming",
    );
    let count = |searches: Vec<String>| {
        let dns = pod_dns(&with_config(none(), &[], &searches, &[]), &cluster(), None);
        let dns = dns.expect("usable");
        (dns.config.searches.len(), dns.warnings.len())
    };
    let short = |n| (0..n).map(|i| format!("d{i}")).collect::<Vec<_>>();
    assert_eq!(count(short(32)), (32, 0));
    assert_eq!(count(short(33)), (32, 1));
    assert_eq!(count(vec!["x".repeat(253), "y".repeat(254)]), (1, 1));
    // 8 × 253 + 7 spaces = 2031 fits, 9 do not
    let long = |n| {
        (0..n)
            .map(|i| format!("{i}{}", "x".repeat(252)))
            .collect::<Vec<_>>()
    };
    assert_eq!(count(long(8)), (8, 0));
    assert_eq!(count(long(9)), (8, 1));
}

#[test]
fn nameserver_without_address_is_error() {
    assert_eq!(
        parse_resolv_conf("search x\nnameserver\n")
            .expect_err("bad")
            .to_string(),
        "resolv.conf line 2: nameserver without an address"
    );
}

#[test]
fn node_resolver_file_is_checked_for_cluster_domain_limits() {
    let searches = |n: usize| {
        format!(
            "search {}\n",
            (0..n)
                .map(|i| format!("d{i}"))
                .collect::<Vec<_>>()
                .join(" ")
        )
    };
    let check = |n, domain| check_host_resolv_conf("/etc/resolv.conf", &searches(n), domain);
    assert_eq!(check(29, "cluster.local"), None);
    assert_eq!(check(32, ""), None);
    assert!(check(30, "cluster.local").is_some_and(|m| m.contains("more than 29 domains")));
}
