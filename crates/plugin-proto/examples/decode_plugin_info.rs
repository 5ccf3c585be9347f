//! Prints what a plugin answers at its registration.
//!
//! `cargo run -p windlass-plugin-proto --example decode_plugin_info -- answer.bin` decodes a
//! `PluginInfo` from a file, as a proxy in front of a plugin's socket may have written it; without an
//! argument it encodes a sample first.
//!
//! Runs without a container runtime.

use std::error::Error;

use prost::Message;
use windlass_plugin_proto::pluginregistration_v1::PluginInfo;

fn main() -> Result<(), Box<dyn Error>> {
    let bytes = match std::env::args().nth(1) {
        Some(path) => std::fs::read(&path).map_err(|error| format!("{path}: {error}"))?,
        None => sample().encode_to_vec(),
    };
    let info = PluginInfo::decode(bytes.as_slice())
        .map_err(|error| format!("not a PluginInfo: {error}"))?;
    println!("{} {}", info.r#type, info.name);
    println!("socket of its service: {}", info.endpoint);
    println!("versions: {}", info.supported_versions.join(", "));
    Ok(())
}

fn sample() -> PluginInfo {
    PluginInfo {
        r#type: "DRAPlugin".to_owned(),
        name: "gpu.example.com".to_owned(),
        endpoint: "/var/lib/kubelet/plugins/gpu.example.com/dra.sock".to_owned(),
        supported_versions: vec!["v1.DRAPlugin".to_owned()],
    }
}
