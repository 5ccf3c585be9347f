//! Follows the pods of a container runtime: starts, exits and removals.
//!
//! `cargo run -p windlass-pleg --example watch_pod_events -- /run/containerd/containerd.sock
//! [seconds]` ends after the given seconds, or at Ctrl-C. It does not change anything in the
//! runtime.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio_util::sync::CancellationToken;
use windlass_actors::{OomKillCache, PlegHealth, RuntimeName, StatusCache};
use windlass_cri::{CriClient, CriOptions, HungCalls, RuntimeService};
use windlass_mailboxes::{ActorKind, SystemClock, mailbox, run_actors, slots, start_actor};
use windlass_metrics::Metrics;
use windlass_pleg::{Pleg, PlegDeps};
use windlass_types::ObservedPod;

fn main() -> Result<(), Box<dyn Error>> {
    let usage = "usage: watch_pod_events <socket of the container runtime> [seconds]";
    let mut arguments = std::env::args().skip(1);
    let socket = arguments.next().ok_or(usage)?;
    let seconds = arguments.next().map_or(Ok(u64::MAX), |text| text.parse());
    let seconds = seconds.map_err(|_| usage)?;
    let runtime = Arc::new(tokio::runtime::Runtime::new()?);
    run_actors(&runtime, async {
        tokio::select! {
            biased;
            watched = watch(&socket) => watched,
            () = tokio::time::sleep(Duration::from_secs(seconds)) => Ok(()),
            stopped = tokio::signal::ctrl_c() => Ok(stopped?),
        }
    })
}

async fn watch(socket: &str) -> Result<(), Box<dyn Error>> {
    let metrics = Metrics::new()?;
    let runtime = CriClient::connect(socket, CriOptions::new(metrics.runtime_calls.clone()))?;
    // the PLEG would retry without end; fail early for a mistyped path
    let version = runtime.version().await;
    let version = version.map_err(|error| error.to_string())?;
    println!("watching {} {}", version.name, version.version);

    let (_sender, mailbox) = mailbox(windlass_pleg::PLEG, &metrics.mailboxes);
    let (changes, mut changed) = slots(ActorKind::new("SyncLoop", 50), &metrics.mailboxes);
    let cache = StatusCache::new();
    let clock = Arc::new(SystemClock);
    let deps = PlegDeps {
        runtime: Arc::new(runtime),
        clock: clock.clone(),
        metrics: metrics.pleg,
        mailboxes: metrics.mailboxes,
        cache: cache.clone(),
        changes,
        cancel: CancellationToken::new(),
        health: PlegHealth::default(),
        runtime_name: RuntimeName::default(),
        hung: HungCalls::new(clock),
        oom_kills: OomKillCache::default(),
    };
    start_actor(Pleg::new(deps, mailbox));
    while let Some((uid, change)) = changed.next().await {
        for event in change.events {
            println!("{event}");
        }
        match cache.get(&uid) {
            Some(pod) => println!("  now: {}", line(&pod)),
            None => println!("  now: {uid} is not in the runtime"),
        }
    }
    Ok(())
}

fn line(pod: &ObservedPod) -> String {
    let containers = pod.containers.iter();
    let containers: Vec<_> = containers
        .map(|it| format!("{}#{}={:?}", it.name, it.restart_count, it.state))
        .collect();
    let ips: Vec<_> = pod.ips.iter().map(ToString::to_string).collect();
    format!(
        "{}/{} {} {}",
        pod.namespace,
        pod.name,
        ips.join(","),
        containers.join(" ")
    )
}
