//! Image garbage collection on a virtual clock.

#![allow(missing_docs, clippy::expect_used)]

use std::time::Duration;

use windlass_cri::CriCode;
use windlass_eviction_manager::NodeReclaimer;
use windlass_image_gc::ImageGcPolicy;
use windlass_testing::fake_runtime::{Behavior, Fault, Operation};
use windlass_testing::{NodeSim, PodBuilder, simulate, simulate_cluster};
use windlass_types::ContainerState;
use windlass_types::corev1::{Event, ImageVolumeSource, Volume, VolumeMount};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const MIB: u64 = 1 << 20;

/// A node with images, which have a disk of 100 MiB.
fn on_a_node<R>(
    seed: u64,
    policy: ImageGcPolicy,
    present: &[&str],
    scenario: impl AsyncFnOnce(&mut NodeSim) -> R,
) -> R {
    simulate_cluster(seed, async |sim| {
        sim.image_gc = policy;
        sim.runtime.set_image_disk(100 * MIB, 0);
        sim.runtime.add_image("busybox:1");
        for name in present {
            add(sim, name);
        }
        sim.start_agent().await;
        scenario(sim).await
    })
}

/// Adds an image of 10 MiB and returns its ID.
fn add(sim: &NodeSim, name: &str) -> String {
    let id = sim.runtime.add_image(name);
    sim.runtime
        .add_image_with(name, |info| info.size = 10 * MIB);
    id
}

fn images(sim: &NodeSim) -> String {
    let tags = sim.runtime.image_tags();
    let short = tags
        .iter()
        .map(|tag| tag.trim_start_matches("docker.io/library/"));
    short.collect::<Vec<_>>().join(" ")
}

fn pod(name: &str, image: &str) -> PodBuilder {
    PodBuilder::new(name).container("app", image).grace(5)
}

fn runs(sim: &NodeSim, name: &str) -> bool {
    let uid = format!("{name}-uid").into();
    sim.runtime.running(&uid, "app").is_some()
}

fn events(sim: &NodeSim, reason: &str) -> Vec<String> {
    let events = sim.api.list::<Event>().into_iter();
    let same = events.filter(|event| event.reason.as_deref() == Some(reason));
    same.filter_map(|event| event.message).collect()
}

fn collected(sim: &NodeSim, reason: &str) -> bool {
    let text = sim.metrics.render().expect("text");
    text.contains(&format!(
        "kubelet_image_garbage_collected_total{{reason=\"{reason}\"}}"
    ))
}

#[test]
fn full_disk_removes_least_recently_used_images_only() {
    on_a_node(301, ImageGcPolicy::default(), &["c:1"], async |sim| {
        sim.desire([pod("web", "busybox:1").build()]).await;
        sim.pass(6 * MINUTE).await;
        for name in ["a:1", "b:1"] {
            add(sim, name);
            sim.pass(6 * MINUTE).await;
        }
        // 31 MiB of images: 86 % used, 6 MiB over the low threshold
        sim.runtime.set_image_disk(100 * MIB, 55 * MIB);
        sim.until("one image goes", 6 * MINUTE, |sim| {
            images(sim) == "a:1 b:1 busybox:1"
        })
        .await;
        sim.pass(30 * MINUTE).await;
        assert_eq!(
            images(sim),
            "a:1 b:1 busybox:1",
            "76 % are below the threshold"
        );
        assert!(collected(sim, "space") && !collected(sim, "age"));
        assert_eq!(events(sim, "FreeDiskSpaceFailed").len(), 0);
    });
}

