//! The task on a pipe instead of `/dev/kmsg`, and on directories instead of cgroups.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use rustix::fs::{FileType, Mode, mknodat};
use tempfile::TempDir;
use windlass_types::view::EventType;
use windlass_types::{ContainerId, Pod, Reason, Timestamp};

use super::*;

const DEADLINE: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }
}

#[derive(Debug, Default)]
struct NodeEvents(Mutex<Vec<String>>);

impl EventRecorder for NodeEvents {
    fn record(&self, _: &Pod, _: Option<&str>, _: EventType, _: Reason, _: &str) {}

    fn record_node(&self, event_type: EventType, reason: Reason, message: &str) {
        let line = format!("{event_type:?} {} {message}", reason.as_str());
        self.0.lock().expect("not poisoned").push(line);
    }
}

struct TestEnv {
    dir: TempDir,
    kills: OomKillCache,
    events: Arc<NodeEvents>,
}

impl TestEnv {
    fn new() -> Self {
        Self {
            dir: TempDir::new().expect("directory"),
            kills: OomKillCache::default(),
            events: Arc::default(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    async fn watch(&self, device: &Path, cgroups: bool) {
        let kubepods = vec![self.path("kubepods.slice"), self.path("kubepods")];
        watch_oom_kills(OomWatcherDeps {
            source: OomSource {
                log: KernelLog::Device(device.to_owned()),
                cgroups: cgroups.then(|| (self.dir.path().to_owned(), kubepods)),
            },
            kills: self.kills.clone(),
            events: self.events.clone(),
            clock: Arc::new(FixedClock),
        })
        .await;
    }

    fn count(&self, id: &str) -> u64 {
        let kills = self.kills.get(&ContainerId::from(id));
        kills.map_or(0, |kills| kills.count)
    }

    fn events(&self) -> String {
        self.events.0.lock().expect("not poisoned").join("\n")
    }

    /// Watches until `scenario` ends.
    async fn during(&self, device: &Path, cgroups: bool, scenario: impl Future<Output = ()>) {
        let both = async {
            tokio::select! {
                () = scenario => {}
                () = self.watch(device, cgroups) => panic!("the watcher ended"),
            }
        };
        let ended = tokio::time::timeout(DEADLINE, both).await;
        ended.expect("in time");
    }
}

async fn until(holds: impl Fn() -> bool) {
    while !holds() {
        tokio::task::yield_now().await;
    }
}

fn victim(number: u32, cgroups: &str) -> String {
    format!(
        "6,{number},{number},-;oom-kill:constraint=C,nodemask=(null),cpuset=/,mems_allowed=0,\
         {cgroups},task=dd,pid={number},uid=0\n"
    )
}

#[tokio::test]
async fn kernel_log_counts_kills_and_records_system_ooms() {
    let env = TestEnv::new();
    let device = env.path("kmsg");
    mknodat(
        rustix::fs::CWD,
        &device,
        FileType::Fifo,
        Mode::from(0o600),
        0,
    )
    .expect("pipe");
    let mut writer = fs::OpenOptions::new();
    let mut writer = writer.read(true).write(true).open(&device).expect("opened");
    let scenario = async {
        let mut log = |text: String| writer.write_all(text.as_bytes()).expect("written");
        let own = "oom_memcg=/kubepods/podu/aaa,task_memcg=/kubepods/podu/aaa/nested";
        log(victim(1, own));
        log("6,2,2,-;unrelated\n SUBSYSTEM=x\n".to_owned());
        log(victim(3, own));
        log(victim(4, "global_oom,task_memcg=/kubepods/podu/bbb"));
        until(|| env.count("bbb") == 1).await;
        assert_eq!(env.count("aaa"), 2);
        // more records than one burst
        for number in 10..400 {
            log(format!("6,{number},9,-;noise\n"));
            tokio::task::yield_now().await;
        }
        log(victim(500, own));
        until(|| env.count("aaa") == 3).await;
    };
    env.during(&device, false, scenario).await;
    let event = "Warning SystemOOM System OOM encountered, victim process: dd, pid: 4";
    assert_eq!(env.events(), event);
}

#[tokio::test]
async fn watcher_without_sources_ends() {
    let env = TestEnv::new();
    env.watch(&env.path("missing"), false).await;
    // epoll rejects files
    fs::write(env.path("file"), "").expect("written");
    env.watch(&env.path("file"), false).await;
    assert_eq!(env.events(), "");
}

#[tokio::test]
async fn memory_events_count_kills_without_kernel_log() {
    let env = TestEnv::new();
    let make = |path: &str, kills: u64| {
        let directory = env.path(path);
        fs::create_dir_all(&directory).expect("made");
        set(&directory, kills);
        directory
    };
    let early = make("kubepods/burstable/podu/cri-containerd-aaa.scope", 5);
    let scenario = async {
        // kills before the start do not count
        grows(&env, &early, "aaa", 5).await;
        // a pod that is created later; the watcher may see any part of it first
        let late = make("kubepods/podv/bbb", 0);
        grows(&env, &late, "bbb", 0).await;
        // a container that is replaced
        fs::remove_dir_all(&late).expect("removed");
        let next = make("kubepods/podv/ccc", 0);
        grows(&env, &next, "ccc", 0).await;
        assert_eq!(env.count("podv"), 0);
    };
    env.during(&env.path("missing"), true, scenario).await;
    assert_eq!(env.events(), "");
}

fn set(cgroup: &Path, kills: u64) {
    // of constant length and without truncation, so that no reader sees a part
    let text = format!("low 0\noom 9\noom_kill {kills:09}\noom_group_kill 0\n");
    let mut options = fs::OpenOptions::new();
    let options = options.create(true).write(true).truncate(false);
    let mut file = options.open(cgroup.join("memory.events")).expect("opened");
    file.write_all(text.as_bytes()).expect("written");
}

/// Adds kills until the watcher counts one: it watches the cgroup some time after its creation.
async fn grows(env: &TestEnv, cgroup: &Path, id: &str, before: u64) {
    let mut kills = before;
    while env.count(id) == 0 {
        kills += 1;
        set(cgroup, kills);
        tokio::task::yield_now().await;
    }
    let counted = env.count(id);
    assert!(counted <= kills - before, "{counted} of {kills}");
}
