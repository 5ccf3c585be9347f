//! The registry with real sockets in a real directory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};
use windlass_metrics::Metrics;
use windlass_plugin_proto::pluginregistration_v1::registration_server::{
    Registration, RegistrationServer,
};
use windlass_plugin_proto::pluginregistration_v1::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};

use super::{Plugin, PluginHandler, PluginRegistry, run_plugin_registry};

/// Timeout for a busy host.
const SOON: Duration = Duration::from_secs(30);

/// The registry in a temporary directory, and the calls of its handler.
struct TestEnv {
    directory: tempfile::TempDir,
    handler: Arc<Handler>,
    metrics: Metrics,
    seen: watch::Receiver<Vec<String>>,
    tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Handler {
    seen: watch::Sender<Vec<String>>,
    /// Names that fail validation.
    invalid: Mutex<BTreeSet<String>>,
    /// Names whose registration does not end.
    slow: Mutex<BTreeSet<String>>,
    /// Names whose registration fails.
    failing: Mutex<BTreeSet<String>>,
}

#[async_trait]
impl PluginHandler for Handler {
    fn validate(&self, plugin: &Plugin) -> Result<(), String> {
        match self.invalid.lock().unwrap().contains(&plugin.name) {
            true => Err("not that one".to_owned()),
            false => Ok(()),
        }
    }

    async fn register(&self, plugin: &Plugin) -> Result<(), String> {
        self.saw(format!("+{}", plugin.name));
        if self.slow.lock().unwrap().contains(&plugin.name) {
            std::future::pending::<()>().await;
        }
        match self.failing.lock().unwrap().contains(&plugin.name) {
            true => Err("not now".to_owned()),
            false => Ok(()),
        }
    }

    fn deregister(&self, plugin: &Plugin) {
        self.saw(format!("-{}", plugin.name));
    }
}

impl Handler {
    fn saw(&self, what: String) {
        self.seen.send_modify(|seen| seen.push(what));
    }
}

/// A plugin that runs until it is dropped; its socket file stays.
struct FakePlugin {
    reported: watch::Receiver<Vec<Result<(), String>>>,
    task: AbortHandle,
}

impl Drop for FakePlugin {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone)]
struct Introduction {
    info: PluginInfo,
    hangs: bool,
    reported: watch::Sender<Vec<Result<(), String>>>,
}

