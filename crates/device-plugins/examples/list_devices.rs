//! Registers a plugin in a temporary directory, prints its events and allocates a device.
//!
//! `cargo run -p windlass-device-plugins --example list_devices`
//!
//! Runs without a container runtime.

use std::collections::BTreeSet;
use std::error::Error;

use tokio_util::sync::CancellationToken;
use windlass_device_plugins::{DevicePlugins, PluginEvent, open_registration, serve_registration};
use windlass_metrics::Metrics;
use windlass_testbed::device_plugin::{DevicePlugin, DevicePluginSettings, TestDevice};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let (plugins, mut events) = DevicePlugins::new(directory.path(), Metrics::new()?);
    let listener = open_registration(directory.path())?;
    let shutdown = CancellationToken::new();
    tokio::spawn(serve_registration(listener, plugins, shutdown.clone()));

    let resource = "lamps.example/bulb";
    let settings = DevicePluginSettings::new(directory.path(), resource, &["red", "green"]);
    let lamps = DevicePlugin::start(settings)?;
    lamps.register().await?;
    while let Some(event) = events.recv().await {
        match event {
            PluginEvent::Registered { plugin, .. } => {
                println!("{} has a plugin", plugin.resource());
                let red = BTreeSet::from(["red".to_owned()]);
                let response = plugin.allocate(&red).await?;
                println!("a container with red gets {:?}", response.envs);
            }
            PluginEvent::Listed { devices, .. } => {
                let devices_left = devices.len();
                println!(
                    "devices: {}",
                    devices.into_keys().collect::<Vec<_>>().join(" ")
                );
                match devices_left {
                    2 => lamps.list(vec![TestDevice::healthy("red", &[])]),
                    _ => lamps.die(),
                }
            }
            PluginEvent::Gone { resource, .. } => {
                println!("the plugin of {resource} ended");
                break;
            }
        }
    }
    shutdown.cancel();
    Ok(())
}
