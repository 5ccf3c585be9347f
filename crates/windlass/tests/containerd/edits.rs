//! Pods follow the manifest directory: edits, removals, renames and vanishing directories.

use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use crate::manifest::{fill, shell, shell_with};
use crate::test_env::{SOON, TestEnv, bare, eventually, scaled, skipped};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_pods_follow_their_manifests() {
    if skipped() {
        return;
    }
    let mut env = TestEnv::start("i-edits").await;
    // an unrelated pod that must not change
    env.apply("calm.yaml", &shell("calm", "HOLD"));
    let calm = env.ready("calm").await.containers;

    an_edit_replaces_the_pod(&mut env).await;
    an_edit_while_the_agent_is_away_replaces_the_pod(&mut env).await;
    a_removal_survives_the_agent(&mut env).await;
    sidecars_end_last(&mut env).await;
    a_removed_pod_may_finish(&mut env).await;
    a_rename_swaps_two_pods(&mut env).await;
    assert_eq!(env.ready("calm").await.containers, calm, "the bystander");
    a_directory_vanishes_and_returns(&mut env).await;
    a_single_file_is_enough(&mut env).await;
    env.stop().await;
}

/// A container that logs its start and stop, and takes a moment to exit.
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

/// The container writes before the runtime reports it as running.
async fn one_lives(env: &mut TestEnv) {
    eventually("an instance lives", SOON, async || {
        let living = env.running("diary").await.len();
        assert!(living <= 1, "{living} instances live");
        (living == 1).then_some(()).ok_or_else(|| "none".to_owned())
    })
    .await;
}

async fn an_edit_replaces_the_pod(env: &mut TestEnv) {
    let dir = env.containerd.base().join("diary");
    std::fs::create_dir(&dir).unwrap();
    let volume = dir.display().to_string();
    env.apply("diary.yaml", &diary("one", &volume));
    written(&dir, "start one\n").await;
    // three edits in a row: the last one wins, and never two run
    env.apply("diary.yaml", &diary("two", &volume));
    written(&dir, "start one\nstop one\nstart two\n").await;
    one_lives(env).await;
    assert_eq!(env.ready_sandboxes("diary").await.len(), 1);
    // rewriting the same content is not an edit
    env.apply("diary.yaml", &diary("two", &volume));
    env.remove("diary.yaml");
    env.gone("diary").await;
    written(&dir, "start one\nstop one\nstart two\nstop two\n").await;
    assert!(env.running("diary").await.is_empty());
    assert!(env.ready_sandboxes("diary").await.is_empty());
}

/// The old pod runs, but no source or worker knows it: it is stopped
/// before the new pod with the same full name starts.
async fn an_edit_while_the_agent_is_away_replaces_the_pod(env: &mut TestEnv) {
    let dir = env.containerd.base().join("diary");
    std::fs::write(dir.join("text"), "").unwrap();
    let volume = dir.display().to_string();
    env.apply("diary.yaml", &diary("three", &volume));
    written(&dir, "start three\n").await;
    // an agent kill before the response cancels the start
    one_lives(env).await;
    env.agent.kill().unwrap();
    env.apply("diary.yaml", &diary("four", &volume));
    env.agent.spawn().unwrap();
    written(&dir, "start three\nstop three\nstart four\n").await;
}

/// The agent is killed during the grace period of a pod.
async fn a_removal_survives_the_agent(env: &mut TestEnv) {
    let dir = env.containerd.base().join("diary");
    let pid = env.process("diary", "main").await;
    std::fs::write(dir.join("text"), "").unwrap();
    env.remove("diary.yaml");
    env.wait("diary is being stopped", |table| {
        table.pod("diary").is_none_or(|pod| !pod.ready)
    })
    .await;
    env.kill_and_respawn().await;
    written(&dir, "stop four\n").await;
    eventually("its process ends", SOON, async || {
        let alive = Path::new(&format!("/proc/{pid}/exe")).exists();
        (!alive).then_some(()).ok_or_else(|| "alive".to_owned())
    })
    .await;
    env.gone("diary").await;
}

