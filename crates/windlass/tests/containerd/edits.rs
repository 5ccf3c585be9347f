//! What happens on disk happens to the pods: edits, removals, renames, vanishing directories.

use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use crate::fixture::{Fixture, SOON, bare, eventually, scaled, skipped};
use crate::manifest::{fill, shell, shell_with};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_pods_follow_their_manifests() {
    if skipped() {
        return;
    }
    let mut fixture = Fixture::start("i-edits").await;
    // a bystander that nothing here may touch
    fixture.apply("calm.yaml", &shell("calm", "HOLD"));
    let calm = fixture.ready("calm").await.containers;

    an_edit_replaces_the_pod(&mut fixture).await;
    an_edit_while_the_agent_is_away_replaces_the_pod(&mut fixture).await;
    a_removal_survives_the_agent(&mut fixture).await;
    sidecars_end_last(&mut fixture).await;
    a_removed_pod_may_finish(&mut fixture).await;
    a_rename_swaps_two_pods(&mut fixture).await;
    assert_eq!(
        fixture.ready("calm").await.containers,
        calm,
        "the bystander"
    );
    a_directory_vanishes_and_returns(&mut fixture).await;
    a_single_file_is_enough(&mut fixture).await;
    fixture.stop().await;
}

/// A container that writes down its life, and takes a moment to end.
fn diary(version: &str, volume: &str) -> String {
    let script = format!(
        "trap 'sleep 0.5; echo stop {version} >> /diary/text; exit' TERM; \
         echo start {version} >> /diary/text; \
         while true; do sleep 1000 & wait $!; done"
    );
    let text = shell_with("diary", "", &script);
    let mounts = ", volumeMounts: [{name: diary, mountPath: /diary}]}\n";
    let text = text.trim_end().trim_end_matches('}').to_owned() + mounts;
    format!("{text}  volumes: [{{name: diary, hostPath: {{path: {volume}}}}}]\n")
}

/// Waits until the file `text` in `dir` holds this.
async fn written(dir: &Path, expected: &str) {
    eventually("the diary", SOON, async || {
        let text = std::fs::read_to_string(dir.join("text")).unwrap_or_default();
        (text == expected).then_some(()).ok_or(text)
    })
    .await;
}

/// The container writes a moment before the runtime says that it runs.
async fn one_lives(fixture: &mut Fixture) {
    eventually("an instance lives", SOON, async || {
        let living = fixture.running("diary").await.len();
        assert!(living <= 1, "{living} instances live");
        (living == 1).then_some(()).ok_or_else(|| "none".to_owned())
    })
    .await;
}

async fn an_edit_replaces_the_pod(fixture: &mut Fixture) {
    let dir = fixture.containerd.base().join("diary");
    std::fs::create_dir(&dir).unwrap();
    let volume = dir.display().to_string();
    fixture.apply("diary.yaml", &diary("one", &volume));
    written(&dir, "start one\n").await;
    // three edits in a row: the last one wins, whatever is skipped; never two live
    fixture.apply("diary.yaml", &diary("two", &volume));
    written(&dir, "start one\nstop one\nstart two\n").await;
    one_lives(fixture).await;
    assert_eq!(fixture.ready_sandboxes("diary").await.len(), 1);
    // the same content again is no edit
    fixture.apply("diary.yaml", &diary("two", &volume));
    fixture.remove("diary.yaml");
    fixture.gone("diary").await;
    written(&dir, "start one\nstop one\nstart two\nstop two\n").await;
    assert!(fixture.running("diary").await.is_empty());
    assert!(fixture.ready_sandboxes("diary").await.is_empty());
}

/// The predecessor runs, but no source and no worker knows it any more: it is stopped all the
/// same before its successor of the same name starts.
async fn an_edit_while_the_agent_is_away_replaces_the_pod(fixture: &mut Fixture) {
    let dir = fixture.containerd.base().join("diary");
    std::fs::write(dir.join("text"), "").unwrap();
    let volume = dir.display().to_string();
    fixture.apply("diary.yaml", &diary("three", &volume));
    written(&dir, "start three\n").await;
    // an agent that dies before the runtime has answered takes the start with it
    one_lives(fixture).await;
    fixture.agent.kill().unwrap();
    fixture.apply("diary.yaml", &diary("four", &volume));
    fixture.agent.spawn().unwrap();
    written(&dir, "start three\nstop three\nstart four\n").await;
}

/// The agent is killed while a pod it stops uses its grace period.
async fn a_removal_survives_the_agent(fixture: &mut Fixture) {
    let dir = fixture.containerd.base().join("diary");
    let pid = fixture.process("diary", "main").await;
    std::fs::write(dir.join("text"), "").unwrap();
    fixture.remove("diary.yaml");
    fixture
        .wait("diary is being stopped", |table| {
            table.pod("diary").is_none_or(|pod| !pod.ready)
        })
        .await;
    fixture.kill_and_respawn().await;
    written(&dir, "stop four\n").await;
    eventually("its process ends", SOON, async || {
        let alive = Path::new(&format!("/proc/{pid}/exe")).exists();
        (!alive).then_some(()).ok_or_else(|| "alive".to_owned())
    })
    .await;
    fixture.gone("diary").await;
}

