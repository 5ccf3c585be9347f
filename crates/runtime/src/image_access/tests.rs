//! Pods with and without the secret of an image, on the runtime that records its calls.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use windlass_credentials::credentials::provider::{PluginAccount, read_providers};
use windlass_credentials::credentials::{Keyring, ObjectCoordinates};
use windlass_credentials::image_access::VerificationPolicy;
use windlass_cri::error::CriCode;
use windlass_manifests::image_name::ImageName;
use windlass_pod_inputs::projection::{SecretContent, Token};
use windlass_store::PullRecords;
use windlass_types::Pod;

use crate::tests::{TestEnv, line, nothing, pod};
use crate::{ImageAccessOptions, RuntimeOptions};
use windlass_runtime_config::port::PodInputs;

fn env(root: &Path) -> TestEnv {
    let env = TestEnv::with(RuntimeOptions {
        image_access: Some(ImageAccessOptions {
            policy: VerificationPolicy::default(),
            root_dir: root.to_owned(),
        }),
        ..RuntimeOptions::default()
    });
    env.fake.lose_image("web:1");
    env
}

fn with_policy(policy: &str) -> Pod {
    let mut pod = pod(&["a"]);
    let spec = pod.spec.as_mut().expect("spec");
    spec.containers[0].image_pull_policy = Some(policy.to_owned());
    pod
}

/// Inputs of a pod whose one pull secret is for Docker Hub.
fn secret(user: &str) -> PodInputs {
    let text =
        format!("{{\"auths\":{{\"docker.io\":{{\"username\":\"{user}\",\"password\":\"p\"}}}}}}");
    let secret = SecretContent {
        uid: format!("uid-{user}"),
        secret_type: "kubernetes.io/dockerconfigjson".to_owned(),
        data: BTreeMap::from([(".dockerconfigjson".to_owned(), text.as_bytes().into())]),
    };
    let read = Keyring::from_secrets("ns", [(user, &secret)]);
    assert_eq!(read.errors, [], "secret");
    PodInputs {
        keyring: read.keyring,
        ..PodInputs::default()
    }
}

async fn run(env: &TestEnv, pod: &Pod, inputs: PodInputs) -> (String, Vec<String>) {
    env.fake.forget_calls();
    let outcome = env.sync_inputs(pod, nothing(), inputs).await;
    let mut pulls = env.fake.calls();
    pulls.retain(|call| call.starts_with("pull"));
    (line(env, &outcome), pulls)
}

#[tokio::test]
async fn private_image_without_secret_is_pulled_and_rejected() {
    let root = tempfile::tempdir().expect("dir");
    let env = env(root.path());
    let first = run(&env, &pod(&["a"]), secret("ann")).await;
    assert_eq!(
        first,
        ("ok".to_owned(), vec!["pull web:1 as ann".to_owned()])
    );
    let again = run(&env, &pod(&["a"]), secret("ann")).await;
    assert_eq!(again, ("ok".to_owned(), vec![]), "the secret is recorded");

    env.fake.fail("pull web:1", CriCode::Other, "denied");
    let (outcome, pulls) = run(&env, &pod(&["a"]), PodInputs::default()).await;
    assert!(outcome.starts_with("ErrImagePull container=a"), "{outcome}");
    assert_eq!(pulls, ["pull web:1"]);
    let (outcome, pulls) = run(&env, &with_policy("Never"), PodInputs::default()).await;
    assert!(
        outcome.starts_with(
            "ErrImageNeverPull container=a retry=later: Container image \"web:1\" is not present \
             with pull policy of Never"
        ),
        "{outcome}"
    );
    assert_eq!(pulls, Vec::<String>::new());
}

#[tokio::test]
async fn anonymously_pulled_image_is_usable_by_all_pods() {
    let root = tempfile::tempdir().expect("dir");
    let env = env(root.path());
    let first = run(&env, &pod(&["a"]), PodInputs::default()).await;
    assert_eq!(first.1, ["pull web:1"]);
    let second = run(&env, &pod(&["a"]), secret("bob")).await;
    assert_eq!(second, ("ok".to_owned(), vec![]));
}