#[tonic::async_trait]
impl Registration for Introduction {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        if self.hangs {
            std::future::pending::<()>().await;
        }
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        let outcome = match status.plugin_registered {
            true => Ok(()),
            false => Err(status.error),
        };
        self.reported.send_modify(|reported| reported.push(outcome));
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

fn info(name: &str) -> PluginInfo {
    PluginInfo {
        r#type: "TestPlugin".to_owned(),
        name: name.to_owned(),
        endpoint: String::new(),
        supported_versions: vec!["1.0.0".to_owned()],
    }
}

impl TestEnv {
    fn new() -> Self {
        let (seen, receiver) = watch::channel(Vec::new());
        let handler = Arc::new(Handler {
            seen,
            invalid: Mutex::default(),
            slow: Mutex::default(),
            failing: Mutex::default(),
        });
        Self {
            directory: tempfile::tempdir().unwrap(),
            handler,
            metrics: Metrics::new().unwrap(),
            seen: receiver,
            tasks: JoinSet::new(),
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join("plugins_registry").join(name)
    }

    fn start(&mut self) {
        let handler: Arc<dyn PluginHandler> = Arc::clone(&self.handler) as _;
        self.tasks.spawn(run_plugin_registry(PluginRegistry {
            directory: self.at(""),
            handlers: BTreeMap::from([("TestPlugin".to_owned(), handler)]),
            metrics: self.metrics.clone(),
        }));
    }

    fn plugin(&mut self, socket: &Path, info: PluginInfo) -> FakePlugin {
        self.serve(socket, info, false)
    }

    fn serve(&mut self, socket: &Path, info: PluginInfo, hangs: bool) -> FakePlugin {
        std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
        // a previous plugin may have left it
        let _ = std::fs::remove_file(socket);
        let listener = UnixListener::bind(socket).unwrap();
        let (reported, receiver) = watch::channel(Vec::new());
        let service = Introduction {
            info,
            hangs,
            reported,
        };
        let serve = tonic::transport::Server::builder()
            .add_service(RegistrationServer::new(service))
            .serve_with_incoming(UnixListenerStream::new(listener));
        let task = self.tasks.spawn(async move { serve.await.unwrap() });
        FakePlugin {
            reported: receiver,
            task,
        }
    }

    async fn saw(&mut self, what: &str) {
        let end = |seen: &Vec<String>| seen.join(" ").ends_with(what);
        let waited = tokio::time::timeout(SOON, self.seen.wait_for(end)).await;
        let came = waited.is_ok();
        drop(waited);
        assert!(came, "{what}: there is {:?}", *self.seen.borrow());
    }

    fn counted(&self, name: &str, state: &str) -> bool {
        let labels = format!(
            "socket_path=\"{}\",state=\"{state}",
            self.at(name).display()
        );
        self.metrics.render().unwrap().contains(&labels)
    }
}

impl FakePlugin {
    async fn reported(&mut self) -> Result<(), String> {
        let reported = self.reported.wait_for(|reported| !reported.is_empty());
        let reported = tokio::time::timeout(SOON, reported).await;
        reported
            .expect("reported in time")
            .unwrap()
            .last()
            .unwrap()
            .clone()
    }
}

#[tokio::test]
async fn plugin_registers_and_deregisters_with_its_socket() {
    let mut env = TestEnv::new();
    env.start();
    let socket = env.at("a.sock");
    let mut plugin = env.plugin(&socket, info("a"));
    env.saw("+a").await;
    assert_eq!(plugin.reported().await, Ok(()));
    std::fs::remove_file(&socket).unwrap();
    env.saw("+a -a").await;
    assert!(!env.counted("a.sock", "actual"), "still counted");
    assert!(!env.counted("a.sock", "desired"), "still counted");
}

#[tokio::test]
async fn existing_and_nested_sockets_are_found() {
    let mut env = TestEnv::new();
    let mut before = env.plugin(&env.at("before.sock"), info("before"));
    let mut below = env.plugin(&env.at("driver/reg.sock"), info("below"));
    let hidden = env.plugin(&env.at(".hidden.sock"), info("hidden"));
    std::fs::write(env.at("file"), "no socket").unwrap();
    env.start();
    assert_eq!(before.reported().await, Ok(()));
    assert_eq!(below.reported().await, Ok(()));
    let mut later = env.plugin(&env.at("new/deep/reg.sock"), info("later"));
    assert_eq!(later.reported().await, Ok(()));
    assert!(env.counted("new/deep/reg.sock", "desired"));
    assert!(hidden.reported.borrow().is_empty(), "it was registered");
    assert!(!env.counted("file", "desired"));
}

#[tokio::test]
async fn recreated_socket_registers_again() {
    let mut env = TestEnv::new();
    env.start();
    let socket = env.at("a.sock");
    let mut first = env.plugin(&socket, info("a"));
    assert_eq!(first.reported().await, Ok(()));
    let mut second = env.plugin(&socket, info("b"));
    assert_eq!(second.reported().await, Ok(()));
    env.saw("+a -a +b").await;
}

#[tokio::test]
async fn removed_directory_is_recreated_and_watched() {
    let mut env = TestEnv::new();
    env.start();
    let mut first = env.plugin(&env.at("a.sock"), info("a"));
    assert_eq!(first.reported().await, Ok(()));
    std::fs::remove_dir_all(env.at("")).unwrap();
    env.saw("+a -a").await;
    let mut second = env.plugin(&env.at("b.sock"), info("b"));
    assert_eq!(second.reported().await, Ok(()));
}

#[tokio::test]
async fn rejected_plugin_is_notified_and_retried() {
    let mut env = TestEnv::new();
    env.handler.invalid.lock().unwrap().insert("bad".to_owned());
    env.start();
    let mut bad = env.plugin(&env.at("bad.sock"), info("bad"));
    assert_eq!(
        bad.reported().await.unwrap_err(),
        "RegisterPlugin error -- plugin validation failed with err: not that one"
    );
    env.handler.invalid.lock().unwrap().clear();
    env.saw("+bad").await;

    let strange = PluginInfo {
        r#type: "Unheard".to_owned(),
        ..info("strange")
    };
    let socket = env.at("strange.sock");
    let mut strange = env.plugin(&socket, strange);
    let reported = strange.reported().await.unwrap_err();
    let expected = format!(
        "RegisterPlugin error -- no handler registered for plugin type: Unheard at socket {}",
        socket.display()
    );
    assert_eq!(reported, expected);
}

#[tokio::test]
async fn hung_plugin_delays_no_other_and_ends_with_its_socket() {
    let mut env = TestEnv::new();
    env.handler.slow.lock().unwrap().insert("slow".to_owned());
    let silent = env.serve(&env.at("silent.sock"), info("silent"), true);
    let slow = env.plugin(&env.at("slow.sock"), info("slow"));
    env.start();
    env.saw("+slow").await;
    let mut other = env.plugin(&env.at("other.sock"), info("other"));
    assert_eq!(other.reported().await, Ok(()));
    std::fs::remove_file(env.at("slow.sock")).unwrap();
    env.saw("-slow").await;
    assert!(slow.reported.borrow().is_empty() && silent.reported.borrow().is_empty());
}

#[tokio::test]
async fn failing_plugins_back_off_independently() {
    let mut env = TestEnv::new();
    let both = ["a".to_owned(), "b".to_owned()];
    env.handler.failing.lock().unwrap().extend(both);
    let mut a = env.plugin(&env.at("a.sock"), info("a"));
    let _b = env.plugin(&env.at("b.sock"), info("b"));
    let began = tokio::time::Instant::now();
    env.start();
    let thrice = a.reported.wait_for(|reported| reported.len() == 3);
    let reported = tokio::time::timeout(SOON, thrice).await;
    let reported = reported.expect("reported in time").unwrap().clone();
    let why = "RegisterPlugin error -- plugin registration failed with err: not now";
    assert_eq!(reported[2], Err(why.to_owned()));
    // half a second after the first failure, a second after the next
    assert!(began.elapsed() >= Duration::from_millis(1500));
}

#[tokio::test]
async fn plugin_with_oversized_info_is_not_registered() {
    let mut env = TestEnv::new();
    env.start();
    let huge = PluginInfo {
        supported_versions: vec!["1.0.0".repeat(20_000)],
        ..info("huge")
    };
    let huge = env.plugin(&env.at("huge.sock"), huge);
    let mut other = env.plugin(&env.at("other.sock"), info("other"));
    assert_eq!(other.reported().await, Ok(()));
    assert_eq!(*env.seen.borrow(), ["+other"]);
    assert!(huge.reported.borrow().is_empty());
}

#[tokio::test]
async fn socket_without_listener_is_retried() {
    let mut env = TestEnv::new();
    let socket = env.at("dead.sock");
    drop(env.plugin(&socket, info("dead")));
    env.tasks.join_next().await;
    env.start();
    // it may have been tried already: the new listener has another socket at the path
    let mut alive = env.plugin(&socket, info("alive"));
    assert_eq!(alive.reported().await, Ok(()));
}