#[test]
fn images_in_use_stay_and_full_disk_is_reported() {
    on_a_node(
        302,
        ImageGcPolicy::default(),
        &["exited:1", "mounted:1", "runs:1", "unused:1"],
        async |sim| {
            sim.runtime
                .add_image_with("pinned:1", |info| info.pinned = true);
            sim.runtime.set_sandbox_image("pause:1");
            sim.runtime
                .set_behavior("exited:1", Behavior::exits(SECOND, 0));
            let mounts = pod("mounts", "busybox:1").with(|pod| {
                let spec = pod.spec.get_or_insert_default();
                spec.volumes = Some(vec![Volume {
                    name: "content".into(),
                    image: Some(ImageVolumeSource {
                        reference: Some("mounted:1".into()),
                        pull_policy: Some("IfNotPresent".into()),
                    }),
                    ..Volume::default()
                }]);
                spec.containers[0].volume_mounts = Some(vec![VolumeMount {
                    name: "content".into(),
                    mount_path: "/content".into(),
                    ..VolumeMount::default()
                }]);
            });
            let exited = pod("exited", "exited:1").restart_policy("Never");
            sim.desire([
                pod("runs", "runs:1").build(),
                exited.build(),
                mounts.build(),
            ])
            .await;
            sim.until("all run", MINUTE, |sim| {
                runs(sim, "runs") && runs(sim, "mounts") && sim.phase("exited") == "Succeeded"
            })
            .await;
            sim.runtime.set_image_disk(100 * MIB, 99 * MIB);
            let kept = "busybox:1 exited:1 mounted:1 pause:1 pinned:1 runs:1";
            sim.until("the unused image goes", 6 * MINUTE, |sim| {
                images(sim) == kept
            })
            .await;
            sim.pass(10 * SECOND).await;
            let expected = "Insufficient free disk space on the node's image filesystem (100% of \
                        100.0 MiB used). Failed to free sufficient space by deleting unused \
                        images (freed 10485760 bytes). Investigate disk usage, as it could be \
                        used by active images, logs, volumes, or other data.";
            assert_eq!(events(sim, "FreeDiskSpaceFailed"), [expected]);
            assert!(events(sim, "ImageGCFailed").is_empty(), "it failed once");
            sim.pass(6 * MINUTE).await;
            let again = expected.replace("10485760", "0");
            assert_eq!(events(sim, "ImageGCFailed"), [again]);
            assert_eq!(images(sim), kept);
        },
    );
}

#[test]
fn image_that_cannot_be_removed_blocks_no_other() {
    on_a_node(303, ImageGcPolicy::default(), &["c:1"], async |sim| {
        let fails = add(sim, "a:1");
        let hangs = add(sim, "b:1");
        sim.runtime.set_image_disk(100 * MIB, 90 * MIB);
        let fault = Fault::fail(Operation::RemoveImage, 1, CriCode::Other, "in use by x");
        sim.runtime.inject(fault.on(&fails));
        sim.runtime
            .inject(Fault::hang(Operation::RemoveImage).on(&hangs));
        let is_listed = |sim: &NodeSim| {
            let calls = sim.agent().expect("runs").hung_calls.all();
            calls.iter().any(|call| call.operation == "RemoveImage")
        };
        sim.until("the hung removal is named", 7 * MINUTE, is_listed)
            .await;
        sim.until("the third image goes", 7 * MINUTE, |sim| {
            images(sim) == "a:1 b:1 busybox:1" || images(sim) == "a:1 b:1"
        })
        .await;
        // the next pass removes the first one too
        sim.until("the first image goes", 7 * MINUTE, |sim| {
            !images(sim).contains("a:1")
        })
        .await;
        sim.until("the failures are reported", 7 * MINUTE, |sim| {
            events(sim, "ImageGCFailed").iter().any(|message| {
                message.contains("encountered errors in image deletion")
                    || message.contains("space with errors in image deletion: removal of")
            })
        })
        .await;
    });
}

#[test]
fn removal_of_an_image_with_many_files_is_not_named() {
    on_a_node(308, ImageGcPolicy::default(), &["a:1"], async |sim| {
        sim.runtime.set_latency(Operation::RemoveImage, 15 * SECOND);
        sim.runtime.set_image_disk(100 * MIB, 85 * MIB);
        sim.until("the image goes", 7 * MINUTE, |sim| {
            !images(sim).contains("a:1")
        })
        .await;
        let hung = &sim.metrics.node.hung_operations_total;
        let calls = hung.with_label_values(&["runtime_call"]).get();
        assert_eq!(calls.to_string(), "0");
    });
}

