//! Simulates one hour of a node with a crashing container and an agent kill.
//!
//! `cargo run -p windlass-testing --example simulate_an_hour`

use std::time::Duration;

use windlass_testing::fake_runtime::Behavior;
use windlass_testing::{PodBuilder, simulate};

const MINUTE: Duration = Duration::from_secs(60);

fn main() {
    let seed = 1;
    let log = simulate(seed, async |sim| {
        sim.runtime.add_image("busybox:1");
        let dies = Behavior::exits(Duration::from_secs(1), 1);
        sim.runtime.set_behavior("crash", dies);
        let pod = PodBuilder::new("web")
            .container("serve", "busybox:1")
            .container("crash", "busybox:1")
            .build();
        sim.desire([pod]).await;
        sim.until("web runs", MINUTE, |sim| sim.phase("web") == "Running")
            .await;
        sim.pass(20 * MINUTE).await;
        sim.kill_agent().await;
        sim.pass(5 * MINUTE).await;
        sim.start_agent().await;
        sim.pass(35 * MINUTE).await;

        let uid = "web-uid".into();
        for container in ["serve", "crash"] {
            let starts = sim.runtime.starts(&uid, container);
            sim.note(format!("{container} was started {starts} times"));
        }
        sim.note(format!("blocker: {}", sim.blocker("web")));
        sim.runtime.assert_invariants();
        sim.log()
    });
    for line in log {
        println!("{line}");
    }
}
