//! Keyrings, by the users for an image.

use serde_json::{Value, json};

use super::*;

fn secret(secret_type: &str, key: &str, text: &str) -> SecretContent {
    SecretContent {
        secret_type: secret_type.to_owned(),
        data: [(key.to_owned(), text.as_bytes().into())].into(),
        ..SecretContent::default()
    }
}

fn config_json(auths: Value) -> SecretContent {
    let text = json!({"auths": auths, "HttpHeaders": {"User-Agent": "docker"}}).to_string();
    secret(TYPE_CONFIG_JSON, ".dockerconfigjson", &text)
}

fn user(name: &str) -> Value {
    json!({"username": name, "password": format!("pass-of-{name}")})
}

fn read(secrets: &[SecretContent]) -> ReadCredentials {
    Keyring::from_secrets("ns", secrets.iter().map(|s| ("regcred", s)))
}

fn users(keyring: &Keyring, image: &str) -> String {
    let found = keyring.lookup(image);
    let names: Vec<_> = found.iter().map(|a| a.username.as_str()).collect();
    names.join(" ")
}

#[test]
fn matching_entries_are_tried_most_specific_first() {
    let keyring = read(&[config_json(json!({
        "quay.io": user("host"),
        "quay.io/team": user("team"),
        "https://quay.io/v2/team/app": user("app"),
        "*.io": user("any"),
        "other.io": user("other"),
    }))])
    .keyring;
    let check =
        |image: &str, expected: &str| assert_eq!(users(&keyring, image), expected, "{image}");
    check("quay.io/team/app:1", "app team host any");
    check("quay.io/team/web@sha256:1", "");
    check("quay.io/team/web", "team host any");
    check("quay.io/else", "host any");
    check("gcr.io/x", "any");
    check("gcr.io:5000/x", "");
    check("example.com/x", "");
    check("not an image", "");
}

#[test]
fn docker_hub_matches_all_its_names() {
    for address in [
        "https://index.docker.io/v1/",
        "index.docker.io",
        "docker.io",
    ] {
        let keyring = read(&[config_json(json!({address: user("hub")}))]).keyring;
        for image in [
            "nginx",
            "library/nginx",
            "docker.io/nginx",
            "index.docker.io/a/b:1",
        ] {
            assert_eq!(users(&keyring, image), "hub", "{address} {image}");
        }
        assert_eq!(users(&keyring, "localhost/nginx"), "", "{address}");
        assert_eq!(users(&keyring, "quay.io/nginx"), "", "{address}");
    }
}

#[test]
fn docker_hub_default_follows_better_match_of_layer() {
    let keyring = read(&[config_json(json!({
        "https://index.docker.io/v1/": user("hub"),
        "docker.io/team": user("team"),
    }))])
    .keyring;
    assert_eq!(users(&keyring, "team/app"), "team");
    assert_eq!(users(&keyring, "else/app"), "hub");
}

#[test]
fn pod_secrets_precede_node_file_without_duplicates() {
    let pod = read(&[
        config_json(json!({"r.io": user("a")})),
        config_json(json!({"r.io": user("b")})),
    ]);
    let text = json!({"auths": {"r.io/x": user("node"), "r.io": user("a")}}).to_string();
    let format = DockerConfigFormat::ConfigJson;
    let node = Keyring::from_file(format, text.as_bytes(), "file config.json");
    let keyring = pod.keyring.then(&node.keyring);
    assert_eq!(users(&keyring, "r.io/x"), "a b node");
    assert_eq!(
        users(&Keyring::default().then(&node.keyring), "r.io/x"),
        "node a"
    );
}

#[test]
fn all_entry_forms_are_read() {
    let line = |entry: Value| {
        let keyring = read(&[config_json(json!({"r.io": entry}))]).keyring;
        let found = keyring.lookup("r.io/x");
        let lines: Vec<_> = found
            .iter()
            .map(|a| {
                assert_eq!((a.server_address.as_str(), a.auth.as_str()), ("", ""));
                format!(
                    "{}|{}|{}|{}",
                    a.username, a.password, a.identity_token, a.registry_token
                )
            })
            .collect();
        lines.join(" ")
    };
    let check = |entry: Value, expected: &str| assert_eq!(line(entry), expected);
    check(
        json!({"username": "u", "password": "p", "email": "e"}),
        "u|p||",
    );
    // base64 of u:p:q, with and without padding and with line breaks
    check(json!({"auth": "dTpwOnE="}), "u|p:q||");
    check(json!({"auth": "dTpwOnE"}), "u|p:q||");
    check(json!({"auth": "dTpw\nOnE=\n"}), "u|p:q||");
    check(
        json!({"auth": "dTpwOnE=", "username": "x", "password": "y"}),
        "u|p:q||",
    );
    check(json!({"auth": "", "username": "x"}), "x|||");
    check(json!({"identitytoken": "i", "registrytoken": "r"}), "||i|r");
    check(json!({"auth": null}), "");
    check(json!({}), "");
}

#[test]
fn dockercfg_has_top_level_entries() {
    let text = json!({"r.io": user("old")}).to_string();
    let keyring = read(&[secret(TYPE_DOCKERCFG, ".dockercfg", &text)]).keyring;
    assert_eq!(users(&keyring, "r.io/x"), "old");
    // the type decides which key counts
    let wrong = secret(TYPE_CONFIG_JSON, ".dockercfg", &text);
    let opaque = secret("Opaque", ".dockercfg", &text);
    assert_eq!(read(&[wrong, opaque]), ReadCredentials::default());
}

#[test]
fn invalid_entry_is_skipped_and_reported_without_content() {
    let errors = |secret: SecretContent| {
        let read = read(&[secret, config_json(json!({"r.io": user("good")}))]);
        assert_eq!(users(&read.keyring, "r.io/x"), "good");
        let lines: Vec<_> = read.errors.iter().map(ToString::to_string).collect();
        lines.join("\n")
    };
    let check = |secret, expected: &str| assert_eq!(errors(secret), expected);
    let origin = "secret ns/regcred, key .dockerconfigjson";
    check(
        secret(TYPE_CONFIG_JSON, ".dockerconfigjson", "{\"auths\": hunter2"),
        &format!(
            "{origin}: not valid docker config JSON (line 1, column 11): \
             recreate it with `kubectl create secret docker-registry` or `docker login`"
        ),
    );
    check(
        secret(
            TYPE_CONFIG_JSON,
            ".dockerconfigjson",
            "{\"auths\": \"hunter2\"}",
        ),
        &format!(
            "{origin}: not valid docker config JSON (line 1, column 19): \
             recreate it with `kubectl create secret docker-registry` or `docker login`"
        ),
    );
    check(
        config_json(json!({"b.io": "hunter2", "c.io": {"auth": "aHVudGVyMg=="}, "d d": {}})),
        &format!(
            "{origin}: skipped entry \"b.io\": must be an object with string fields \
             (username, password, auth)\n\
             {origin}: skipped entry \"c.io\": auth must be base64 of username:password\n\
             {origin}: skipped entry \"d d\": the name must be a registry address such as \
             registry.example.com:5000/team"
        ),
    );
}

#[test]
fn keyring_debug_has_no_credentials() {
    let read = read(&[config_json(json!({"r.io": user("a")}))]);
    let text = format!("{read:?}");
    assert_eq!(
        text,
        "ReadCredentials { keyring: Keyring(1 entries), errors: [] }"
    );
}