#[test]
fn images_younger_than_the_minimum_age_stay() {
    let policy = ImageGcPolicy {
        min_age: 7 * MINUTE,
        ..ImageGcPolicy::default()
    };
    on_a_node(304, policy, &["old:1"], async |sim| {
        sim.pass(4 * MINUTE).await;
        add(sim, "young:1");
        sim.runtime.set_image_disk(100 * MIB, 99 * MIB);
        sim.pass(5 * MINUTE).await;
        assert_eq!(
            images(sim),
            "busybox:1 old:1 young:1",
            "after 9 min, pass at 5"
        );
        sim.pass(2 * MINUTE).await;
        assert_eq!(images(sim), "young:1", "detected at 5 min, pass at 10");
        sim.pass(5 * MINUTE).await;
        assert_eq!(images(sim), "");
    });
}

#[test]
fn times_of_use_survive_an_agent_kill() {
    let folder = tempfile::tempdir().expect("a folder");
    for (damaged, expected) in [(false, "busybox:1"), (true, "busybox:1 unused:1")] {
        let policy = ImageGcPolicy {
            max_age: HOUR,
            ..ImageGcPolicy::default()
        };
        simulate_cluster(305, async |sim| {
            sim.image_gc = policy;
            sim.state_dir = Some(folder.path().join(expected));
            sim.runtime.set_image_disk(100 * MIB, 0);
            sim.runtime.add_image("busybox:1");
            add(sim, "unused:1");
            sim.desire([pod("web", "busybox:1").build()]).await;
            sim.start_agent().await;
            sim.pass(41 * MINUTE).await;
            sim.kill_agent().await;
            if damaged {
                let file = folder.path().join(expected).join("image_uses");
                std::fs::write(file, "torn").expect("written");
            }
            sim.start_agent().await;
            sim.pass(10 * MINUTE).await;
            assert_eq!(images(sim), "busybox:1 unused:1", "it is 51 min old");
            sim.pass(16 * MINUTE).await;
            assert_eq!(images(sim), expected);
            sim.pass(HOUR).await;
            assert_eq!(images(sim), "busybox:1");
            assert!(collected(sim, "age"));
        });
    }
}

#[test]
fn agent_kill_between_removals_converges() {
    on_a_node(
        306,
        ImageGcPolicy::default(),
        &["a:1", "b:1", "c:1", "d:1"],
        async |sim| {
            sim.runtime.set_latency(Operation::RemoveImage, 5 * SECOND);
            sim.runtime.set_image_disk(100 * MIB, 85 * MIB);
            sim.until("an image goes", 6 * MINUTE, |sim| {
                images(sim).split(' ').count() == 4
            })
            .await;
            sim.kill_agent().await;
            sim.start_agent().await;
            // a removal that was in progress takes effect; the rest is up to the pass in five minutes
            sim.pass(2 * MINUTE).await;
            assert!(images(sim).split(' ').count() >= 3);
            sim.pass(9 * MINUTE).await;
            assert_eq!(images(sim), "", "other files alone reach the threshold");
        },
    );
}

#[test]
fn file_system_without_size_or_answer_is_reported() {
    on_a_node(307, ImageGcPolicy::default(), &[], async |sim| {
        sim.runtime.set_image_disk(0, 0);
        sim.pass(11 * MINUTE).await;
        let expected = "invalid capacity 0 on image filesystem";
        assert!(
            events(sim, "InvalidDiskCapacity")
                .iter()
                .all(|it| it == expected)
        );
        assert_eq!(events(sim, "ImageGCFailed"), [expected]);
        sim.runtime.set_image_disk(100 * MIB, 0);
        sim.runtime.inject(Fault::hang(Operation::ImageFsInfo));
        sim.pass(11 * MINUTE).await;
        let hung = "image file system info timed out".to_owned();
        assert!(events(sim, "ImageGCFailed").contains(&hung));
        add(sim, "a:1");
        sim.runtime.release(Operation::ImageFsInfo);
        sim.runtime.set_image_disk(100 * MIB, 99 * MIB);
        sim.until("the image goes", 15 * MINUTE, |sim| images(sim).is_empty())
            .await;
    });
}