/// The app containers are told first, then the sidecars, the last one first.
async fn sidecars_end_last(fixture: &mut Fixture) {
    let dir = fixture.containerd.base().join("order");
    std::fs::create_dir(&dir).unwrap();
    let mut text = "apiVersion: v1\nkind: Pod\nmetadata: {name: order}\nspec:\n  \
        hostNetwork: true\n  terminationGracePeriodSeconds: 20\n"
        .to_owned();
    let container = |name: &str, more: &str| {
        let script = format!(
            "trap 'sleep 0.3; echo {name} >> /v/text; exit' TERM; \
             while true; do sleep 1000 & wait $!; done"
        );
        let script = serde_json::to_string(&script).unwrap();
        fill(&format!(
            "  - {{name: {name}, image: IMAGE, {more}command: [sh, -c, {script}], \
             volumeMounts: [{{name: v, mountPath: /v}}]}}\n"
        ))
    };
    text += "  initContainers:\n";
    text += &container("first", "restartPolicy: Always, ");
    text += &container("second", "restartPolicy: Always, ");
    text += "  containers:\n";
    text += &container("app", "");
    text += &format!(
        "  volumes: [{{name: v, hostPath: {{path: {}}}}}]\n",
        dir.display()
    );
    fixture.apply("order.yaml", &text);
    fixture.ready("order").await;
    fixture.remove("order.yaml");
    written(&dir, "app\nsecond\nfirst\n").await;
    fixture.gone("order").await;
}

async fn a_removed_pod_may_finish(fixture: &mut Fixture) {
    let stubborn = "trap 'echo got TERM' TERM; while true; do sleep 1000 & wait $!; done";
    fixture.apply("stubborn.yaml", &shell("stubborn", stubborn));
    let view = fixture.ready("stubborn").await;
    let id = bare(&view.containers[0].id).to_owned();
    let (status, pid) = fixture.container_status(&id).await;
    let begun = Instant::now();
    fixture.remove("stubborn.yaml");
    // its log and its container go soon after it, so look while it dies
    let mut log = String::new();
    eventually(
        "SIGKILL after the grace period",
        Duration::from_secs(2 + 5),
        async || {
            if let Ok(text) = std::fs::read_to_string(&status.log_path) {
                log = text;
            }
            let alive = Path::new(&format!("/proc/{pid}/exe")).exists();
            (!alive)
                .then_some(())
                .ok_or_else(|| "the process".to_owned())
        },
    )
    .await;
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(2), "killed after {took:?}");
    assert!(log.contains("got TERM"), "{log}");
    fixture.gone("stubborn").await;
}

async fn a_rename_swaps_two_pods(fixture: &mut Fixture) {
    fixture.apply("swap.yaml", &shell("before", "HOLD"));
    fixture.ready("before").await;
    fixture.apply("swap.yaml", &shell("after", "HOLD"));
    fixture.ready("after").await;
    fixture.gone("before").await;
    // moved to another file name within the directory: the same pod
    let id = fixture.ready("after").await.containers[0].id.clone();
    let dir = fixture.manifests.clone();
    std::fs::rename(dir.join("swap.yaml"), dir.join("moved.yaml")).unwrap();
    fixture.apply("marker.yaml", &shell("marker", "HOLD"));
    fixture.ready("marker").await;
    let now = fixture.ready("after").await;
    assert_eq!(fixture.running("after").await.len(), 1);
    // a static pod's UID is made of its source path as well, so this may be a new instance, but
    // never two and never none
    let _moved_or_adopted = now.containers[0].id == id;
    fixture.remove("moved.yaml");
    fixture.remove("marker.yaml");
    fixture.gone("after").await;
    fixture.gone("marker").await;
}

async fn a_directory_vanishes_and_returns(fixture: &mut Fixture) {
    let before = fixture.ready("calm").await.containers[0].id.clone();
    let away = fixture.manifests.with_extension("away");
    std::fs::rename(&fixture.manifests, &away).unwrap();
    // upstream: a missing path is an empty set of pods
    fixture.gone("calm").await;
    std::fs::rename(&away, &fixture.manifests).unwrap();
    let after = fixture.ready("calm").await.containers[0].id.clone();
    assert_ne!(before, after);
    // and the new directory is watched, not only listed
    fixture.apply("new.yaml", &shell("new", "HOLD"));
    let begun = Instant::now();
    fixture.ready("new").await;
    assert!(
        begun.elapsed() < scaled(Duration::from_secs(15)),
        "noticed by the 20 s listing, not by the watch"
    );
    // swapped in an instant: no moment without a directory
    let other = fixture.manifests.with_extension("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("third.yaml"), shell("third", "HOLD")).unwrap();
    std::fs::rename(&fixture.manifests, &away).unwrap();
    std::fs::rename(&other, &fixture.manifests).unwrap();
    fixture.ready("third").await;
    fixture.gone("calm").await;
    fixture.gone("new").await;
}

async fn a_single_file_is_enough(fixture: &mut Fixture) {
    let file = fixture.containerd.base().join("one.yaml");
    std::fs::write(&file, shell("single", "HOLD")).unwrap();
    fixture.restart_with(&file).await;
    let first = fixture.ready("single").await.containers[0].id.clone();
    eventually("the pods of the directory are stopped", SOON, async || {
        let running = fixture.running("third").await.len();
        (running == 0)
            .then_some(())
            .ok_or_else(|| running.to_string())
    })
    .await;
    // edited in place by a rename, as editors do
    let next = file.with_extension("next");
    std::fs::write(&next, shell("single", "echo edited; HOLD")).unwrap();
    std::fs::rename(&next, &file).unwrap();
    fixture
        .wait("single is replaced", |table| {
            let pod = table.pod("single");
            pod.is_some_and(|pod| pod.ready && pod.containers[0].id != first)
        })
        .await;
    std::fs::remove_file(&file).unwrap();
    fixture.gone("single").await;
}
