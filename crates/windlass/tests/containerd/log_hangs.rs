//! A container log that cannot be read.

use std::process::Stdio;
use std::time::Duration;

use tokio::time::timeout;
use windlass_testing::hung_disk::HungDisk;

use crate::manifest::shell;
use crate::test_env::{SOON, TestEnv, eventually, scaled, skipped};

/// Max time until a hung read is reported.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_hung_log_affects_only_its_pod() {
    if skipped() {
        return;
    }
    let mut env = TestEnv::start("l-hangs").await;
    for name in ["sick", "other"] {
        env.apply(&format!("{name}.yaml"), &shell(name, "echo one line; HOLD"));
    }
    env.ready("sick").await;
    env.ready("other").await;
    let before = env.ctl_output(&["logs", "sick-node"]).await;
    assert_eq!(before, "one line\n");

    let pod = env.pod("sick").await;
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let logs = env.containerd.base().join("logs");
    let mut disk = HungDisk::mount(&logs.join(format!("default_sick-node_{uid}"))).unwrap();
    let mut reader = env.ctl_command(&["logs", "sick-node"]);
    let reader = reader.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let reader = reader.unwrap();
    eventually("the pod is named", REPORT_TIMEOUT, async || {
        let status = env.ctl_output(&["status"]).await;
        let named = "pod default/sick-node: read of the log of main for ";
        status.contains(named).then_some(()).ok_or(status)
    })
    .await;

    // other pods have their logs and start; the pod itself runs
    let log = timeout(scaled(SOON), env.ctl_output(&["logs", "other-node"]));
    assert_eq!(log.await.unwrap(), "one line\n");
    env.apply("new.yaml", &shell("new", "HOLD"));
    env.ready("new").await;
    env.ready("sick").await;
    env.process("sick", "main").await;

    disk.release();
    drop(disk);
    let read = timeout(scaled(SOON), reader.wait_with_output()).await;
    assert!(!read.unwrap().unwrap().status.success(), "the disk failed");
    eventually("nothing hangs", SOON, async || {
        let status = env.ctl_output(&["status"]).await;
        (!status.contains("Hung:")).then_some(()).ok_or(status)
    })
    .await;
    let after = env.ctl_output(&["logs", "sick-node"]).await;
    assert_eq!(after, "one line\n");
    env.stop().await;
}
