//! Certificates of both ends, and what happens when they change.

use http::Version;
use rcgen::ExtendedKeyUsagePurpose;
use rustls_pki_types::CertificateDer;
use tokio::sync::watch;
use windlass_https::{ClientCa, ServingCertificate, files};

use crate::kit::{Authority, Http, Server, soon};

const GOOD: &str = "certificate of 1 bytes";

/// Who the server says is asking.
#[track_caller]
fn check(answer: Result<String, String>, expected: &str) {
    let line = answer.unwrap_or_else(|error| format!("failed: {error}"));
    assert!(line.starts_with(expected), "{line:?} is not {expected:?}");
}

#[tokio::test]
async fn a_client_may_show_a_certificate_and_need_not() {
    let server = Server::start().await;
    let good = server.clients.client("jane");
    check(server.get(Some(&good), "/who").await, GOOD);
    check(server.get(None, "/who").await, "no certificate");
}

#[tokio::test]
async fn a_certificate_that_is_worth_nothing_is_refused_by_the_request_not_by_the_handshake() {
    let server = Server::start().await;
    let refused = "refused: the client certificate is not accepted: ";
    let other = Authority::new("clients").client("jane");
    check(server.get(Some(&other), "/who").await, refused);
    let unknown = Authority::new("strangers").client("jane");
    // the server's hints keep a client from showing what is of no use
    check(server.get(Some(&unknown), "/who").await, refused);
    let over = server
        .clients
        .issue("jane", -1, ExtendedKeyUsagePurpose::ClientAuth);
    check(
        server.get(Some(&over), "/who").await,
        &format!("{refused}invalid peer certificate: certificate expired"),
    );
    let servers = server
        .clients
        .issue("jane", 10, ExtendedKeyUsagePurpose::ServerAuth);
    check(server.get(Some(&servers), "/who").await, refused);
}

#[tokio::test]
async fn a_connection_does_not_outlive_its_certificate() {
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
        check(http.get("/who").await, "refused: ");
        server.clock.pass_days(-11);
    }
}

#[tokio::test]
async fn a_connection_does_not_outlive_the_authority_of_its_certificate() {
    let server = Server::start().await;
    let old = server.clients.client("jane");
    let stream = server.connect(Some(&old)).await.expect("connected");
    let mut http = Http::over(stream, Version::HTTP_11).await;
    check(http.get("/who").await, GOOD);
    let next = Authority::new("next");
    let new = next.client("jane");
    let ca = ClientCa::from_pem(next.pem.as_bytes()).expect("a bundle");
    server.client_ca.send_replace(ca);
    check(http.get("/who").await, "refused: ");
    check(server.get(Some(&old), "/who").await, "refused: ");
    check(server.get(Some(&new), "/who").await, GOOD);
}

#[tokio::test]
async fn a_refusal_is_remembered_for_ten_seconds_and_by_the_authority_that_refused() {
    let server = Server::start().await;
    let good = server.clients.client("jane");
    let day = 86_400;
    // a minute before it begins to be valid
    server.clock.pass_seconds(-10 * day - 60);
    let stream = server.connect(Some(&good)).await.expect("connected");
    let mut http = Http::over(stream, Version::HTTP_11).await;
    check(http.get("/who").await, "refused: ");
    server.clock.pass_seconds(55);
    check(http.get("/who").await, "refused: ");
    // it is valid by now, and was judged six seconds ago
    server.clock.pass_seconds(6);
    check(http.get("/who").await, "refused: ");
    server.clock.pass_seconds(4);
    check(http.get("/who").await, GOOD);
    server.clock.pass_seconds(-12);
    check(http.get("/who").await, "refused: ");
    server.clock.pass_seconds(6);
    check(http.get("/who").await, "refused: ");
    let same = ClientCa::from_pem(server.clients.pem.as_bytes()).expect("a bundle");
    server.client_ca.send_replace(same);
    server.clock.pass_seconds(1);
    check(http.get("/who").await, GOOD);
}

#[tokio::test]
async fn without_a_certificate_handshakes_fail_until_there_is_one() {
    let server = Server::start().await;
    server.certificate.send_replace(None);
    check(server.get(None, "/who").await, "failed: ");
    let pair = server.servers.server();
    let pair = ServingCertificate::from_pem(pair.as_bytes()).expect("a pair");
    server.certificate.send_replace(Some(pair));
    check(server.get(None, "/who").await, "no certificate");
}

#[tokio::test]
async fn the_next_connection_sees_the_certificate_of_the_moment() {
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
async fn files_are_taken_over_when_they_change_and_a_torn_pair_changes_nothing() {
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
    // the certificate without its key: in between, nothing works less than before
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
async fn a_client_ca_file_that_changes_is_taken_over_and_a_bad_one_is_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ca.crt");
    let (first, second) = (Authority::new("first"), Authority::new("second"));
    std::fs::write(&path, &first.pem).expect("written");
    let bundle = files::Bundle::new(&path);
    let (sender, mut current) = watch::channel(bundle.read().await.expect("a bundle"));
    let following = tokio::spawn(bundle.follow(sender));
    // what it reads first
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
async fn a_pair_that_somebody_else_obtains_is_served() {
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
fn what_is_no_pair_or_bundle_is_said() {
    let authority = Authority::new("a");
    let (one, two) = (authority.server(), authority.server());
    let of = |text: &str| match ServingCertificate::from_pem(text.as_bytes()) {
        Ok(_) => "a pair".to_owned(),
        Err(error) => error.to_string(),
    };
    assert_eq!(of(&one), "a pair");
    assert_eq!(of(""), "there is no certificate in it");
    let certificate = one
        .split("-----BEGIN PRIVATE")
        .next()
        .expect("a certificate");
    assert!(
        of(certificate).starts_with("not readable as PEM"),
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
