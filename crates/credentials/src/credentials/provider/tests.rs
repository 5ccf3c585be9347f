//! Configuration files, requests and responses.

use super::*;

const ENTRY: &str = "{name: ecr, matchImages: ['*.dkr.ecr.io', 'r.io:80/team'], \
                     defaultCacheDuration: 12h, apiVersion: credentialprovider.kubelet.k8s.io/v1}";

fn read(providers: &[&str]) -> Result<ReadProviders, Vec<ProviderError>> {
    let list: String = providers.iter().map(|p| format!("- {p}\n")).collect();
    let kind = "kind: CredentialProviderConfig\napiVersion: kubelet.config.k8s.io/v1\n";
    let text = format!("{kind}providers:\n{list}");
    read_providers(text.as_bytes(), &mut BTreeSet::new(), true)
}

fn account(token: &str) -> PluginAccount {
    PluginAccount {
        object: ObjectCoordinates {
            uid: "u1".to_owned(),
            namespace: "team".to_owned(),
            name: "robot".to_owned(),
        },
        annotations: BTreeMap::from([("r.io/role".to_owned(), "pull".to_owned())]),
        token: Token(token.to_owned()),
    }
}

/// A plugin that receives tokens and caches by this type.
fn with_tokens(cache: &str) -> CredentialProvider {
    let attributes = format!(
        "tokenAttributes: {{serviceAccountTokenAudience: r, requireServiceAccount: true, \
         cacheType: {cache}}}"
    );
    let entry = ENTRY.replace("name: ecr", &format!("name: ecr, {attributes}"));
    let read = read(&[&entry]).expect("a plugin");
    read.providers.into_iter().next().expect("one")
}

fn plugin() -> CredentialProvider {
    let read = read(&[ENTRY]).expect("a plugin");
    assert!(read.warnings.is_empty(), "{:?}", read.warnings);
    read.providers.into_iter().next().expect("one")
}

fn image(name: &str) -> ImageName {
    ImageName::parse(name).expect("an image")
}

#[test]
fn config_errors_name_field_and_fix() {
    fn check(providers: &[&str], expected: &[&str]) {
        let lines: Vec<String> = match read(providers) {
            Ok(read) => read.warnings,
            Err(errors) => errors.iter().map(ToString::to_string).collect(),
        };
        assert_eq!(lines, expected, "{providers:?}");
    }
    check(&[ENTRY], &[]);
    check(&[], &["providers: at least one is required"]);
    check(
        &["{name: a/b, matchImages: [], apiVersion: v1}"],
        &[
            "providers[0].name: \"a/b\" must be a program name without path and spaces",
            "providers[0].apiVersion: unknown version \"v1\"; write credentialprovider.kubelet.k8s.io/v1",
            "providers[0].matchImages: at least one is required, such as registry.io or *.registry.io/path",
            "providers[0].defaultCacheDuration: missing or negative; write a duration, 0s to disable caching",
        ],
    );
    let odd = ENTRY.replace("'*.dkr.ecr.io'", "'a b'");
    check(
        &[&odd],
        &["providers[0].matchImages[0]: \"a b\" must be a host with optional port and path"],
    );
    check(
        &[ENTRY, ENTRY],
        &["providers[1].name: duplicate name \"ecr\""],
    );
    let typo = ENTRY.replace("name: ecr", "name: ecr, nmae: x");
    check(&[&typo], &["providers[0].nmae: unknown field, ignored"]);
    let other = read_providers(b"kind: Pod\nproviders: 7", &mut BTreeSet::new(), true);
    let errors = other.expect_err("no list");
    let text = errors[0].to_string();
    assert!(
        text.contains("line 2") && text.contains("providers"),
        "{text}"
    );
    let other = read_providers(b"kind: Pod", &mut BTreeSet::new(), true).expect_err("a pod");
    assert_eq!(
        other[0].to_string(),
        "unexpected kind \"Pod\" of \"\"; write kind CredentialProviderConfig and apiVersion \
         kubelet.config.k8s.io/v1"
    );
}

#[test]
fn plugin_is_executed_for_matching_images() {
    let plugin = plugin();
    for (name, expected) in [
        ("1.dkr.ecr.io/web:1", true),
        ("a.1.dkr.ecr.io/web", false),
        ("r.io:80/team/web@sha256:", false),
        ("r.io:80/team/web", true),
        ("r.io:80/other", false),
        ("r.io/team/web", false),
        ("web", false),
    ] {
        let is_match = ImageName::parse(name).is_ok_and(|name| plugin.is_for(&name));
        assert_eq!(is_match, expected, "{name}");
    }
    assert_eq!(
        plugin.request(&image("1.dkr.ecr.io/web:1"), None),
        r#"{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"1.dkr.ecr.io/web","kind":"CredentialProviderRequest"}"#
    );
}