/// App containers are stopped first, then sidecars in reverse order.
async fn sidecars_end_last(env: &mut TestEnv) {
    let dir = env.containerd.base().join("order");
    std::fs::create_dir(&dir).unwrap();
    let mut text = "apiVersion: v1\nkind: Pod\nmetadata: {name: order}\nspec:\n  \
        hostNetwork: true\n  terminationGracePeriodSeconds: 20\n"
        .to_owned();
    let container = |name: &str, more: &str| {
        let script = format!(
            "trap 'sleep 0.3; echo {name} >> /v/text; exit' TERM; touch /v/{name}; \
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
    env.apply("order.yaml", &text);
    env.ready("order").await;
    // without its trap a shell that is PID 1 ignores SIGTERM
    eventually("the traps are set", SOON, async || {
        let mut names = ["first", "second", "app"].into_iter();
        let missing = names.find(|name| !dir.join(name).exists());
        missing.map_or(Ok(()), |name| Err(format!("none of {name}")))
    })
    .await;
    env.remove("order.yaml");
    written(&dir, "app\nsecond\nfirst\n").await;
    env.gone("order").await;
}

async fn a_removed_pod_may_finish(env: &mut TestEnv) {
    let stubborn = "trap 'echo got TERM' TERM; while true; do sleep 1000 & wait $!; done";
    env.apply("stubborn.yaml", &shell("stubborn", stubborn));
    let view = env.ready("stubborn").await;
    let id = bare(&view.containers[0].id).to_owned();
    let (status, pid) = env.container_status(&id).await;
    let begun = Instant::now();
    env.remove("stubborn.yaml");
    // log and container are removed soon, so check during the stop
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
    env.gone("stubborn").await;
}

async fn a_rename_swaps_two_pods(env: &mut TestEnv) {
    env.apply("swap.yaml", &shell("before", "HOLD"));
    env.ready("before").await;
    env.apply("swap.yaml", &shell("after", "HOLD"));
    env.ready("after").await;
    env.gone("before").await;
    // moved to another file name within the directory: the same pod
    let id = env.ready("after").await.containers[0].id.clone();
    let dir = env.manifests.clone();
    std::fs::rename(dir.join("swap.yaml"), dir.join("moved.yaml")).unwrap();
    env.apply("marker.yaml", &shell("marker", "HOLD"));
    env.ready("marker").await;
    let now = env.ready("after").await;
    assert_eq!(env.running("after").await.len(), 1);
    // a static pod's UID is made of its source path as well, so this may be a new instance, but
    // never two and never none
    let _moved_or_adopted = now.containers[0].id == id;
    env.remove("moved.yaml");
    env.remove("marker.yaml");
    env.gone("after").await;
    env.gone("marker").await;
}

async fn a_directory_vanishes_and_returns(env: &mut TestEnv) {
    let before = env.ready("calm").await.containers[0].id.clone();
    let away = env.manifests.with_extension("away");
    std::fs::rename(&env.manifests, &away).unwrap();
    // upstream: a missing path is an empty set of pods
    env.gone("calm").await;
    std::fs::rename(&away, &env.manifests).unwrap();
    let after = env.ready("calm").await.containers[0].id.clone();
    assert_ne!(before, after);
    // and the new directory is watched, not only listed
    env.apply("new.yaml", &shell("new", "HOLD"));
    let begun = Instant::now();
    env.ready("new").await;
    assert!(
        begun.elapsed() < scaled(Duration::from_secs(15)),
        "noticed by the 20 s listing, not by the watch"
    );
    // swapped atomically
    let other = env.manifests.with_extension("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("third.yaml"), shell("third", "HOLD")).unwrap();
    std::fs::rename(&env.manifests, &away).unwrap();
    std::fs::rename(&other, &env.manifests).unwrap();
    env.ready("third").await;
    env.gone("calm").await;
    env.gone("new").await;
}

async fn a_single_file_is_enough(env: &mut TestEnv) {
    let file = env.containerd.base().join("one.yaml");
    std::fs::write(&file, shell("single", "HOLD")).unwrap();
    env.restart_with(&file).await;
    let first = env.ready("single").await.containers[0].id.clone();
    eventually("the pods of the directory are stopped", SOON, async || {
        let running = env.running("third").await.len();
        (running == 0)
            .then_some(())
            .ok_or_else(|| running.to_string())
    })
    .await;
    // edited in place by a rename, as editors do
    let next = file.with_extension("next");
    std::fs::write(&next, shell("single", "echo edited; HOLD")).unwrap();
    std::fs::rename(&next, &file).unwrap();
    env.wait("single is replaced", |table| {
        let pod = table.pod("single");
        pod.is_some_and(|pod| pod.ready && pod.containers[0].id != first)
    })
    .await;
    std::fs::remove_file(&file).unwrap();
    env.gone("single").await;
}
