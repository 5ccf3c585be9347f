//! Shows which entries of a docker config file are for an image.
//!
//! `cargo run -p windlass-credentials --example match_credentials -- quay.io/team/app:1`
//!
//! Runs without a container runtime.

use windlass_credentials::credentials::{DockerConfigFormat, Keyring};

const CONFIG: &[u8] = br#"{"auths": {
    "quay.io": {"username": "everyone", "password": "x"},
    "quay.io/team": {"username": "team", "password": "y"},
    "*.example.com": {"username": "example", "password": "z"},
    "broken": {"auth": "not base64"}
}}"#;

fn main() {
    let image = std::env::args().nth(1);
    let image = image.as_deref().unwrap_or("quay.io/team/app:1");
    let read = Keyring::from_file(DockerConfigFormat::ConfigJson, CONFIG, "config.json");
    for error in &read.errors {
        println!("error: {error}");
    }
    for credentials in read.keyring.lookup(image) {
        println!("{image}: user {}", credentials.username);
    }
}
