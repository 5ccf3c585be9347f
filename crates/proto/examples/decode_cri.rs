//! Takes a message of the Container Runtime Interface apart.
//!
//! `cargo run -p windlass-proto --example decode_cri -- request.bin` decodes a
//! `CreateContainerRequest` from a file, as a proxy in front of a runtime's socket may have
//! written it; without an argument it encodes a sample first. Values of variables are omitted.
//!
//! Runs without a container runtime.

use std::error::Error;

use prost::Message;
use windlass_proto::cri_v1::{
    ContainerConfig, ContainerMetadata, CreateContainerRequest, ImageSpec, KeyValue,
};

fn main() -> Result<(), Box<dyn Error>> {
    let bytes = match std::env::args().nth(1) {
        Some(path) => std::fs::read(&path).map_err(|error| format!("{path}: {error}"))?,
        None => own().encode_to_vec(),
    };
    let request = CreateContainerRequest::decode(bytes.as_slice())
        .map_err(|error| format!("not a CreateContainerRequest: {error}"))?;
    println!(
        "{} bytes, for sandbox {}",
        bytes.len(),
        request.pod_sandbox_id
    );
    println!("{:#?}", request.config.ok_or("it has no configuration")?);
    Ok(())
}

fn own() -> CreateContainerRequest {
    let password = KeyValue {
        key: "PASSWORD".to_owned(),
        value: "hunter2".into(),
    };
    let image = ImageSpec {
        image: "nginx:1.29".to_owned(),
        ..ImageSpec::default()
    };
    let config = ContainerConfig {
        metadata: Some(ContainerMetadata {
            name: "web".to_owned(),
            attempt: 0,
        }),
        image: Some(image),
        envs: vec![password],
        log_path: "web/0.log".to_owned(),
        ..ContainerConfig::default()
    };
    CreateContainerRequest {
        pod_sandbox_id: "4c7e".to_owned(),
        config: Some(config),
        sandbox_config: None,
    }
}
