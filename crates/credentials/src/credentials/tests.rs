//! Keyrings, by the users they try for an image.

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
fn the_most_specific_entry_is_tried_first_and_all_that_match_are_tried() {
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
fn docker_hub_is_known_by_all_its_names() {
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
fn docker_hubs_default_stands_back_for_a_better_match_of_the_same_layer() {
    let keyring = read(&[config_json(json!({
        "https://index.docker.io/v1/": user("hub"),
        "docker.io/team": user("team"),
    }))])
    .keyring;
    assert_eq!(users(&keyring, "team/app"), "team");
    assert_eq!(users(&keyring, "else/app"), "hub");
}

#[test]
fn the_pods_secrets_come_before_the_nodes_file_and_nothing_is_tried_twice() {
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
fn each_way_to_write_a_credential_is_read() {
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
fn the_old_format_has_its_entries_at_the_top() {
    let text = json!({"r.io": user("old")}).to_string();
    let keyring = read(&[secret(TYPE_DOCKERCFG, ".dockercfg", &text)]).keyring;
    assert_eq!(users(&keyring, "r.io/x"), "old");
    // the type decides which key counts
    let wrong = secret(TYPE_CONFIG_JSON, ".dockercfg", &text);
    let opaque = secret("Opaque", ".dockercfg", &text);
    assert_eq!(read(&[wrong, opaque]), ReadCredentials::default());
}

#[test]
fn what_cannot_be_read_is_named_without_its_content_and_skipped() {
    let faults = |secret: SecretContent| {
        let read = read(&[secret, config_json(json!({"r.io": user("good")}))]);
        assert_eq!(users(&read.keyring, "r.io/x"), "good");
        let lines: Vec<_> = read.faults.iter().map(ToString::to_string).collect();
        lines.join("\n")
    };
    let check = |secret, expected: &str| assert_eq!(faults(secret), expected);
    let origin = "secret ns/regcred, key .dockerconfigjson";
    check(
        secret(TYPE_CONFIG_JSON, ".dockerconfigjson", "{\"auths\": hunter2"),
        &format!(
            "{origin}: not valid docker config JSON (line 1, column 11): \
             make it again with `kubectl create secret docker-registry` or `docker login`"
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
             make it again with `kubectl create secret docker-registry` or `docker login`"
        ),
    );
    check(
        config_json(json!({"b.io": "hunter2", "c.io": {"auth": "aHVudGVyMg=="}, "d d": {}})),
        &format!(
            "{origin}: entry \"b.io\" is skipped: it must be an object whose fields are text \
             (username, password, auth)\n\
             {origin}: entry \"c.io\" is skipped: auth must be base64 of username:password\n\
             {origin}: entry \"d d\" is skipped: its name is no registry address such as \
             registry.example.com:5000/team"
        ),
    );
}

#[test]
fn a_keyring_shows_nothing_of_itself() {
    let read = read(&[config_json(json!({"r.io": user("a")}))]);
    let text = format!("{read:?}");
    assert_eq!(
        text,
        "ReadCredentials { keyring: Keyring(1 entries), faults: [] }"
    );
}
