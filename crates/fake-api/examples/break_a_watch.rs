//! Watches pods of a server that becomes unreachable and returns with a compacted log.
//! Time is virtual: the client's back-off takes no time.
//!
//! `cargo run -p windlass-fake-api --example break_a_watch`
//!
//! Runs without a container runtime.

use std::error::Error;
use std::pin::pin;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use tokio::time::Instant;
use windlass_client::{ReflectEvent, Selector, reflect};
use windlass_fake_api::FakeApiServer;

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    let began = Instant::now();
    let server = FakeApiServer::new();
    server.create(&pod("first")?);

    let mut pods = pin!(reflect::<Pod>(server.clients().watch, Selector::default()));
    let mut step = 0;
    while let Some(event) = pods.next().await {
        let at = began.elapsed().as_secs_f64();
        println!("{at:6.1} s  {}", line(&event));
        step += 1;
        match step {
            1 => drop(server.create(&pod("second")?)),
            2 => {
                server.faults().outage();
                // these two are delivered after the outage
                server.delete::<Pod>(Some("default"), "first", Some(0));
                server.create(&pod("third")?);
            }
            5 => {
                server.faults().expire_versions();
                server.faults().clear();
            }
            20 => return Err("no set was delivered".into()),
            _ if step > 5 && matches!(event, ReflectEvent::Synced(_)) => break,
            _ => {}
        }
    }
    println!("the server saw {} requests", server.requests().len());
    Ok(())
}

fn line(event: &ReflectEvent<Pod>) -> String {
    let name = |pod: &Pod| pod.metadata.name.clone().unwrap_or_default();
    match event {
        ReflectEvent::Synced(pods) => {
            let names: Vec<_> = pods.iter().map(name).collect();
            format!("there are {}", names.join(", "))
        }
        ReflectEvent::Applied(pod) => format!("changed {}", name(pod)),
        ReflectEvent::Deleted(pod) => format!("gone {}", name(pod)),
        ReflectEvent::Failed { error, retry_in } => {
            format!("{error}; again in {:.1} s", retry_in.as_secs_f64())
        }
        ReflectEvent::Resumed => "the watch works again".to_owned(),
    }
}

fn pod(name: &str) -> Result<Pod, serde_json::Error> {
    serde_json::from_value(json!({
        "metadata": {"namespace": "default", "name": name},
        "spec": {"containers": [{"name": "app", "image": "nginx"}]},
    }))
}
