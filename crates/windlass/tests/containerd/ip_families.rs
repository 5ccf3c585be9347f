//! Pods with IPv6 or dual-stack addresses: status, downward API, hosts file and probes.

use std::net::IpAddr;

use serde_json::Value;
use windlass_testing::containerd::{IpFamilies, PrivateContainerd};

use crate::manifest::fill;
use crate::test_env::{TestEnv, binary, skipped};

/// A web server; startup, readiness and liveness probes use commands, HTTP and TCP.
const WEB: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: IMAGE
    command: [sh, -c, "echo yes > /tmp/healthy; httpd -p 8080 -h /tmp; HOLD"]
    env:
    - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: POD_IPS, valueFrom: {fieldRef: {fieldPath: status.podIPs}}}
    - {name: HOST_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
    - {name: HOST_IPS, valueFrom: {fieldRef: {fieldPath: status.hostIPs}}}
    ports: [{name: http, containerPort: 8080}]
    startupProbe: {exec: {command: [test, -e, /tmp/healthy]}, periodSeconds: 1}
    readinessProbe: {httpGet: {path: /healthy, port: http}, periodSeconds: 1}
    livenessProbe: {tcpSocket: {port: http}, periodSeconds: 1, failureThreshold: 3}
"#;

/// A pod on the network of the host.
const HOST: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: host}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: IMAGE
    command: [sh, -c, "HOLD"]
    env: [{name: POD_IPS, valueFrom: {fieldRef: {fieldPath: status.podIPs}}}]
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_dual_stack_pods_have_both_addresses() {
    pods_have_addresses_of("i-dual", IpFamilies::Ipv6AndIpv4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_ipv6_only_pods_have_one_address() {
    pods_have_addresses_of("i-ipv6", IpFamilies::Ipv6).await;
}

async fn pods_have_addresses_of(name: &str, families: IpFamilies) {
    if skipped() {
        return;
    }
    let containerd = PrivateContainerd::start_with(name, families, |_| {}).await;
    let mut env = TestEnv::on(containerd.unwrap(), binary());
    env.apply("web.yaml", &fill(WEB));
    env.apply("host.yaml", &fill(HOST));
    env.ready("web").await;
    env.ready("host").await;
    let node = env.containerd.network().node_ips();
    let pod = env.pod("web").await;
    let ips = check_addresses(&env, &pod, &node).await;

    // after a restart the addresses have the same order
    env.kill_and_respawn().await;
    env.ready("web").await;
    let pod = env.pod("web").await;
    assert_eq!(check_addresses(&env, &pod, &node).await, ips);
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0);

    // on the host network pod addresses are node addresses
    let host = env.pod("host").await;
    assert_eq!(addresses(&host, "podIPs"), node);
    let variable = env.exec("host", "main", "echo -n $POD_IPS").await;
    assert_eq!(variable, joined(&node));
    env.stop().await;
}

/// Checks status, variables, hosts file and interfaces; returns the addresses of the pod.
async fn check_addresses(env: &TestEnv, pod: &Value, node: &[IpAddr]) -> Vec<IpAddr> {
    let ips = addresses(pod, "podIPs");
    let families = |ips: &[IpAddr]| ips.iter().map(IpAddr::is_ipv6).collect::<Vec<_>>();
    assert_eq!(families(&ips), families(node), "primary family first");
    assert_eq!(pod["status"]["podIP"], ips[0].to_string());
    assert_eq!(addresses(pod, "hostIPs"), node);
    assert_eq!(pod["status"]["hostIP"], node[0].to_string());

    let command = "echo -n \"$POD_IP $POD_IPS $HOST_IP $HOST_IPS\"";
    let variables = env.exec("web", "main", command).await;
    let wanted = [
        ips[0].to_string(),
        joined(&ips),
        node[0].to_string(),
        joined(node),
    ];
    assert_eq!(variables, wanted.join(" "));

    let hosts = env.exec("web", "main", "cat /etc/hosts").await;
    let interfaces = env.exec("web", "main", "ip address show dev eth0").await;
    for ip in &ips {
        assert!(hosts.contains(&format!("{ip}\tweb-node\n")), "{hosts}");
        assert!(interfaces.contains(&format!(" {ip}/")), "{interfaces}");
    }
    ips
}

fn addresses(pod: &Value, list: &str) -> Vec<IpAddr> {
    let list = pod["status"][list].as_array().unwrap().iter();
    list.map(|one| one["ip"].as_str().unwrap().parse().unwrap())
        .collect()
}

fn joined(ips: &[IpAddr]) -> String {
    let ips: Vec<String> = ips.iter().map(ToString::to_string).collect();
    ips.join(",")
}
