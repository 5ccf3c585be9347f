//! The clients over sockets and TLS.

#![allow(clippy::expect_used, reason = "a helper of a test fails it")]

mod support;

use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use support::logbook::Logbook;
use support::{Authority, Proxy, Server};
use tokio::time::Instant;
use windlass_client::{
    ApiClient, ApiClients, ApiErrorKind, ApiResult, ApiServerConfig, ClientIdentity, ClientLimits,
    ObjectKey, Selector, Watch,
};

const BOTH: [&str; 2] = ["h2", "http/1.1"];

fn config(server: &Server) -> ApiServerConfig {
    let url = format!("https://{}", server.address);
    ApiServerConfig::new(&url, Some(server.ca.as_bytes())).expect("config")
}

fn connect(config: &ApiServerConfig) -> ApiClients {
    ApiClients::connect(config, &ClientLimits::default()).expect("clients")
}

async fn get(client: &ApiClient) -> ApiResult<Node> {
    client.get::<Node>(ObjectKey::cluster("n1")).await
}

fn from_zero() -> Watch {
    Watch {
        resource_version: "0".to_owned(),
        initial_events: false,
    }
}

#[tokio::test]
async fn requests_share_one_http2_connection_and_send_a_user_agent() {
    let authority = Authority::new();
    let server = Server::start(&authority, &BOTH).await;
    let clients = connect(&config(&server));
    let answers = join_all((0..20).map(|_| get(&clients.main))).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let seen = server.last();
    assert_eq!(seen.version, http::Version::HTTP_2);
    assert!(seen.agent.starts_with("windlass/"), "{}", seen.agent);
    assert_eq!(seen.path, "/api/v1/nodes/n1");
    assert_eq!(server.connections(), 1);
    get(&clients.heartbeat).await.expect("heartbeat");
    assert_eq!(server.connections(), 2, "heartbeats have their own");
}

#[tokio::test]
async fn goaway_of_the_server_fails_no_request() {
    let authority = Authority::new();
    let server = Server::start(&authority, &BOTH).await;
    let clients = connect(&config(&server));
    let rounds = async {
        for round in 1..=5 {
            // the old connection may be used until the GOAWAY has arrived
            while server.connections() < round {
                get(&clients.main).await.expect("no request is lost");
            }
            server.send_goaway();
        }
    };
    let deadline = Duration::from_secs(20);
    let done = tokio::time::timeout(deadline, rounds).await;
    assert!(done.is_ok(), "{} connections", server.connections());
}

#[tokio::test]
async fn requests_are_counted_by_code_host_and_method() {
    let server = Server::plain().await;
    let url = format!("http://{}", server.address);
    let metrics = windlass_metrics::Metrics::new().expect("metrics");
    let clients = connect(&ApiServerConfig::new(&url, None).expect("config"));
    let clients = clients.with_metrics(&metrics.rest_client);
    get(&clients.main).await.expect("get");
    get(&clients.heartbeat).await.expect("get");
    *server.wanted.lock().expect("lock") = Some("Bearer x".to_owned());
    get(&clients.main).await.expect_err("unauthorized");
    let text = metrics.render().expect("text");
    let host = server.address;
    for (code, count) in [(200, 2), (401, 1)] {
        let line = format!(
            "rest_client_requests_total{{code=\"{code}\",host=\"{host}\",method=\"GET\"}} {count}\n"
        );
        assert!(text.contains(&line), "{line} in {text}");
    }
    let line =
        format!("rest_client_request_duration_seconds_count{{host=\"{host}\",verb=\"GET\"}} 3\n");
    assert!(text.contains(&line), "{line} in {text}");
}

#[tokio::test]
async fn next_request_uses_a_replaced_client_certificate() {
    let authority = Authority::new();
    let server = Server::start(&authority, &BOTH).await;
    let identity = ClientIdentity::none();
    let clients = connect(&config(&server).with_identity(identity.clone()));
    get(&clients.main).await.expect("get");
    assert_eq!(server.last().common_name, None);

    let names = ["system:node:a", "system:node:b", "system:node:c"];
    for name in names {
        let pem = authority.issue(name, &[]);
        identity.replace_pem(pem.as_bytes()).expect("certificate");
        assert!(identity.expires_at().is_some());
        get(&clients.main).await.expect("get");
        assert_eq!(server.last().common_name.as_deref(), Some(name));
        let connections = server.connections();
        identity.replace_pem(pem.as_bytes()).expect("the same");
        get(&clients.main).await.expect("get");
        assert_eq!(server.connections(), connections, "nothing changed");
    }
    assert!(identity.replace_pem(b"no certificate").is_err());
    get(&clients.main).await.expect("the old one stays");
    assert_eq!(server.last().common_name.as_deref(), Some(names[2]));
}

