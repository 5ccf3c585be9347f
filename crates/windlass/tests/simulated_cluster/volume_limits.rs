//! Pods that exceed an emptyDir limit.

use serde_json::json;
use windlass_testing::fake_runtime::Behavior;
use windlass_testing::{NodeSim, PodBuilder};
use windlass_types::{PodUid, Reason};

use crate::fixture::*;
use crate::{MINUTE, SECOND};

const MEBIBYTE: u64 = 1 << 20;
const WORDS: &str = "Usage of EmptyDir volume \"data\" exceeds the limit \"1Mi\". ";

/// A pod with a limit of 1 MiB for `data`.
fn limited(builder: PodBuilder) -> PodBuilder {
    builder.with(|pod| {
        let volumes = json!([{ "name": "data", "emptyDir": { "sizeLimit": "1Mi" } }]);
        let spec = pod.spec.get_or_insert_default();
        spec.volumes = serde_json::from_value(volumes).expect("volumes");
    })
}

fn is_evicted(sim: &NodeSim, name: &str) -> bool {
    let status = get(sim, name).and_then(|pod| pod.status);
    let status = status.unwrap_or_default();
    let told = [&status.phase, &status.reason, &status.message].map(Option::as_deref);
    told == [Some("Failed"), Some("Evicted"), Some(WORDS)]
}

/// Events with this reason, by count and message.
fn evictions(sim: &NodeSim, name: &str) -> Vec<(u64, String)> {
    let view = sim.view(name).expect("an entry");
    let events = view.events.iter().filter(|e| e.reason == Reason::Evicted);
    events
        .map(|e| (u64::from(e.count), e.message.clone()))
        .collect()
}

async fn running(sim: &NodeSim, name: &str) -> PodUid {
    let uid = create(sim, limited(pod(name).grace(600)));
    sim.until("it runs", 10 * SECOND, |sim| ready(sim, name))
        .await;
    uid
}

#[test]
fn pod_exceeding_empty_dir_limit_is_evicted() {
    on_a_ready_node(51, async |sim| {
        // evicted with a grace period of a second
        sim.runtime.set_behavior("app", Behavior::stubborn());
        let hog = running(sim, "hog").await;
        let modest = running(sim, "modest").await;
        sim.desire([limited(static_pod("static")).build()]).await;
        sim.files.fill_volume(&modest, "data", MEBIBYTE);
        sim.files
            .fill_volume(&"static-uid".into(), "data", 9 * MEBIBYTE);
        sim.pass(MINUTE).await;
        assert!(runs(sim, &hog));
        sim.files.fill_volume(&hog, "data", MEBIBYTE + 1);
        sim.until("it is evicted", 15 * SECOND, |sim| is_evicted(sim, "hog"))
            .await;
        assert!(!runs(sim, &hog));
        assert_eq!(evictions(sim, "hog"), [(1, WORDS.to_owned())]);
        sim.pass(5 * MINUTE).await;
        assert!(is_evicted(sim, "hog") && evictions(sim, "hog").len() == 1);
        assert_eq!(sim.runtime.starts(&hog, "app"), 1);
        // one at its limit, and one of those that are never evicted
        assert!(runs(sim, &modest) && runs(sim, &"static-uid".into()));
    });
}

#[test]
fn restart_keeps_enforcing_volume_limits() {
    on_a_ready_node(52, async |sim| {
        let hog = running(sim, "hog").await;
        sim.pass(MINUTE).await;
        sim.kill_agent().await;
        sim.files.fill_volume(&hog, "data", 2 * MEBIBYTE);
        sim.pass(MINUTE).await;
        assert!(runs(sim, &hog));
        sim.start_agent().await;
        sim.until("it is evicted", 25 * SECOND, |sim| is_evicted(sim, "hog"))
            .await;
        assert_eq!(sim.runtime.starts(&hog, "app"), 1);
    });
}

#[test]
fn restart_keeps_measuring_volumes() {
    on_a_ready_node(53, async |sim| {
        let with_volume = pod("web").with(|pod| {
            let volumes = json!([{ "name": "data", "emptyDir": {} }]);
            let spec = pod.spec.get_or_insert_default();
            spec.volumes = serde_json::from_value(volumes).expect("volumes");
        });
        let uid = create(sim, with_volume);
        sim.until("it runs", 10 * SECOND, |sim| ready(sim, "web"))
            .await;
        sim.files.fill_volume(&uid, "data", MEBIBYTE);
        sim.kill_agent().await;
        sim.start_agent().await;
        sim.pass(2 * MINUTE).await;
        let usages = &sim.agent().expect("an agent").volume_usages;
        let measured = usages.stats(&uid, SECOND).await;
        let names: Vec<&str> = measured.iter().map(|m| m.volume.as_str()).collect();
        assert_eq!(names, ["data"]);
        assert_eq!(sim.runtime.starts(&uid, "app"), 1);
    });
}