#[test]
fn reclaim_removes_unused_images_and_dead_containers() {
    on_a_node(
        308,
        ImageGcPolicy::default(),
        &["unused:1", "done:1"],
        async |sim| {
            sim.runtime
                .set_behavior("done:1", Behavior::exits(SECOND, 0));
            let done = pod("done", "done:1").restart_policy("Never");
            sim.desire([pod("web", "busybox:1").build(), done.build()])
                .await;
            sim.pass(3 * MINUTE).await;
            assert_eq!(sim.phase("done"), "Succeeded");
            let reclaim = sim.agent().expect("running").reclaim.clone();
            reclaim.delete_unused_images().await.expect("removed");
            assert_eq!(
                images(sim),
                "busybox:1 done:1",
                "a dead container uses an image"
            );
            reclaim.delete_dead_containers().await.expect("removed");
            let uid = "done-uid".into();
            assert!(sim.runtime.containers(&uid).is_empty());
            reclaim.delete_unused_images().await.expect("removed");
            assert_eq!(images(sim), "busybox:1");
            assert!(runs(sim, "web"));
            sim.runtime.assert_invariants();
        },
    );
}

#[test]
fn failed_container_collection_is_node_event() {
    on_a_node(312, ImageGcPolicy::default(), &[], async |sim| {
        sim.pass(2 * MINUTE).await;
        assert!(events(sim, "ContainerGCFailed").is_empty());
        let fault = Fault::fail(
            Operation::ListContainers,
            usize::MAX,
            CriCode::Other,
            "broken",
        );
        sim.runtime.inject(fault);
        sim.pass(2 * MINUTE).await;
        let [message] = &events(sim, "ContainerGCFailed")[..] else {
            panic!("one event")
        };
        assert_eq!(message, "broken");
    });
}

#[test]
fn image_of_a_pod_start_in_progress_stays() {
    on_a_node(309, ImageGcPolicy::default(), &["web:1"], async |sim| {
        sim.pass(3 * MINUTE).await;
        sim.runtime
            .set_latency(Operation::CreateContainer, 20 * SECOND);
        sim.desire([pod("web", "web:1").build()]).await;
        sim.until("the image is found", MINUTE, |sim| {
            !sim.runtime.calls_of(Operation::ImageStatus, "").is_empty()
        })
        .await;
        sim.pass(SECOND).await;
        let reclaim = sim.agent().expect("running").reclaim.clone();
        reclaim.delete_unused_images().await.expect("removed");
        assert_eq!(
            images(sim),
            "web:1",
            "only the image that nothing needs went"
        );
        sim.until("it runs", MINUTE, |sim| runs(sim, "web")).await;
        let pulls = sim.runtime.calls_of(Operation::PullImage, "");
        assert!(pulls.is_empty(), "{pulls:?}");
    });
}

#[test]
fn one_list_of_images_is_read_per_pass() {
    simulate(310, async |sim| {
        sim.runtime.add_image("busybox:1");
        sim.desire([pod("web", "busybox:1").build()]).await;
        sim.pass(MINUTE).await;
        sim.runtime.clear_calls();
        sim.pass(HOUR).await;
        let lists = sim.runtime.calls_of(Operation::ListImages, "").len();
        assert_eq!(lists, 12);
        let uid = "web-uid".into();
        let containers = sim.runtime.containers(&uid);
        assert!(
            containers
                .iter()
                .any(|it| it.state == ContainerState::Running)
        );
    });
}