#[tokio::test]
async fn watches_use_several_connections_and_block_nothing() {
    let authority = Authority::new();
    let server = Server::start(&authority, &BOTH).await;
    let clients = connect(&config(&server));
    let (selector, from) = (Selector::default(), from_zero());
    let open = || clients.watch.watch::<Pod>(&selector, &from);
    let watches = join_all((0..150).map(|_| open())).await;
    assert!(watches.iter().all(Result::is_ok));
    assert_eq!(server.connections(), 2, "80 and 70 streams");
    get(&clients.main).await.expect("not held up");
    assert_eq!(server.connections(), 3);
    drop(watches);
    let again = join_all((0..80).map(|_| open())).await;
    assert!(again.iter().all(Result::is_ok));
    assert_eq!(server.connections(), 3, "room that was given back is used");
}

#[tokio::test]
async fn http1_only_server_works() {
    let authority = Authority::new();
    let server = Server::start(&authority, &["http/1.1"]).await;
    let clients = connect(&config(&server));
    for _ in 0..3 {
        get(&clients.main).await.expect("get");
    }
    assert_eq!(server.last().version, http::Version::HTTP_11);
    let (selector, from) = (Selector::default(), from_zero());
    let watch = clients.watch.watch::<Pod>(&selector, &from).await;
    let other = clients.watch.watch::<Pod>(&selector, &from).await;
    assert!(watch.is_ok() && other.is_ok(), "one connection for each");
}

#[tokio::test]
async fn plain_http_works_behind_a_path_prefix() {
    let server = Server::plain().await;
    let url = format!("http://{}/clusters/c1", server.address);
    let clients = connect(&ApiServerConfig::new(&url, None).expect("config"));
    get(&clients.main).await.expect("get");
    assert_eq!(server.last().path, "/clusters/c1/api/v1/nodes/n1");
}

#[tokio::test]
async fn black_holed_connection_is_replaced_by_the_next_request() {
    let authority = Authority::new();
    let server = Server::start(&authority, &BOTH).await;
    let proxy = Proxy::start(server.address).await;
    let url = format!("https://{}", proxy.address);
    let config = ApiServerConfig::new(&url, Some(server.ca.as_bytes())).expect("config");
    let limits = ClientLimits {
        heartbeat_timeout: Duration::from_secs(2),
        ..ClientLimits::default()
    };
    let clients = ApiClients::connect(&config, &limits).expect("clients");
    get(&clients.heartbeat).await.expect("get");
    assert_eq!(server.connections(), 1);

    proxy.freeze();
    let began = Instant::now();
    let error = get(&clients.heartbeat).await.expect_err("black hole");
    assert_eq!(error.kind, ApiErrorKind::Timeout, "{error}");
    get(&clients.heartbeat).await.expect("a new connection");
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn server_certificate_of_another_ca_is_rejected() {
    let server = Server::start(&Authority::new(), &BOTH).await;
    let url = format!("https://{}", server.address);
    let other = Authority::new().pem;
    let config = ApiServerConfig::new(&url, Some(other.as_bytes())).expect("config");
    let error = get(&connect(&config).main).await.expect_err("untrusted");
    assert_eq!(error.kind, ApiErrorKind::Connection);
    assert!(error.message.contains("certificate"), "{error}");
}

#[tokio::test]
async fn server_is_verified_by_ca_and_name_unless_disabled() {
    let authority = Authority::new();
    let server = Server::start(&authority, &BOTH).await;
    let check = async |cluster: &str, accepted: bool| {
        let directory = tempfile::tempdir().expect("directory");
        let kubeconfig = directory.path().join("kubeconfig");
        std::fs::write(directory.path().join("ca.crt"), &server.ca).expect("ca");
        let text = format!(
            "current-context: c\n\
             contexts: [{{name: c, context: {{cluster: k}}}}]\n\
             clusters: [{{name: k, cluster: {{server: 'https://{}', {cluster}}}}}]\n",
            server.address
        );
        std::fs::write(&kubeconfig, text).expect("kubeconfig");
        let config = ApiServerConfig::from_kubeconfig(&kubeconfig).expect("config");
        match ApiClients::connect(&config, &ClientLimits::default()) {
            Ok(clients) => assert_eq!(get(&clients.main).await.is_ok(), accepted, "{cluster}"),
            // a system without CAs trusts no server
            Err(_) => assert!(!accepted, "{cluster}"),
        }
    };
    check("certificate-authority: ca.crt", true).await;
    let named = "certificate-authority: ca.crt, tls-server-name: localhost";
    check(named, true).await;
    let named = "certificate-authority: ca.crt, tls-server-name: elsewhere.example";
    check(named, false).await;
    check("insecure-skip-tls-verify: false", false).await;
    check("insecure-skip-tls-verify: true", true).await;
}

#[tokio::test]
async fn connection_error_names_the_address() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("port");
    let address = listener.local_addr().expect("address");
    drop(listener);
    let url = format!("http://{address}");
    let clients = connect(&ApiServerConfig::new(&url, None).expect("config"));
    let error = get(&clients.main).await.expect_err("no server");
    assert_eq!(error.kind, ApiErrorKind::Connection);
    assert!(error.message.contains(&address.to_string()), "{error}");
    assert!(error.message.contains("refused"), "{error}");
}

