//! Prints the resolver configuration of a pod for two DNS policies.
//!
//! `cargo run -p windlass-runtime-config --example print_resolv_conf`
//!
//! Runs without a container runtime.

use std::error::Error;

use windlass_pod_inputs::node_facts::NodeFacts;
use windlass_runtime_config::dns::pod_dns;
use windlass_types::Pod;

const HOST: &str = "nameserver 192.0.2.53\nsearch example.com\noptions ndots:2\n";

fn main() -> Result<(), Box<dyn Error>> {
    let node = NodeFacts {
        cluster_dns: vec!["10.96.0.10".parse()?],
        cluster_domain: "cluster.local".to_owned(),
        ..NodeFacts::default()
    };
    for policy in ["ClusterFirst", "Default"] {
        let mut pod = Pod::default();
        pod.metadata.namespace = Some("shop".to_owned());
        pod.spec.get_or_insert_default().dns_policy = Some(policy.to_owned());
        let dns = pod_dns(&pod, &node, Some(HOST))?;
        println!("{policy}:");
        println!("  servers  {}", dns.config.servers.join(" "));
        println!("  searches {}", dns.config.searches.join(" "));
        println!("  options  {}", dns.config.options.join(" "));
        for warning in &dns.warnings {
            println!("  warning  {}", warning.message);
        }
    }
    Ok(())
}
