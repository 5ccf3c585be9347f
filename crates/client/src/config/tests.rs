//! Valid and invalid kubeconfigs.

use std::os::unix::fs::PermissionsExt;

use rcgen::{CertificateParams, KeyPair};

use super::*;

/// PEM text of a certificate, and of its key.
fn pem() -> (String, String) {
    let key = KeyPair::generate().expect("key");
    let params = CertificateParams::new(vec!["n1".to_owned()]).expect("params");
    let certificate = params.self_signed(&key).expect("certificate");
    (certificate.pem(), key.serialize_pem())
}

/// A kubeconfig with these fields of cluster and user, in a directory with some files.
fn load(cluster: &str, user: &str) -> Result<ApiServerConfig, String> {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{{cluster}}}}}]\n\
         users: [{{name: u, user: {{{user}}}}}]\n"
    );
    load_text(&text)
}

fn load_text(text: &str) -> Result<ApiServerConfig, String> {
    let directory = tempfile::tempdir().expect("directory");
    let (certificate, key) = pem();
    let (other, _) = pem();
    let write = |name: &str, text: &str| {
        std::fs::write(directory.path().join(name), text).expect("file");
    };
    write("ca.crt", &other);
    write("empty.crt", "nothing here\n");
    write("current.pem", &format!("{certificate}{key}"));
    write("client.crt", &certificate);
    write("client.key", &key);
    write("other.crt", &other);
    write("kubeconfig", text);
    ApiServerConfig::from_kubeconfig(&directory.path().join("kubeconfig")).map_err(|error| {
        let prefix = format!("{}/", directory.path().display());
        error.to_string().replace(&prefix, "")
    })
}

const SERVER: &str = "server: 'https://10.0.0.1:6443'";

#[test]
fn kubeconfig_of_the_kubelet_is_read() {
    let cluster = format!("{SERVER}, certificate-authority: ca.crt, tls-server-name: kubernetes");
    let user = "client-certificate: current.pem, client-key: current.pem";
    let config = load(&cluster, user).expect("config");
    assert_eq!(config.server().to_string(), "https://10.0.0.1:6443/");
    assert_eq!(config.authorities().len(), 1);
    assert!(config.identity().expires_at().is_some());
    assert_eq!(format!("{:?}", config.source), "None");
    assert!(config.server_name.is_some());
}

#[test]
fn credentials_come_from_files_and_data_and_tokens() {
    let (certificate, key) = pem();
    let data = |text: &str| STANDARD.encode(text);
    let both = format!(
        "client-certificate-data: {}, client-key-data: {}",
        data(&certificate),
        data(&key)
    );
    let cases = [
        (both.as_str(), true, "None"),
        (
            "client-certificate: client.crt, client-key: client.key",
            true,
            "None",
        ),
        ("token: abc", false, "Fixed(..)"),
        ("username: me, password: secret", false, "Fixed(..)"),
        (
            "exec: {apiVersion: client.authentication.k8s.io/v1, command: aws}",
            false,
            "Plugin(aws)",
        ),
        ("", false, "None"),
    ];
    for (user, certificate, source) in cases {
        let config = load(SERVER, user).expect(user);
        assert_eq!(config.identity().is_present(), certificate, "{user}");
        assert_eq!(format!("{:?}", config.source), source, "{user}");
    }
    let token = load(SERVER, "token: abc, tokenFile: token").expect("config");
    let source = format!("{:?}", token.source);
    assert!(
        source.ends_with("/token)"),
        "beside the kubeconfig: {source}"
    );
}

#[test]
fn credentials_are_not_sent_without_tls() {
    let server = "server: 'http://10.0.0.1:8080'";
    for user in [
        "token: hunter2",
        "username: me, password: hunter2",
        "client-certificate: client.crt, client-key: client.key",
    ] {
        let config = load(server, user).expect(user);
        assert!(!config.has_header(), "{user}");
        assert!(!config.identity().is_present(), "{user}");
    }
}

#[test]
fn empty_field_counts_as_missing() {
    let config = load(SERVER, "tokenFile: '', token: abc").expect("config");
    assert_eq!(format!("{:?}", config.source), "Fixed(..)");
    let config = load(SERVER, "token: '', username: ''").expect("config");
    assert!(!config.has_header());
}

