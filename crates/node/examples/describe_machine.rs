//! Prints the Node object with which this host would join a cluster.
//!
//! `cargo run -p windlass-node --example describe_machine -- [name of the node]`
//!
//! Runs without a container runtime.

use std::error::Error;
use std::io::{self, Write};

use windlass_mailboxes::SystemClock;
use windlass_node::MachineRoots;
use windlass_node_rules::node_conditions::NodeHealth;
use windlass_node_rules::node_object::{
    NodeObjectInput, NodeSettings, ResourceSettings, RuntimeFacts, initial_node,
};
use windlass_types::Clock;

fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1);
    let name = name.unwrap_or_else(|| "this-host".to_owned());
    let machine = MachineRoots::for_host("/var/lib/kubelet".into()).read();
    let settings = NodeSettings {
        name: name.clone(),
        hostname: name,
        kubelet_version: "v1.36.0".to_owned(),
        kubelet_port: 10250,
        resources: ResourceSettings {
            max_pods: 110,
            ..ResourceSettings::default()
        },
        ..NodeSettings::default()
    };
    let report = initial_node(&NodeObjectInput {
        settings: &settings,
        machine: &machine,
        // no runtime was contacted: the node is not ready
        runtime: &RuntimeFacts::default(),
        health: &NodeHealth::default(),
        volumes_in_use: None,
        plugin_resources: &Default::default(),
        now: SystemClock.now(),
    });
    let object = serde_json::to_string_pretty(&report.node)?;
    writeln!(io::stdout(), "{object}")?;
    Ok(())
}
