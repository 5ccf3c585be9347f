//! Runs the registry in a temporary directory with one plugin, which is rejected once, registers
//! and deregisters.
//!
//! `cargo run -p windlass-plugins --example register_a_plugin`
//!
//! Runs without a container runtime.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use windlass_metrics::Metrics;
use windlass_plugin_proto::pluginregistration_v1 as v1;
use windlass_plugin_proto::pluginregistration_v1::registration_server::{
    Registration, RegistrationServer,
};
use windlass_plugins::{Plugin, PluginHandler, PluginRegistry, run_plugin_registry};

/// Handler of lamp plugins.
#[derive(Debug)]
struct Lamps {
    refused_once: AtomicBool,
    left: mpsc::UnboundedSender<()>,
}

#[async_trait]
impl PluginHandler for Lamps {
    fn validate(&self, plugin: &Plugin) -> Result<(), String> {
        let known = plugin.versions.iter().any(|version| version == "v1");
        known
            .then_some(())
            .ok_or_else(|| "only v1 is spoken here".to_owned())
    }

    async fn register(&self, plugin: &Plugin) -> Result<(), String> {
        if !self.refused_once.swap(true, Ordering::Relaxed) {
            return Err("no socket is free, come again".to_owned());
        }
        println!("node:   {} is registered", plugin.name);
        Ok(())
    }

    fn deregister(&self, plugin: &Plugin) {
        println!("node:   {} is not registered", plugin.name);
        // the receiver is dropped at the end of the example
        let _ = self.left.send(());
    }
}

/// The plugin's side.
struct Lamp(mpsc::UnboundedSender<bool>);

#[tonic::async_trait]
impl Registration for Lamp {
    async fn get_info(
        &self,
        _: Request<v1::InfoRequest>,
    ) -> Result<Response<v1::PluginInfo>, Status> {
        Ok(Response::new(v1::PluginInfo {
            r#type: "LampPlugin".to_owned(),
            name: "lamp.example.com".to_owned(),
            endpoint: String::new(),
            supported_versions: vec!["v1".to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<v1::RegistrationStatus>,
    ) -> Result<Response<v1::RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        println!(
            "plugin: registered={} {}",
            status.plugin_registered, status.error
        );
        let _ = self.0.send(status.plugin_registered);
        Ok(Response::new(v1::RegistrationStatusResponse {}))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let (left, mut gone) = mpsc::unbounded_channel();
    let handler: Arc<dyn PluginHandler> = Arc::new(Lamps {
        refused_once: AtomicBool::new(false),
        left,
    });
    tokio::spawn(run_plugin_registry(PluginRegistry {
        directory: directory.path().to_owned(),
        handlers: BTreeMap::from([("LampPlugin".to_owned(), handler)]),
        metrics: Metrics::new()?,
    }));

    let socket = directory.path().join("lamp-reg.sock");
    let listener = UnixListenerStream::new(UnixListener::bind(&socket)?);
    let (reports, mut received) = mpsc::unbounded_channel();
    let lamp = Server::builder().add_service(RegistrationServer::new(Lamp(reports)));
    tokio::spawn(lamp.serve_with_incoming(listener));
    while !received.recv().await.ok_or("the plugin has ended")? {
        let _ = gone.recv().await;
    }
    std::fs::remove_file(&socket)?;
    gone.recv().await.ok_or("the registry has ended")?;
    Ok(())
}