#[test]
fn debug_output_contains_no_secret() {
    let config = load(SERVER, "token: hunter2").expect("config");
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn unusable_cluster_error_names_field_and_fix() {
    let both = format!("{SERVER}, insecure-skip-tls-verify: true, certificate-authority: ca.crt");
    let empty = format!("{SERVER}, certificate-authority: empty.crt");
    let missing = format!("{SERVER}, certificate-authority: none.crt");
    let bad = format!("{SERVER}, certificate-authority-data: '%%'");
    let proxy = format!("{SERVER}, proxy-url: 'ftp://user:hunter2@proxy:3128'");
    let name = format!("{SERVER}, tls-server-name: 'a b'");
    let url = "kubeconfig: clusters[k].cluster.server: must be a URL such as https://10.0.0.1:6443";
    let cases = [
        ("", url),
        ("server: 10.0.0.1", url),
        ("server: 'ftp://10.0.0.1'", url),
        (
            &both,
            "kubeconfig: clusters[k].cluster.insecure-skip-tls-verify: set together with a certificate authority; remove one of the two",
        ),
        (
            &empty,
            "kubeconfig: clusters[k].cluster.certificate-authority: no certificates found; must be PEM text with CERTIFICATE blocks",
        ),
        (
            &missing,
            "kubeconfig: clusters[k].cluster.certificate-authority: none.crt: No such file or directory (os error 2)",
        ),
        (
            &bad,
            "kubeconfig: clusters[k].cluster.certificate-authority-data: not base64; encode the PEM text with base64 -w0",
        ),
        (
            &proxy,
            "kubeconfig: clusters[k].cluster.proxy-url: unsupported scheme; use http, https or socks5",
        ),
        (
            &name,
            "kubeconfig: clusters[k].cluster.tls-server-name: not a DNS name or IP address",
        ),
    ];
    for (cluster, expected) in cases {
        assert_eq!(load(cluster, "").expect_err(cluster), expected, "{cluster}");
    }
}

#[test]
fn unusable_user_error_names_field_and_fix() {
    let cases = [
        (
            "client-key: client.key",
            "kubeconfig: users[u].user.client-certificate: missing; a client-key needs one",
        ),
        (
            "client-certificate: client.crt",
            "kubeconfig: users[u].user.client-key: missing; a client-certificate needs one",
        ),
        (
            "client-certificate: none.crt, client-key: client.key",
            "kubeconfig: users[u].user.client-certificate: none.crt: No such file or directory (os error 2)",
        ),
        (
            "client-certificate: empty.crt, client-key: client.key",
            "kubeconfig: users[u].user.client-certificate: no CERTIFICATE block in the PEM text of the client certificate",
        ),
        (
            "client-certificate: client.crt, client-key: client.crt",
            "kubeconfig: users[u].user.client-certificate: no PRIVATE KEY block in the PEM text of the client certificate and its key",
        ),
        (
            "client-certificate: other.crt, client-key: client.key",
            "kubeconfig: users[u].user.client-certificate: unusable client certificate or key: keys may not be consistent: KeyMismatch",
        ),
        (
            "as: admin",
            "kubeconfig: users[u].user.as: impersonation is not supported; remove it, a node acts as itself",
        ),
        (
            "auth-provider: {name: gcp}",
            "kubeconfig: users[u].user.auth-provider: not supported, nor by upstream since 1.26; use exec or a client certificate",
        ),
        (
            "token: \"a\\nb\"",
            "kubeconfig: users[u].user.token: has characters that are not allowed in an HTTP header",
        ),
    ];
    for (user, expected) in cases {
        assert_eq!(load(SERVER, user).expect_err(user), expected, "{user}");
    }
}

#[test]
fn missing_entry_error_names_the_entry() {
    let context = "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n";
    let cluster = format!("{context}clusters: [{{name: k, cluster: {{{SERVER}}}}}]\n");
    let cases = [
        (
            "{}",
            "kubeconfig: current-context: not set; name one of the contexts",
        ),
        (
            "current-context: c",
            "kubeconfig: current-context: there is no context \"c\"; add it to contexts",
        ),
        (
            context,
            "kubeconfig: contexts[c].context.cluster: there is no cluster \"k\"; add it to clusters",
        ),
        (
            &cluster,
            "kubeconfig: contexts[c].context.user: there is no user \"u\"; add it to users",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(load_text(text).expect_err(text), expected, "{text}");
    }
}

#[test]
fn yaml_error_does_not_repeat_the_text() {
    let error = load_text("users:\n- name: u\n  user: [token: hunter2").expect_err("bad");
    assert!(
        error.starts_with("kubeconfig: not a kubeconfig in YAML"),
        "{error}"
    );
    assert!(!error.contains("hunter2"), "{error}");
}

#[test]
fn written_kubeconfig_is_private_and_readable() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("new/kubeconfig");
    let (certificate, key) = pem();
    let current = directory.path().join("current.pem");
    std::fs::write(&current, format!("{certificate}{key}")).expect("file");
    let joining = load(SERVER, "token: joining").expect("config");
    for _ in 0..2 {
        let written = joining.write_kubeconfig(&path, &current, &current);
        written.expect("written");
    }
    let mode = std::fs::metadata(&path).expect("file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let config = ApiServerConfig::from_kubeconfig(&path).expect("config");
    assert_eq!(config.server(), joining.server());
    assert!(config.identity().is_present());
    let left = std::fs::read_dir(path.parent().expect("parent")).expect("directory");
    assert_eq!(left.count(), 1, "no temporary file is left");
}

#[test]
fn written_kubeconfig_keeps_trust_but_not_credentials() {
    let check = |trust: &str, expected: &str| {
        let cluster = format!("{SERVER}, {trust}");
        let config = load(&cluster, "token: joining").expect("config");
        assert!(config.has_header());
        let directory = tempfile::tempdir().expect("directory");
        let (certificate, key) = pem();
        let pair = directory.path().join("pair.pem");
        std::fs::write(&pair, format!("{certificate}{key}")).expect("file");
        let path = directory.path().join("kubelet.conf");
        config
            .write_kubeconfig(&path, &pair, &pair)
            .expect("written");
        let again = ApiServerConfig::from_kubeconfig(&path).expect("config");
        assert_eq!(again.server(), config.server());
        assert_eq!(again.authorities(), config.authorities());
        assert!(again.identity().is_present() && !again.has_header());
        let trust = match again.trust {
            Trust::Authorities(_) => "authorities",
            Trust::System => "system",
            Trust::Anything => "anything",
        };
        let name = again.server_name.map(|name| name.to_str().into_owned());
        assert_eq!(format!("{trust} {name:?}"), expected);
    };
    check("certificate-authority: ca.crt", "authorities None");
    check("tls-server-name: kubernetes", "system Some(\"kubernetes\")");
    check("insecure-skip-tls-verify: true", "anything None");
}