#[tokio::test]
async fn rejected_token_is_read_again_and_the_request_retried() {
    let authority = Authority::new();
    let server = Server::start(&authority, &BOTH).await;
    let directory = tempfile::tempdir().expect("directory");
    let token = directory.path().join("token");
    let kubeconfig = directory.path().join("kubeconfig");
    std::fs::write(directory.path().join("ca.crt"), &server.ca).expect("ca");
    std::fs::write(&token, "first\n").expect("token");
    let text = format!(
        "current-context: c\n\
         contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{server: 'https://{}', certificate-authority: ca.crt}}}}]\n\
         users: [{{name: u, user: {{tokenFile: token}}}}]\n",
        server.address
    );
    std::fs::write(&kubeconfig, text).expect("kubeconfig");
    let clients = connect(&ApiServerConfig::from_kubeconfig(&kubeconfig).expect("config"));
    get(&clients.main).await.expect("get");
    assert_eq!(server.last().authorization.as_deref(), Some("Bearer first"));

    *server.wanted.lock().expect("lock") = Some("Bearer second".to_owned());
    let error = get(&clients.main).await.expect_err("still the old one");
    assert_eq!(error.kind, ApiErrorKind::Unauthorized);
    std::fs::write(&token, "second\n").expect("token");
    get(&clients.main).await.expect("read again");
    assert_eq!(
        server.last().authorization.as_deref(),
        Some("Bearer second")
    );
}

#[tokio::test]
async fn log_contains_no_token_and_no_body() {
    let logbook = Logbook::default();
    let _guard = tracing::subscriber::set_default(logbook.clone());
    for protocol in BOTH {
        let authority = Authority::new();
        let server = Server::start(&authority, &[protocol]).await;
        let directory = tempfile::tempdir().expect("directory");
        let kubeconfig = directory.path().join("kubeconfig");
        std::fs::write(directory.path().join("ca.crt"), &server.ca).expect("ca");
        let text = format!(
            "current-context: c\n\
             contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
             clusters: [{{name: k, cluster: {{server: 'https://{}', certificate-authority: ca.crt}}}}]\n\
             users: [{{name: u, user: {{token: hunter2}}}}]\n",
            server.address
        );
        std::fs::write(&kubeconfig, text).expect("kubeconfig");
        let clients = connect(&ApiServerConfig::from_kubeconfig(&kubeconfig).expect("config"));
        let secret = Secret {
            string_data: Some([("key".to_owned(), "pass-phrase".to_owned())].into()),
            ..Secret::default()
        };
        // its answer is a Node
        let error = clients.main.create(Some("ns"), &secret).await;
        assert_eq!(error.expect_err("no Secret").kind, ApiErrorKind::Protocol);
        let sent = server.last().authorization;
        assert_eq!(sent.as_deref(), Some("Bearer hunter2"));
        *server.wanted.lock().expect("lock") = Some("Bearer x".to_owned());
        get(&clients.main).await.expect_err("unauthorized");
    }
    let text = logbook.text();
    assert!(text.contains("connected to the API server"), "{text}");
    assert!(
        !text.contains("hunter2") && !text.contains("pass-phrase"),
        "{text}"
    );
}