#[test]
fn response_has_credentials_cache_key_and_lifetime() {
    fn check(rest: &str, expected: &str) {
        let head = "{\"kind\": \"CredentialProviderResponse\", \
                    \"apiVersion\": \"credentialprovider.kubelet.k8s.io/v1\", ";
        let image = image("1.dkr.ecr.io/web:1");
        let line = match plugin().read_response(&image, None, format!("{head}{rest}").as_bytes()) {
            Ok(response) => {
                let users = response.keyring.lookup("1.dkr.ecr.io/web:1");
                let users: Vec<&str> = users.iter().map(|a| a.username.as_str()).collect();
                format!("{users:?} {} {:?}", response.key, response.lifetime)
            }
            Err(what) => what,
        };
        assert_eq!(line, expected, "{rest}");
    }
    let auth = r#""auth": {"*.dkr.ecr.io": {"username": "u", "password": "p"}}"#;
    let with = |key: &str| format!("\"cacheKeyType\": \"{key}\", {auth}}}");
    check(&with("Image"), "[\"u\"] 1.dkr.ecr.io/web 43200s");
    check(&with("Registry"), "[\"u\"] 1.dkr.ecr.io 43200s");
    check(&with("Global"), "[\"u\"] <global> 43200s");
    check(
        &with("Host"),
        "cacheKeyType is \"Host\", not Image, Registry or Global",
    );
    let short = format!("\"cacheKeyType\": \"Image\", \"cacheDuration\": \"0s\", {auth}}}");
    check(&short, "[\"u\"] 1.dkr.ecr.io/web 0ns");
    // a response without credentials is valid
    check(r#""cacheKeyType": "Image"}"#, "[] 1.dkr.ecr.io/web 43200s");
    let text = "not a CredentialProviderResponse in JSON (line 1, column 109)";
    check("\"auth\": \"secret\"", text);
    let image = image("1.dkr.ecr.io/web:1");
    let old = br#"{"kind": "CredentialProviderResponse", "apiVersion": "v0"}"#;
    assert_eq!(
        plugin()
            .read_response(&image, None, old)
            .expect_err("another version"),
        "\"CredentialProviderResponse\" of \"v0\", not CredentialProviderResponse of \
         \"credentialprovider.kubelet.k8s.io/v1\""
    );
}

#[test]
fn request_with_account_has_token_and_annotations() {
    let image = image("1.dkr.ecr.io/web:1");
    let request = with_tokens("Token").request(&image, Some(&account("t1")));
    assert_eq!(
        request,
        r#"{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"1.dkr.ecr.io/web","kind":"CredentialProviderRequest","serviceAccountAnnotations":{"r.io/role":"pull"},"serviceAccountToken":"t1"}"#
    );
    let plain = PluginAccount {
        annotations: BTreeMap::new(),
        ..account("t1")
    };
    let request = with_tokens("Token").request(&image, Some(&plain));
    assert!(!request.contains("Annotations"), "{request}");
}

#[test]
fn cache_keys_differ_by_account_and_by_token_if_configured() {
    let image = image("1.dkr.ecr.io/web:1");
    let by_account = with_tokens("ServiceAccount");
    let by_token = with_tokens("Token");
    let key = |plugin: &CredentialProvider, account: Option<&PluginAccount>| {
        plugin.cache_keys(&image, account)[1].clone()
    };
    let first = account("t1");
    assert_eq!(key(&by_account, None), "1.dkr.ecr.io");
    assert_eq!(
        key(&by_account, Some(&first)),
        r#"1.dkr.ecr.io ["team","robot","u1",{"r.io/role":"pull"},null]"#
    );
    let renewed = account("t2");
    assert_eq!(
        key(&by_account, Some(&first)),
        key(&by_account, Some(&renewed))
    );
    assert_ne!(key(&by_token, Some(&first)), key(&by_token, Some(&renewed)));
    assert!(
        !key(&by_token, Some(&first)).contains("t1"),
        "only its hash"
    );
    let mut other = vec![account("t1"); 4];
    other[0].object.uid = "u2".to_owned();
    other[1].object.name = "other".to_owned();
    other[2].object.namespace = "other".to_owned();
    other[3].annotations.clear();
    for other in &other {
        let keys = (
            key(&by_account, Some(&first)),
            key(&by_account, Some(other)),
        );
        assert_ne!(keys.0, keys.1, "{other:?}");
    }
}

#[test]
fn response_for_account_is_tracked_and_must_not_echo_token() {
    let image = image("1.dkr.ecr.io/web:1");
    let output = r#"{"kind": "CredentialProviderResponse",
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1", "cacheKeyType": "Image",
        "auth": {"*.dkr.ecr.io": {"username": "u", "password": "t1"}}}"#;
    let read = |cache: &str, token: &str| {
        let account = account(token);
        with_tokens(cache).read_response(&image, Some(&account), output.as_bytes())
    };
    let source = Some(CredentialSource::ServiceAccount(account("t1").object));
    for (cache, token) in [("ServiceAccount", "other"), ("Token", "t1")] {
        let response = read(cache, token).expect("credentials");
        let found = response.keyring.lookup_tracked("1.dkr.ecr.io/web:1");
        assert_eq!((found.len(), &found[0].source), (1, &source), "{cache}");
    }
    assert_eq!(
        read("ServiceAccount", "t1").expect_err("the token"),
        "Credential provider plugin returned the service account token as the password for image \
         \"1.dkr.ecr.io/web\", which is not allowed when service account cache type is not set to \
         'Token'"
    );
}
