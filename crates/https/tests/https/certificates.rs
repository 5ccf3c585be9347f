//! Certificates of server and client, and their replacement.

use http::Version;
use rcgen::ExtendedKeyUsagePurpose;
use rustls_pki_types::CertificateDer;
use tokio::sync::watch;
use windlass_https::{ClientCa, ServingCertificate, files};

use crate::kit::{Authority, Http, Server, soon};

const GOOD: &str = "certificate of 1 bytes";

/// Checks the response.
#[track_caller]
fn check(answer: Result<String, String>, expected: &str) {
    let line = answer.unwrap_or_else(|error| format!("failed: {error}"));
    assert!(line.starts_with(expected), "{line:?} is not {expected:?}");
}

#[tokio::test]
async fn client_certificate_is_optional() {
    let server = Server::start().await;
    let good = server.clients.client("jane");
    check(server.get(Some(&good), "/who").await, GOOD);
    check(server.get(None, "/who").await, "no certificate");
}

#[tokio::test]
async fn invalid_certificate_is_rejected_per_request_not_in_handshake() {
    let server = Server::start().await;
    let rejected = "rejected: the client certificate is not accepted: ";
    let other = Authority::new("clients").client("jane");
    check(server.get(Some(&other), "/who").await, rejected);
    let unknown = Authority::new("unknown").client("jane");
    // the client sends only certificates that match the server's CA names
    check(server.get(Some(&unknown), "/who").await, rejected);
    let over = server
        .clients
        .issue("jane", -1, ExtendedKeyUsagePurpose::ClientAuth);
    check(
        server.get(Some(&over), "/who").await,
        &format!("{rejected}invalid peer certificate: certificate expired"),
    );
    let servers = server
        .clients
        .issue("jane", 10, ExtendedKeyUsagePurpose::ServerAuth);
    check(server.get(Some(&servers), "/who").await, rejected);
}

#[tokio::test]
async fn connection_does_not_outlive_its_certificate() {
    let server = Server::start().await;
    let good = server.clients.client("jane");
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let alpn: &[u8] = if version == Version::HTTP_2 {
            b"h2"
        } else {
            b"http/1.1"
        };
        let dial = crate::kit::Dial {
            client: Some(&good),
            alpn,
            ..crate::kit::Dial::default()
        };
        let mut http = Http::over(server.dial(dial).await.expect("connected"), version).await;
        check(http.get("/who").await, GOOD);
        server.clock.pass_days(11);
        check(http.get("/who").await, "rejected: ");
        server.clock.pass_days(-11);
    }
}

#[tokio::test]
async fn connection_does_not_outlive_the_ca_of_its_certificate() {
    let server = Server::start().await;
    let old = server.clients.client("jane");
    let stream = server.connect(Some(&old)).await.expect("connected");
    let mut http = Http::over(stream, Version::HTTP_11).await;
    check(http.get("/who").await, GOOD);
    let next = Authority::new("next");
    let new = next.client("jane");
    let ca = ClientCa::from_pem(next.pem.as_bytes()).expect("a bundle");
    server.client_ca.send_replace(ca);
    check(http.get("/who").await, "rejected: ");
    check(server.get(Some(&old), "/who").await, "rejected: ");
    check(server.get(Some(&new), "/who").await, GOOD);
}

#[tokio::test]
async fn rejection_is_cached_for_ten_seconds_per_client_ca() {
    let server = Server::start().await;
    let good = server.clients.client("jane");
    let day = 86_400;
    // a minute before it becomes valid
    server.clock.pass_seconds(-10 * day - 60);
    let stream = server.connect(Some(&good)).await.expect("connected");
    let mut http = Http::over(stream, Version::HTTP_11).await;
    check(http.get("/who").await, "rejected: ");
    server.clock.pass_seconds(55);
    check(http.get("/who").await, "rejected: ");
    // valid now, but the rejection is six seconds old
    server.clock.pass_seconds(6);
    check(http.get("/who").await, "rejected: ");
    server.clock.pass_seconds(4);
    check(http.get("/who").await, GOOD);
    server.clock.pass_seconds(-12);
    check(http.get("/who").await, "rejected: ");
    server.clock.pass_seconds(6);
    check(http.get("/who").await, "rejected: ");
    let same = ClientCa::from_pem(server.clients.pem.as_bytes()).expect("a bundle");
    server.client_ca.send_replace(same);
    server.clock.pass_seconds(1);
    check(http.get("/who").await, GOOD);
}

#[tokio::test]
async fn handshakes_fail_until_there_is_a_certificate() {
    let server = Server::start().await;
    server.certificate.send_replace(None);
    check(server.get(None, "/who").await, "failed: ");
    let pair = server.servers.server();
    let pair = ServingCertificate::from_pem(pair.as_bytes()).expect("a pair");
    server.certificate.send_replace(Some(pair));
    check(server.get(None, "/who").await, "no certificate");
}