#[tokio::test]
async fn preloaded_image_is_usable_by_all_pods() {
    let root = tempfile::tempdir().expect("dir");
    let env = env(root.path());
    env.fake.have_image("web:1");
    let (outcome, pulls) = run(&env, &pod(&["a"]), PodInputs::default()).await;
    assert_eq!((outcome.as_str(), pulls.len()), ("ok", 0));
}

#[tokio::test]
async fn image_pulled_before_crash_is_verified_after_restart() {
    let root = tempfile::tempdir().expect("dir");
    // the pull succeeded, the agent was killed before its record
    let records = PullRecords::open(root.path()).expect("open");
    records.begin("web:1").expect("intent");
    drop(records);
    let env = env(root.path());
    env.fake.have_image("web:1");
    env.fake.fail("pull web:1", CriCode::Other, "denied");
    let (outcome, pulls) = run(&env, &pod(&["a"]), PodInputs::default()).await;
    assert!(outcome.starts_with("ErrImagePull container=a"), "{outcome}");
    assert_eq!(pulls, ["pull web:1"]);
    env.fake.heal("pull web:1");
    let (outcome, pulls) = run(&env, &pod(&["a"]), secret("ann")).await;
    assert_eq!((outcome.as_str(), pulls.len()), ("ok", 1));
    let (outcome, pulls) = run(&env, &pod(&["a"]), secret("ann")).await;
    assert_eq!((outcome.as_str(), pulls.len()), ("ok", 0), "recorded");
    let metrics = env.runtime.deps().metrics.render().expect("text");
    for line in [
        "\nkubelet_imagemanager_ondisk_pullintents 0\n",
        "\nkubelet_imagemanager_ondisk_pulledrecords 1\n",
        "\nkubelet_imagemanager_image_mustpull_checks_total{result=\"mustAuthenticate\"} 2\n",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
}

/// Credentials that a plugin returns for a service account.
fn of_account(name: &str, password: &str) -> Keyring {
    let version = "credentialprovider.kubelet.k8s.io/v1";
    let config = format!(
        "kind: CredentialProviderConfig\napiVersion: kubelet.config.k8s.io/v1\nproviders:\n\
         - {{name: p, matchImages: [docker.io], defaultCacheDuration: 1m, apiVersion: {version}, \
         tokenAttributes: {{serviceAccountTokenAudience: a, requireServiceAccount: true, \
         cacheType: Token}}}}\n"
    );
    let read = read_providers(config.as_bytes(), &mut BTreeSet::new(), true).expect("config");
    let account = PluginAccount {
        object: ObjectCoordinates {
            uid: format!("uid-{name}"),
            namespace: "ns".to_owned(),
            name: name.to_owned(),
        },
        annotations: BTreeMap::new(),
        token: Token("t".to_owned()),
    };
    let response = format!(
        "{{\"kind\":\"CredentialProviderResponse\",\"apiVersion\":\"{version}\",\
         \"cacheKeyType\":\"Image\",\
         \"auth\":{{\"docker.io\":{{\"username\":\"{name}\",\"password\":\"{password}\"}}}}}}"
    );
    let image = ImageName::parse("web:1").expect("name");
    let answer = read.providers[0].read_response(&image, Some(&account), response.as_bytes());
    answer.expect("credentials").keyring
}

#[tokio::test]
async fn image_pulled_for_account_is_verified_for_other_accounts() {
    let root = tempfile::tempdir().expect("dir");
    let env = env(root.path());
    env.fake.have_credentials(of_account("robot", "p"));
    let first = run(&env, &pod(&["a"]), PodInputs::default()).await;
    assert_eq!(first.1, ["pull web:1 as robot"]);
    env.fake.have_credentials(of_account("robot", "new"));
    let again = run(&env, &pod(&["a"]), PodInputs::default()).await;
    assert_eq!(again, ("ok".to_owned(), vec![]), "the account is recorded");

    env.fake
        .fail("pull web:1 as other", CriCode::Other, "denied");
    env.fake.have_credentials(of_account("other", "p"));
    let (outcome, pulls) = run(&env, &pod(&["a"]), PodInputs::default()).await;
    assert!(outcome.starts_with("ErrImagePull container=a"), "{outcome}");
    assert_eq!(pulls, ["pull web:1 as other"]);
    let requests = env.fake.asked();
    assert_eq!(requests.len(), 3, "one for the check and the pull");
}
