//! Prints the node info and capabilities of a CSI driver, as a node reads them at registration.
//!
//! `cargo run -p windlass-csi --example ask_driver -- /var/lib/kubelet/plugins/<driver>/csi.sock`
//!
//! Without an argument it starts the driver of `windlass-testbed`, which rejects one call.
//!
//! Runs without a container runtime.

use std::error::Error;
use std::path::{Path, PathBuf};

use tonic::Code;
use windlass_csi::{CsiClient, CsiNode};
use windlass_metrics::Metrics;
use windlass_testbed::csi_driver::{CsiDriver, DriverOptions, Fault, FaultKind, Method};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    if let Some(socket) = std::env::args_os().nth(1) {
        return ask(&PathBuf::from(socket)).await;
    }
    let directory = tempfile::tempdir()?;
    let mut options = DriverOptions::new(directory.path().join("kubelet"), "disk.example.com");
    options.max_volumes = 24;
    options.topology = [("example.com/zone".to_owned(), "a".to_owned())].into();
    let socket = options.socket();
    let driver = CsiDriver::start(options)?;
    ask(&socket).await?;

    let busy = FaultKind::Reject(Code::Aborted, "the driver is being upgraded".to_owned());
    driver.fault(Method::NodeGetInfo, Fault::before(busy));
    match ask(&socket).await {
        Err(error) => println!("then: {error}"),
        Ok(()) => return Err("the call must fail".into()),
    }
    Ok(())
}

async fn ask(socket: &Path) -> Result<(), Box<dyn Error>> {
    // the name is a metric label
    let client = CsiClient::new("disk.example.com", socket, Metrics::new()?);
    let info = client.info().await?;
    println!("node       {}", info.node_id);
    match info.max_volumes {
        Some(max) => println!("volumes    at most {max}"),
        None => println!("volumes    no limit"),
    }
    for (key, value) in &info.topology {
        println!("topology   {key}={value}");
    }
    for capability in client.capabilities().await? {
        println!("capability {capability:?}");
    }
    Ok(())
}
