//! Pulls of images: order, rate, errors, credentials.

use serde_json::json;
use windlass_cri::CriCode;
use windlass_testing::fake_runtime::{Call, Fault, Operation, Pull};
use windlass_testing::{NodeSim, PodBuilder};
use windlass_types::corev1::{Event, Secret};

use crate::fixture::*;
use crate::{MINUTE, SECOND};

/// A pod with one container of an image.
fn pod_with(name: &str, image: &str) -> PodBuilder {
    PodBuilder::new(name)
        .bound_to(NODE)
        .container("app", image)
        .grace(5)
}

fn pulls(sim: &NodeSim) -> Vec<Call> {
    sim.runtime.calls_of(Operation::PullImage, "")
}

fn seconds_between(calls: &[Call]) -> f64 {
    let (first, last) = (&calls[0], &calls[calls.len() - 1]);
    last.at.duration_since(first.at).as_secs_f64()
}

/// Reason and message of a container that waits.
fn waiting(sim: &NodeSim, name: &str) -> (String, String) {
    let status = get(sim, name).and_then(|pod| pod.status?.container_statuses);
    let state = status.and_then(|all| all.into_iter().next()?.state?.waiting);
    let waiting = state.unwrap_or_default();
    let [reason, message] = [waiting.reason, waiting.message];
    (reason.unwrap_or_default(), message.unwrap_or_default())
}

#[test]
fn pulls_run_one_at_a_time_and_equal_ones_are_shared() {
    on_a_ready_node(201, async |sim| {
        sim.runtime.set_latency(Operation::PullImage, 10 * SECOND);
        for (name, image) in [("a", "one:1"), ("b", "two:1"), ("c", "two:1")] {
            create(sim, pod_with(name, image));
        }
        sim.until("they run", MINUTE, |sim| {
            ["a", "b", "c"].iter().all(|name| ready(sim, name))
        })
        .await;
        let pulls = pulls(sim);
        let mut images: Vec<&str> = pulls.iter().map(|call| call.subject.as_str()).collect();
        images.sort_unstable();
        assert_eq!(images, ["one:1", "two:1"]);
        assert!(seconds_between(&pulls) >= 10.0, "{pulls:?}");
    });
}

#[test]
fn pulls_over_the_rate_limit_are_delayed() {
    on_a_ready_node(202, async |sim| {
        let names: Vec<String> = (0..20).map(|number| format!("p{number}")).collect();
        for name in &names {
            create(sim, pod_with(name, &format!("{name}:1")));
        }
        sim.until("they run", MINUTE, |sim| {
            names.iter().all(|name| ready(sim, name))
        })
        .await;
        // ten at once, then five a second
        let seconds = seconds_between(&pulls(sim));
        assert!((1.9..4.0).contains(&seconds), "{seconds}");
    });
}

#[test]
fn pull_errors_have_the_reasons_of_upstream() {
    on_a_ready_node(203, async |sim| {
        let errors = [
            ("RegistryUnavailable", "RegistryUnavailable: dial tcp"),
            (
                "SignatureValidationFailed",
                "SignatureValidationFailed: no key",
            ),
            ("ErrImagePull", "denied"),
        ];
        for (reason, error) in errors {
            let name = reason.to_lowercase();
            let image = format!("{name}:1");
            let pull = Pull {
                error: Some((CriCode::Other, error.to_owned())),
                ..Pull::default()
            };
            sim.runtime.set_pull(&image, pull);
            create(sim, pod_with(&name, &image));
            let expected = format!("Back-off pulling image {image:?}: {reason}: ");
            sim.until("it backs off", 10 * SECOND, |sim| {
                let (reason, message) = waiting(sim, &name);
                reason == "ImagePullBackOff" && message.starts_with(&expected)
            })
            .await;
        }
        create(sim, pod_with("invalid", "Web:1"));
        let fault = Fault::fail(Operation::ImageStatus, usize::MAX, CriCode::Other, "broken");
        sim.runtime.inject(fault.on("busybox:1"));
        create(sim, pod_with("uninspected", "busybox:1"));
        sim.until("both wait", 10 * SECOND, |sim| {
            waiting(sim, "invalid").0 == "InvalidImageName"
                && waiting(sim, "uninspected").0 == "ImageInspectError"
        })
        .await;
    });
}

#[test]
fn private_image_is_pulled_with_a_secret_of_its_pod() {
    on_a_ready_node(204, async |sim| {
        let image = "registry.local/private:1";
        let pull = Pull {
            username: Some("robot".to_owned()),
            ..Pull::default()
        };
        sim.runtime.set_pull(image, pull);
        // {"auths": {"registry.local": {"auth": "robot:secret"}}}
        let config = "eyJhdXRocyI6eyJyZWdpc3RyeS5sb2NhbCI6eyJhdXRoIjoiY205aWIzUTZj\
                      MlZqY21WMCJ9fX0=";
        let secret = json!({
            "metadata": {"name": "login", "namespace": "default"},
            "type": "kubernetes.io/dockerconfigjson",
            "data": {".dockerconfigjson": config},
        });
        let secret: Secret = serde_json::from_value(secret).expect("a secret");
        sim.api.create(&secret);
        let with = |name: &str, secrets: &[&str]| {
            let names = secrets.iter().map(|name| json!({ "name": name }));
            let names = serde_json::Value::from_iter(names);
            pod_with(name, image).with(|pod| {
                let spec = pod.spec.get_or_insert_default();
                spec.image_pull_secrets = serde_json::from_value(names).ok();
            })
        };
        create(sim, with("without", &[]));
        create(sim, with("missing", &["unknown"]));
        sim.until("both fail", 10 * SECOND, |sim| {
            let backs_off = |name| waiting(sim, name).0 == "ImagePullBackOff";
            backs_off("without") && backs_off("missing")
        })
        .await;
        create(sim, with("named", &["unknown", "login"]));
        sim.until("it runs", 10 * SECOND, |sim| ready(sim, "named"))
            .await;
        sim.pass(2 * SECOND).await;
        let events = sim.api.list::<Event>().into_iter();
        let mut missing = events
            .filter(|it| it.reason.as_deref() == Some("FailedToRetrieveImagePullSecret"))
            .filter_map(|it| it.involved_object.name)
            .collect::<Vec<_>>();
        missing.sort_unstable();
        missing.dedup();
        assert_eq!(missing, ["missing", "named"]);
    });
}
