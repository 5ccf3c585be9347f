//! Plugins that are shell scripts.

mod accounts;

use std::os::unix::fs::PermissionsExt;

use windlass_metrics::Metrics;

use super::*;

/// A configuration and its programs; each execution appends its request to a file.
struct TestEnv {
    dir: tempfile::TempDir,
    metrics: Metrics,
}

const VERSION: &str = "credentialprovider.kubelet.k8s.io/v1";

impl TestEnv {
    /// Creates plugins of these names and scripts, for the images of `r.io`.
    fn new(plugins: &[(&str, &str)]) -> Self {
        Self::with_settings(plugins, "")
    }

    /// Creates plugins with additional settings.
    fn with_settings(plugins: &[(&str, &str)], more: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut config = "kind: CredentialProviderConfig\n\
                          apiVersion: kubelet.config.k8s.io/v1\nproviders:\n"
            .to_owned();
        for (name, script) in plugins {
            config += &format!(
                "- {{name: {name}, matchImages: [r.io], defaultCacheDuration: 1h, apiVersion: \
                 {VERSION}, args: [{name}-arg], env: [{{name: WHO, value: {name}-env}}]{more}}}\n"
            );
            let asked = dir.path().join("asked");
            let script = format!(
                "#!/bin/sh\nread -r request\necho \"$1 $WHO $request\" >> {}\n{script}\n",
                asked.display()
            );
            let path = dir.path().join(name);
            fs::write(&path, script).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
        }
        fs::write(dir.path().join("config.yaml"), config).expect("written");
        let metrics = Metrics::new().expect("metrics");
        Self { dir, metrics }
    }

    fn load(&self) -> Result<CredentialProviders, CredentialProvidersError> {
        let path = self.dir.path();
        let metrics = self.metrics.plugins.clone();
        CredentialProviders::load(&path.join("config.yaml"), path, true, metrics)
    }

    fn request_lines(&self) -> Vec<String> {
        let asked = fs::read_to_string(self.dir.path().join("asked")).unwrap_or_default();
        asked.lines().map(str::to_owned).collect()
    }
}

fn answer(user: &str, rest: &str) -> String {
    format!(
        "echo '{{\"kind\": \"CredentialProviderResponse\", \"apiVersion\": \"{VERSION}\", {rest} \
         \"auth\": {{\"r.io\": {{\"username\": \"{user}\", \"password\": \"p\"}}}}}}'"
    )
}

async fn users(providers: &CredentialProviders, image: &str) -> Vec<String> {
    let name = ImageName::parse(image).expect("an image");
    let keyring = providers.keyring(&name, &Pod::default()).await;
    let found = keyring.lookup(image);
    found.into_iter().map(|auth| auth.username).collect()
}

#[tokio::test]
async fn plugin_response_is_cached_per_registry() {
    let script = answer("u", "\"cacheKeyType\": \"Registry\",");
    let env = TestEnv::new(&[("one", &script)]);
    let providers = env.load().expect("loaded");
    assert_eq!(users(&providers, "r.io/web:1").await, ["u"]);
    assert_eq!(users(&providers, "r.io/other").await, ["u"]);
    assert!(users(&providers, "elsewhere.io/web").await.is_empty());
    let request = format!(
        r#"{{"apiVersion":"{VERSION}","image":"r.io/web","kind":"CredentialProviderRequest"}}"#
    );
    assert_eq!(env.request_lines(), [format!("one-arg one-env {request}")]);
}

