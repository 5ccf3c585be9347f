//! Host names and hosts files, word for word.

use windlass_types::corev1::PodSpec;

use super::*;

fn pod(name: &str, spec: PodSpec) -> Pod {
    let mut pod = Pod {
        spec: Some(spec),
        ..Pod::default()
    };
    pod.metadata.name = Some(name.to_owned());
    pod.metadata.namespace = Some("ns".to_owned());
    pod
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// `hostname domain kernel-name`, or the error.
fn check(pod: &Pod, expected: &str) {
    let node = NodeFacts {
        cluster_domain: "cluster.local".to_owned(),
        ..NodeFacts::default()
    };
    check_on(&node, pod, expected);
}

fn check_on(node: &NodeFacts, pod: &Pod, expected: &str) {
    let line = pod_hostname(pod, node).and_then(|name| {
        let kernel = kernel_hostname(pod, &name)?;
        Ok(format!("{} {:?} {kernel}", name.hostname, name.domain))
    });
    assert_eq!(line.unwrap_or_else(|e| e.to_string()), expected);
}

#[test]
fn host_name_prefers_override_then_hostname_then_pod_name() {
    check(&pod("web-0", PodSpec::default()), "web-0 \"\" web-0");
    let mut spec = PodSpec {
        hostname: some("one"),
        ..PodSpec::default()
    };
    check(&pod("web-0", spec.clone()), "one \"\" one");
    spec.subdomain = some("sub");
    check(
        &pod("web-0", spec.clone()),
        "one \"sub.ns.svc.cluster.local\" one",
    );
    spec.set_hostname_as_fqdn = Some(true);
    check(
        &pod("web-0", spec.clone()),
        "one \"sub.ns.svc.cluster.local\" one.sub.ns.svc.cluster.local",
    );
    spec.hostname_override = some("db.example.org");
    check(
        &pod("web-0", spec.clone()),
        "db.example.org \"\" db.example.org",
    );
    let gate_off = NodeFacts {
        hostname_override: false,
        ..NodeFacts::default()
    };
    spec.subdomain = None;
    check_on(&gate_off, &pod("web-0", spec), "one \"\" one");
}

#[test]
fn long_host_name_is_truncated_without_trailing_separator() {
    let name = format!("{}.-tail", "x".repeat(61));
    let expected = "x".repeat(61);
    check(
        &pod(&name, PodSpec::default()),
        &format!("{expected} \"\" {expected}"),
    );
    check(
        &pod(&"-".repeat(70), PodSpec::default()),
        &format!("host name {:?} is invalid", "-".repeat(70)),
    );
}

#[test]
fn invalid_host_name_error_has_field() {
    let spec = PodSpec {
        hostname: some("One"),
        ..PodSpec::default()
    };
    check(
        &pod("p", spec),
        "spec.hostname \"One\" is not a valid DNS label",
    );
    let spec = PodSpec {
        subdomain: some("a.b"),
        ..PodSpec::default()
    };
    check(
        &pod("p", spec),
        "spec.subdomain \"a.b\" is not a valid DNS label",
    );
    let spec = PodSpec {
        hostname_override: some("a..b"),
        ..PodSpec::default()
    };
    check(
        &pod("p", spec),
        "spec.hostnameOverride \"a..b\" is not a valid DNS subdomain",
    );
    let spec = PodSpec {
        hostname: Some("h".repeat(63)),
        subdomain: some("s"),
        set_hostname_as_fqdn: Some(true),
        ..PodSpec::default()
    };
    check(
        &pod("p", spec),
        &format!(
            "failed to construct FQDN from pod hostname and cluster domain, FQDN \
             {}.s.ns.svc.cluster.local is too long (64 characters is the max, 86 characters \
             requested)",
            "h".repeat(63)
        ),
    );
}

#[test]
fn hosts_file_equals_upstream() {
    let pod = pod(
        "p",
        PodSpec {
            host_aliases: Some(vec![HostAlias {
                ip: "10.1.1.1".to_owned(),
                hostnames: Some(vec!["foo".to_owned(), "bar".to_owned()]),
            }]),
            ..PodSpec::default()
        },
    );
    let name = PodHostname {
        hostname: "p".to_owned(),
        domain: "s.ns.svc.c".to_owned(),
    };
    let ips = [
        "10.0.0.7".parse().expect("ip"),
        "fd00::7".parse().expect("ip"),
    ];
    assert_eq!(
        hosts_file(&pod, &name, &ips, "ignored"),
        "# Kubernetes-managed hosts file.\n\
         127.0.0.1\tlocalhost\n\
         ::1\tlocalhost ip6-localhost ip6-loopback\n\
         fe00::0\tip6-localnet\n\
         fe00::0\tip6-mcastprefix\n\
         fe00::1\tip6-allnodes\n\
         fe00::2\tip6-allrouters\n\
         10.0.0.7\tp.s.ns.svc.c\tp\n\
         fd00::7\tp.s.ns.svc.c\tp\n\
         \n\
         # Entries added by HostAliases.\n\
         10.1.1.1\tfoo\tbar\n"
    );
    let short = PodHostname {
        domain: String::new(),
        ..name
    };
    let no_alias = Pod::default();
    assert!(
        hosts_file(&no_alias, &short, &ips[..1], "").ends_with("ip6-allrouters\n10.0.0.7\tp\n")
    );
}

#[test]
fn host_network_pod_gets_node_hosts_file() {
    let pod = pod(
        "p",
        PodSpec {
            host_network: Some(true),
            ..PodSpec::default()
        },
    );
    let name = PodHostname {
        hostname: "p".to_owned(),
        domain: String::new(),
    };
    assert_eq!(
        hosts_file(&pod, &name, &[], "192.0.2.1 node\n"),
        "# Kubernetes-managed hosts file (host network).\n192.0.2.1 node\n"
    );
    assert!(provides_hosts_file(&pod, &[]));
    assert!(!provides_hosts_file(&Pod::default(), &[]));
}