#[tokio::test]
async fn next_connection_gets_the_current_certificate() {
    let server = Server::start().await;
    let mut seen = Vec::new();
    for _ in 0..2 {
        let stream = server.connect(None).await.expect("connected");
        let (_, session) = stream.get_ref();
        let chain = session.peer_certificates().expect("a certificate");
        seen.push(chain[0].clone().into_owned());
        let pair = server.servers.server();
        let pair = ServingCertificate::from_pem(pair.as_bytes()).expect("a pair");
        server.certificate.send_replace(Some(pair));
    }
    assert_ne!(seen[0], seen[1], "the new one is shown at once");
}

#[tokio::test]
async fn changed_files_are_applied_and_a_torn_pair_is_ignored() {
    let server = Server::start().await;
    let directory = tempfile::tempdir().expect("a directory");
    let (crt, key) = (
        directory.path().join("tls.crt"),
        directory.path().join("tls.key"),
    );
    let write = |path: &std::path::Path, text: &str| {
        let beside = path.with_extension("new");
        std::fs::write(&beside, text).expect("written");
        std::fs::rename(&beside, path).expect("renamed");
    };
    let first = server.servers.server();
    write(&crt, &first);
    write(&key, &first);
    let pair = files::Pair::new(&crt, &key);
    let read = pair.read().await.expect("a pair");
    server.certificate.send_replace(Some(read));
    let following = tokio::spawn(pair.follow(server.certificate.clone()));
    let shown = async || -> CertificateDer<'static> {
        let stream = server.connect(None).await.expect("connected");
        let chain = stream
            .get_ref()
            .1
            .peer_certificates()
            .expect("a certificate");
        chain[0].clone().into_owned()
    };
    let before = shown().await;
    // the certificate without its key: the old pair stays in use
    let second = server.servers.server();
    let certificate = second.split_inclusive("-----END CERTIFICATE-----\n").next();
    let second_key = second.split("-----END CERTIFICATE-----\n").nth(1);
    let first_key = first.split("-----END CERTIFICATE-----\n").nth(1);
    write(&key, first_key.expect("a key"));
    write(&crt, certificate.expect("a certificate"));
    assert_eq!(shown().await, before);
    write(&key, second_key.expect("a key"));
    let replaced = async {
        while shown().await == before {
            tokio::task::yield_now().await;
        }
    };
    soon("the new pair", replaced).await;
    following.abort();
}

#[tokio::test]
async fn changed_client_ca_file_is_applied_unless_invalid() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ca.crt");
    let (first, second) = (Authority::new("first"), Authority::new("second"));
    std::fs::write(&path, &first.pem).expect("written");
    let bundle = files::Bundle::new(&path);
    let (sender, mut current) = watch::channel(bundle.read().await.expect("a bundle"));
    let following = tokio::spawn(bundle.follow(sender));
    // the first read
    soon("the first read", current.changed())
        .await
        .expect("followed");
    std::fs::write(&path, "nothing of use").expect("written");
    let both = format!("{}{}", first.pem, second.pem);
    std::fs::write(&path, &both).expect("written");
    let two = |ca: &ClientCa| format!("{ca:?}").contains("certificates: 2");
    soon("the second bundle", current.wait_for(two))
        .await
        .expect("followed");
    drop(current);
    soon("its end", following).await.expect("no panic");
    std::fs::remove_file(&path).expect("removed");
    let error = files::Bundle::new(&path).read().await.expect_err("gone");
    assert!(
        error.to_string().starts_with(&path.display().to_string()),
        "{error}"
    );
}

#[tokio::test]
async fn externally_obtained_pair_is_served() {
    let server = Server::start().await;
    let (pairs, receiver) = watch::channel(None::<String>);
    let (sender, mut current) = watch::channel(None);
    let parsing = files::parse_each(receiver, |pem| pem.clone().into_bytes(), sender);
    let parsing = tokio::spawn(parsing);
    pairs.send_replace(Some("junk".to_owned()));
    pairs.send_replace(Some(server.servers.server()));
    soon("a certificate", current.wait_for(Option::is_some))
        .await
        .expect("parsed");
    drop(pairs);
    soon("its end", parsing).await.expect("no panic");
}

#[test]
fn invalid_pair_or_bundle_is_an_error() {
    let authority = Authority::new("a");
    let (one, two) = (authority.server(), authority.server());
    let of = |text: &str| match ServingCertificate::from_pem(text.as_bytes()) {
        Ok(_) => "a pair".to_owned(),
        Err(error) => error.to_string(),
    };
    assert_eq!(of(&one), "a pair");
    assert_eq!(of(""), "no certificate found");
    let certificate = one
        .split("-----BEGIN PRIVATE")
        .next()
        .expect("a certificate");
    assert!(
        of(certificate).starts_with("cannot parse PEM"),
        "{}",
        of(certificate)
    );
    let key = two
        .split("-----END CERTIFICATE-----\n")
        .nth(1)
        .expect("a key");
    assert_eq!(
        of(&format!("{certificate}{key}")),
        "keys may not be consistent: KeyMismatch"
    );
    assert!(ClientCa::from_pem(b"").is_err());
}