#[tokio::test]
async fn concurrent_pulls_share_one_plugin_execution() {
    let script = answer("u", "\"cacheKeyType\": \"Image\",");
    let env = TestEnv::new(&[("one", &script)]);
    let providers = env.load().expect("loaded");
    let both = tokio::join!(users(&providers, "r.io/a"), users(&providers, "r.io/a:2"));
    assert_eq!(both, (vec!["u".to_owned()], vec!["u".to_owned()]));
    assert_eq!(env.request_lines().len(), 1);
    users(&providers, "r.io/b").await;
    assert_eq!(env.request_lines().len(), 2, "another image");

    let script = answer(
        "u",
        "\"cacheKeyType\": \"Image\", \"cacheDuration\": \"0s\",",
    );
    let env = TestEnv::new(&[("one", &script)]);
    let providers = env.load().expect("loaded");
    for _ in 0..2 {
        assert_eq!(users(&providers, "r.io/a").await, ["u"]);
    }
    assert_eq!(env.request_lines().len(), 2);
    let both = tokio::join!(users(&providers, "r.io/a"), users(&providers, "r.io/a:2"));
    assert_eq!(both, (vec!["u".to_owned()], vec!["u".to_owned()]));
    assert_eq!(env.request_lines().len(), 3, "one execution for both");
}

#[tokio::test]
async fn plugin_that_always_fails_leaves_no_entry() {
    let env = TestEnv::new(&[("broken", "exit 3")]);
    let providers = env.load().expect("loaded");
    for image in ["r.io/a", "r.io/b", "r.io/c"] {
        assert!(users(&providers, image).await.is_empty());
    }
    assert_eq!(env.request_lines().len(), 3, "one execution for each image");
    let plugin = &providers.plugins[0];
    assert!(plugin.cached.lock().is_empty());
    let executions = format!("{:?}", plugin.executions);
    assert!(executions.contains("data: {}"), "{executions}");
}

#[tokio::test]
async fn failing_plugin_does_not_affect_other_plugins() {
    let good = answer("good", "\"cacheKeyType\": \"Image\",");
    let env = TestEnv::new(&[
        ("broken", "echo no metadata server >&2; exit 3"),
        ("odd", "echo {}"),
        ("endless", "exec sleep 600"),
        ("last", &good),
    ]);
    let mut providers = env.load().expect("loaded");
    providers.timeout = Duration::from_millis(500);
    assert_eq!(users(&providers, "r.io/web").await, ["good"]);
    let text = env.metrics.render().expect("a page");
    for name in ["broken", "odd", "endless"] {
        let failed =
            format!("kubelet_credential_provider_plugin_errors_total{{plugin_name=\"{name}\"}} 1");
        assert!(text.contains(&failed), "{name}");
    }
    let image = ImageName::parse("r.io/web").expect("an image");
    let reason = providers.plugins[0]
        .run(&image, None)
        .await
        .expect_err("it fails");
    assert_eq!(reason, "exit status: 3: no metadata server");
}

#[test]
fn credential_provider_errors_name_flag_and_path() {
    let env = TestEnv::new(&[("one", "true")]);
    let path = env.dir.path();
    fs::remove_file(path.join("one")).expect("removed");
    let text = env.load().expect_err("no program").to_string();
    let program = path.join("one");
    assert_eq!(
        text,
        format!(
            "--image-credential-provider-bin-dir: {} is not a program; install it, or remove \
             one from the configuration",
            program.display()
        )
    );
    let load = |config: &Path| {
        let metrics = env.metrics.plugins.clone();
        let error = CredentialProviders::load(config, path, true, metrics).expect_err("refused");
        error.to_string()
    };
    let none = load(&path.join("none"));
    assert!(
        none.starts_with("--image-credential-provider-config: ") && none.contains("none: No such"),
        "{none}"
    );
    // a directory of two files with one name
    let dir = path.join("dir");
    fs::create_dir(&dir).expect("made");
    assert!(load(&dir).ends_with("no *.json, *.yaml or *.yml in this directory"));
    for name in ["a.yaml", "b.yml"] {
        fs::copy(path.join("config.yaml"), dir.join(name)).expect("copied");
    }
    fs::write(path.join("one"), "").expect("a program");
    let twice = load(&dir);
    assert!(
        twice.contains("b.yml: providers[0].name: duplicate name \"one\""),
        "{twice}"
    );
}
