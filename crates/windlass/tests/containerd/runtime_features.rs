//! What a runtime says of itself: its events, which containerd sends over CRI since 1.7, and its
//! cgroup driver, which it tells since 2.0.

use std::time::Duration;

use crate::bed::{Bed, SOON, eventually, older_than, signal};
use crate::manifest::shell;

/// Well below the relist of 10 s that finds what events did not tell.
const BY_EVENT: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_events_come_over_cri() {
    if older_than([1, 7], "an event stream of CRI") {
        return;
    }
    let mut bed = Bed::start("i-events").await;
    bed.logged(&["runtime event stream", "open=true"]).await;
    bed.apply("web.yaml", &shell("web", "HOLD"));
    bed.ready("web").await;
    // ---- each death is seen long before a listing would find it
    for restarts in 1..=2 {
        let relists = relists(&bed).await;
        let before = bed.running("web").await.remove(0).id;
        let killed = tokio::time::Instant::now();
        signal(
            bed.process("web", "main").await,
            rustix::process::Signal::KILL,
        );
        if restarts == 1 {
            // the first restart has no delay
            eventually("it runs again", SOON, async || {
                let running = bed.running("web").await;
                let anew = running.iter().any(|container| container.id != before);
                anew.then_some(()).ok_or_else(|| "the old one".to_owned())
            })
            .await;
        } else {
            bed.status("web", "CrashLoopBackOff").await;
        }
        let (took, relisted) = (killed.elapsed(), self::relists(&bed).await != relists);
        assert!(
            took < BY_EVENT || !relisted,
            "death {restarts} was seen after {took:?}"
        );
    }
    // ---- and nobody fell back to containerd's own events
    let log = std::fs::read_to_string(bed.agent.log_file()).unwrap();
    assert!(!log.contains("no CRI event stream"), "the agent fell back");
    bed.stop().await;
}

/// Listings of everything so far.
async fn relists(bed: &Bed) -> u64 {
    let (_, metrics) = bed.http("/metrics").await.unwrap();
    let name = "kubelet_pleg_relist_duration_seconds_count ";
    let count = metrics.lines().find_map(|line| line.strip_prefix(name));
    count.unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_the_runtimes_cgroup_driver_counts_not_the_configurations() {
    if older_than([2, 0], "a runtime that tells its cgroup driver") {
        return;
    }
    // with slices of systemd containerd would refuse each pod: its driver is cgroupfs
    let mut bed = Bed::configured("i-driver", "cgroupDriver: systemd").await;
    bed.apply("web.yaml", &shell("web", "HOLD"));
    bed.ready("web").await;
    bed.logged(&["cgroups of pods", "driver=Cgroupfs"]).await;
    let uid = bed.pod("web").await["metadata"]["uid"].clone();
    let root = bed.containerd.cgroup_root();
    let expected = format!("{root}/kubepods/besteffort/pod{}", uid.as_str().unwrap());
    let process = bed.process("web", "main").await;
    let lines = std::fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap();
    assert!(lines.contains(&expected), "not in {expected}: {lines}");
    bed.stop().await;
}
