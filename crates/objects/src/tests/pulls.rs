//! Pull secrets and the node's credential files.

use super::*;

const TYPE: &str = "kubernetes.io/dockerconfigjson";
const KEY: &str = ".dockerconfigjson";

fn regcred(user: &str) -> Secret {
    let auths = json!({"r.io": {"username": user, "password": "p"}});
    secret("regcred", TYPE, KEY, &json!({"auths": auths}).to_string())
}

fn pulling(uid: &str) -> SharedPod {
    pod(
        uid,
        json!({"imagePullSecrets": [{"name": "regcred"}, {"name": "gone"}]}),
    )
}

fn users(inputs: &PodInputs) -> Vec<String> {
    let found = inputs.keyring.lookup("r.io/app");
    found.into_iter().map(|auth| auth.username).collect()
}

#[tokio::test(start_paused = true)]
async fn missing_pull_secret_is_recorded_once_and_blocks_nothing() {
    let mut env = TestEnv::new();
    let pod = pulling("a");
    let missing = |names: &str| {
        format!(
            "FailedToRetrieveImagePullSecret Unable to retrieve some image pull secrets \
             ({names}); attempting to pull the image may not succeed."
        )
    };
    for _ in 0..3 {
        let inputs = env.inputs(&pod).await.expect("inputs");
        assert_eq!(users(&inputs), [""; 0]);
    }
    assert_eq!(env.events(), [missing("regcred, gone")]);
    env.server.create(&regcred("bob"));
    assert_eq!(env.requeued().await, ["a"]);
    let inputs = env.inputs(&pod).await.expect("inputs");
    assert_eq!(users(&inputs), ["bob"]);
    assert_eq!(env.events(), [missing("regcred, gone"), missing("gone")]);
    // variables are not affected
    assert!(inputs.env.secrets.is_empty());
}

#[tokio::test(start_paused = true)]
async fn malformed_pull_secret_is_reported_and_skipped() {
    let env = TestEnv::new();
    let broken = secret("regcred", TYPE, KEY, "hunter2");
    env.server.create(&broken);
    let pod = pod("a", json!({"imagePullSecrets": [{"name": "regcred"}]}));
    env.inputs(&pod).await.expect("inputs");
    let events = env.events();
    assert_eq!(events.len(), 1);
    assert!(
        events[0].starts_with(
            "FailedToRetrieveImagePullSecret secret default/regcred, key .dockerconfigjson: \
             not valid docker config JSON"
        ),
        "{events:?}"
    );
    assert!(!events[0].contains("hunter2"));
}

#[tokio::test(start_paused = true)]
async fn pull_continues_without_unresolved_secrets() {
    let env = TestEnv::new();
    env.server
        .faults()
        .hang(windlass_fake_api::On::path("*/secrets"));
    env.inputs(&pulling("a")).await.expect("inputs");
    assert_eq!(env.events().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn node_credentials_follow_pull_secrets_and_are_reread() {
    let dir = tempfile::tempdir().expect("folder");
    let env = TestEnv::with_dirs(CredentialDirs {
        root_dir: dir.path().to_path_buf(),
        work_dir: dir.path().join("work"),
        home: Some(dir.path().join("home")),
    });
    let write = |file: &str, user: &str| {
        let entry = json!({"r.io": {"username": user, "password": "p"}});
        let text = match file {
            "home/.dockercfg" => entry.to_string(),
            _ => json!({"auths": entry}).to_string(),
        };
        let path = dir.path().join(file);
        std::fs::create_dir_all(path.parent().expect("folder")).expect("folder");
        std::fs::write(path, text).expect("file");
    };
    let minutes = |n: u64| tokio::time::sleep(Duration::from_secs(n * 60));
    env.server.create(&regcred("bob"));
    write("home/.dockercfg", "old");
    assert_eq!(
        users(&env.inputs(&pulling("a")).await.expect("inputs")),
        ["bob", "old"]
    );
    write("work/config.json", "work");
    assert_eq!(
        users(&env.inputs(&pulling("a")).await.expect("inputs")),
        ["bob", "old"]
    );
    minutes(6).await;
    assert_eq!(
        users(&env.inputs(&pulling("a")).await.expect("inputs")),
        ["bob", "work"]
    );
    // an unreadable file is skipped
    std::fs::write(dir.path().join("config.json"), "{").expect("file");
    minutes(6).await;
    assert_eq!(
        users(&env.inputs(&pulling("a")).await.expect("inputs")),
        ["bob", "work"]
    );
    write("config.json", "root");
    minutes(6).await;
    assert_eq!(
        users(
            &env.inputs(&static_pod("s", json!({})))
                .await
                .expect("inputs")
        ),
        ["root"]
    );
}
