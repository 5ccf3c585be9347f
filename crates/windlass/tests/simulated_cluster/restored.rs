//! Agent restart with a checkpoint during an API server outage.

use std::sync::Arc;

use windlass_testing::fake_runtime::Behavior;

use crate::fixture::*;
use crate::{MINUTE, SECOND};

#[test]
fn restored_pods_start_nothing_before_confirmation() {
    on_a_ready_node(1, async |sim| {
        sim.runtime
            .set_behavior("default/crash/app", Behavior::exits(5 * SECOND, 1));
        let quiet = create(sim, pod("quiet"));
        let crash = create(sim, pod("crash"));
        for name in ["quiet", "crash"] {
            sim.until("both run", 10 * SECOND, |sim| sim.phase(name) == "Running")
                .await;
        }
        sim.kill_agent().await;
        // two more were admitted, and nothing of them is left in the runtime; one of them is not
        // wanted any more either
        let lost = create(sim, pod("lost"));
        create(sim, pod("gone"));
        let admitted = ["quiet", "crash", "lost", "gone"];
        sim.checkpoint = admitted
            .iter()
            .filter_map(|name| get(sim, name))
            .map(Arc::new)
            .collect();
        assert_eq!(sim.checkpoint.len(), 4);
        delete(sim, "gone", Some(0));
        let outage = sim.api.faults().outage();
        let crashes = sim.runtime.starts(&crash, "app");

        sim.start_agent().await;
        sim.pass(2 * MINUTE).await;
        assert_eq!(sim.runtime.starts(&quiet, "app"), 1);
        assert_eq!(sim.phase("quiet"), "Running");
        // a restart needs the service variables, which this run has not read yet
        assert_eq!(sim.runtime.starts(&crash, "app"), crashes);
        assert_eq!(sim.blocker("crash"), "CreateContainerConfigError");
        for name in ["lost", "gone"] {
            assert_eq!(sim.blocker(name), "WaitingForApiServer");
        }
        assert_eq!(sim.runtime.starts(&lost, "app"), 0);

        sim.api.faults().lift(outage);
        sim.until("the confirmed one starts", MINUTE, |sim| ready(sim, "lost"))
            .await;
        sim.until("the crash-looper restarts", 5 * MINUTE, |sim| {
            sim.runtime.starts(&crash, "app") >= crashes + 2
        })
        .await;
        sim.until("the other is forgotten", MINUTE, |sim| {
            sim.view("gone").is_none()
        })
        .await;
        assert_eq!(sim.runtime.starts(&quiet, "app"), 1);
        // the checkpoint annotation is not visible outside
        let pod = get(sim, "lost").expect("there");
        let annotations = pod.metadata.annotations.unwrap_or_default();
        assert!(!annotations.contains_key(windlass_types::names::ANN_RESTORED));
    });
}
