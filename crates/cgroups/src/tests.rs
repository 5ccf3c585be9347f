//! Pods' cgroups in memory, and the files of a tree on the disk.

use std::fs;
use std::io;
use std::sync::{Arc, Mutex};

use windlass_pod_inputs::resources::QosClass;
use windlass_runtime_config::cgroup_names::CgroupLayout;
use windlass_runtime_config::node_cgroups::ClassValues;
use windlass_runtime_config::pod_cgroup::{CgroupValues, NodeLimits};
use windlass_types::PodUid;
use windlass_types::cri::CgroupDriver;

use crate::{CgroupTree, HostTree, MemoryTree, PodCgroups, Property, Slices};

mod node;
mod resize;

const V1: [&str; 4] = ["cpu", "freezer", "memory", "pids"];
const BURSTABLE: &str = "/test/kubepods/burstable";

fn node() -> CgroupValues {
    let limits = NodeLimits {
        milli_cpu: 2000,
        memory: 1 << 30,
        pids: 1000,
    };
    limits.values()
}

fn values() -> CgroupValues {
    CgroupValues {
        cpu_shares: Some(204),
        memory_limit: Some(1 << 20),
        ..CgroupValues::default()
    }
}

/// Values of the classes without `qosReserved`.
fn shares(burstable: i64) -> ClassValues {
    let values = |shares| CgroupValues {
        cpu_shares: Some(shares),
        ..CgroupValues::default()
    };
    ClassValues {
        all: CgroupValues::default(),
        burstable: values(burstable),
        best_effort: values(2),
    }
}

fn pods(tree: &MemoryTree) -> PodCgroups {
    let layout = CgroupLayout::new(CgroupDriver::Cgroupfs, "/test");
    PodCgroups::new(layout, Arc::new(tree.clone()), None)
}

fn uid() -> PodUid {
    PodUid::from("1-2")
}

fn names(pods: &PodCgroups) -> Vec<String> {
    let list = pods.list().expect("listed");
    list.iter().map(ToString::to_string).collect()
}

#[test]
fn pod_cgroup_is_created_and_written_once_and_removed() {
    let tree = MemoryTree::v1(&V1);
    let pods = pods(&tree);
    assert!(pods.set_up(node()).is_empty());
    let limit = tree.file("/test/kubepods/memory.limit_in_bytes");
    assert_eq!(limit.as_deref(), Some("1073741824"));
    assert!(
        pods.ensure(&uid(), QosClass::Burstable, values())
            .expect("made")
    );
    let path = format!("{BURSTABLE}/pod1-2");
    assert_eq!(
        pods.parent_of(QosClass::Burstable, &uid()),
        Some(path.clone())
    );
    assert_eq!(
        tree.file(&format!("{path}/cpu.shares")).as_deref(),
        Some("204")
    );
    let before = tree.writes();
    assert!(
        !pods
            .ensure(&uid(), QosClass::Burstable, values())
            .expect("there")
    );
    assert_eq!(tree.writes(), before, "nothing changed, nothing is written");
    // the runtime creates it in the other hierarchies
    tree.enter("freezer", &format!("{path}/c1"), 7, false);
    assert_eq!(names(&pods), ["1-2"]);
    pods.remove(&uid()).expect("removed");
    assert!(names(&pods).is_empty(), "{:?}", tree.cgroups());
    pods.remove(&uid()).expect("again");
}

#[test]
fn cgroup_removal_kills_processes_and_reports_survivors() {
    let tree = MemoryTree::v1(&V1);
    let pods = pods(&tree);
    pods.set_up(node());
    let container = format!("{BURSTABLE}/pod1-2/c1");
    tree.enter("cpu", &container, 7, false);
    tree.enter("cpu", &container, 8, true);
    let error = pods.remove(&uid()).expect_err("8 does not die");
    assert_eq!(
        error.to_string(),
        format!("cgroup cpu:{container} still has processes")
    );
    assert_eq!(tree.processes("cpu", &container).expect("read"), [8]);
    tree.lose(&container);
    pods.remove(&uid()).expect("removed");
    assert!(names(&pods).is_empty());
}

#[test]
fn removed_cgroup_is_detected_only_if_this_agent_created_it() {
    let tree = MemoryTree::v1(&V1);
    let pods = pods(&tree);
    pods.set_up(node());
    assert!(!pods.is_removed(&uid()), "an earlier agent made none");
    pods.ensure(&uid(), QosClass::Burstable, values())
        .expect("made");
    assert!(!pods.is_removed(&uid()));
    tree.lose(&format!("{BURSTABLE}/pod1-2"));
    assert!(pods.is_removed(&uid()));
    // created again with the same values
    assert!(
        pods.ensure(&uid(), QosClass::Burstable, values())
            .expect("made")
    );
    assert!(!pods.is_removed(&uid()));
    pods.remove(&uid()).expect("removed");
    assert!(!pods.is_removed(&uid()), "it was to go");
}

#[test]
fn unwritable_hierarchy_is_skipped_with_a_warning() {
    let tree = MemoryTree::v1(&V1);
    tree.set_read_only("memory");
    let pods = pods(&tree);
    let warnings = pods.set_up(node());
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0]
            .to_string()
            .starts_with("cannot make cgroup memory:/test")
    );
    pods.ensure(&uid(), QosClass::Burstable, values())
        .expect("made");
    assert!(!pods.is_removed(&uid()));
    // no hierarchy is writable: the runtime chooses the cgroups
    let tree = MemoryTree::v2();
    tree.set_read_only("");
    let pods = self::pods(&tree);
    assert_eq!(pods.set_up(node()).len(), 1);
    assert_eq!(pods.parent_of(QosClass::Burstable, &uid()), None);
    pods.ensure(&uid(), QosClass::Burstable, values())
        .expect("nothing to do");
    assert!(!pods.is_removed(&uid()));
}

#[test]
fn burstable_class_keeps_its_weight_over_an_agent_restart() {
    let tree = MemoryTree::v2();
    let first = pods(&tree);
    first.set_up(node());
    let weight = || tree.file(&format!("{BURSTABLE}/cpu.weight")).expect("set");
    assert_eq!(weight(), "1");
    assert!(first.update_classes(shares(1024)).expect("set"));
    assert!(!first.update_classes(shares(1024)).expect("set"));
    assert_eq!(weight(), "39");
    let second = pods(&tree);
    second.set_up(node());
    assert_eq!(weight(), "39");
}

#[test]
fn without_slice_manager_slices_are_named_but_not_created() {
    let tree = MemoryTree::v2();
    let layout = CgroupLayout::new(CgroupDriver::Systemd, "");
    let pods = PodCgroups::new(layout, Arc::new(tree.clone()), None);
    assert_eq!(pods.set_up(node()).len(), 1);
    pods.ensure(&uid(), QosClass::BestEffort, values())
        .expect("named");
    let parent = pods.parent_of(QosClass::BestEffort, &uid()).expect("named");
    assert!(parent.ends_with("/kubepods-besteffort-pod1_2.slice"));
    pods.remove(&uid()).expect("nothing to do");
    pods.update_classes(shares(7)).expect("nothing to do");
    assert!(tree.cgroups().is_empty());
}

/// Slice manager that records its calls, and rejects those that contain a given text.
#[derive(Debug, Default)]
struct RecordedSlices {
    calls: Mutex<Vec<String>>,
    refused: Mutex<Option<&'static str>>,
}

impl RecordedSlices {
    fn refuse(&self, part: Option<&'static str>) {
        *self.refused.lock().expect("lock") = part;
    }

    fn record(&self, call: String) -> io::Result<()> {
        let refused = *self.refused.lock().expect("lock");
        if refused.is_some_and(|part| call.contains(part)) {
            return Err(io::Error::other("no"));
        }
        self.calls.lock().expect("lock").push(call);
        Ok(())
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock().expect("lock"))
    }
}

impl Slices for RecordedSlices {
    fn start(&self, name: &str, properties: &[Property]) -> io::Result<()> {
        let words = properties.iter().map(|(n, v)| format!(" {n}={v}"));
        self.record(format!("start {name}{}", words.collect::<String>()))
    }

    fn stop(&self, name: &str) -> io::Result<()> {
        self.record(format!("stop {name}"))
    }
}

fn slices(tree: &MemoryTree, recorded: &Arc<RecordedSlices>) -> PodCgroups {
    let layout = CgroupLayout::new(CgroupDriver::Systemd, "");
    PodCgroups::new(layout, Arc::new(tree.clone()), Some(recorded.clone()))
}

#[test]
fn each_slice_is_started_in_systemd_with_its_values() {
    let (tree, recorded) = (MemoryTree::v2(), Arc::new(RecordedSlices::default()));
    let pods = slices(&tree, &recorded);
    assert!(pods.set_up(node()).is_empty());
    assert_eq!(
        recorded.take(),
        [
            "start kubepods.slice",
            "start kubepods-burstable.slice",
            "start kubepods-besteffort.slice",
            "start kubepods.slice CPUWeight=79 MemoryMax=1073741824 TasksMax=1000",
            "start kubepods-besteffort.slice CPUWeight=1",
            "start kubepods-burstable.slice CPUWeight=1",
        ]
    );
    let ensure = || pods.ensure(&uid(), QosClass::Burstable, values());
    assert!(ensure().expect("made"));
    let pod = "kubepods-burstable-pod1_2.slice";
    assert_eq!(
        recorded.take(),
        [format!("start {pod} CPUWeight=8 MemoryMax=1048576")]
    );
    // the values are written to the kernel immediately, not only by systemd
    let path = format!("/kubepods.slice/kubepods-burstable.slice/{pod}");
    let memory = tree.file(&format!("{path}/memory.max"));
    assert_eq!(memory.as_deref(), Some("1048576"));
    assert!(!ensure().expect("there"));
    assert!(recorded.take().is_empty(), "no change, no call");
    assert!(pods.update_classes(shares(1024)).expect("set"));
    assert_eq!(
        recorded.take(),
        ["start kubepods-burstable.slice CPUWeight=39"]
    );

    // an agent that finds all this keeps what Burstable pods have
    let pods = slices(&tree, &recorded);
    assert!(pods.set_up(node()).is_empty());
    let weights = recorded.take();
    let burstable: Vec<_> = { weights.iter() }
        .filter(|call| call.contains("burstable"))
        .collect();
    assert_eq!(burstable, ["start kubepods-burstable.slice"]);
    assert_eq!(names(&pods), ["1-2"]);
    pods.remove(&uid()).expect("removed");
    assert_eq!(recorded.take(), [format!("stop {pod}")]);
    assert!(!tree.exists("", &path));
    pods.remove(&uid()).expect("again");
    assert!(recorded.take().is_empty());
}

#[test]
fn pods_start_without_slice_values_until_systemd_is_back() {
    let (tree, recorded) = (MemoryTree::v2(), Arc::new(RecordedSlices::default()));
    recorded.refuse(Some("slice"));
    let pods = slices(&tree, &recorded);
    let warnings = pods.set_up(node());
    let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        ["slices have systemd's default values: cannot start cgroup systemd:/kubepods.slice: no"]
    );
    let ensure = |uid: &str| pods.ensure(&PodUid::from(uid), QosClass::Burstable, values());
    assert!(!ensure("1").expect("nothing to do"));
    assert!(pods.parent_of(QosClass::Burstable, &uid()).is_some());
    assert!(tree.cgroups().is_empty());
    assert!(!pods.update_classes(shares(7)).expect("nothing to do"));

    recorded.refuse(None);
    assert!(ensure("2").expect("made"));
    assert_eq!(names(&pods), ["2"]);
    let node = "start kubepods.slice CPUWeight=79 MemoryMax=1073741824 TasksMax=1000";
    assert!(recorded.take().contains(&node.to_owned()));

    // away again: what is there stays, to be removed when it is back
    recorded.refuse(Some("slice"));
    pods.remove(&PodUid::from("2"))
        .expect_err("systemd would keep it");
    assert!(!ensure("3").expect("without"));
    assert!(names(&pods).is_empty(), "no pods are known");
    recorded.refuse(None);
    assert_eq!(names(&pods), ["2"]);
    pods.remove(&PodUid::from("2")).expect("removed");
    assert!(pods.update_classes(shares(7)).expect("set"));
}

#[test]
fn stopped_parent_slices_are_started_again() {
    let (tree, recorded) = (MemoryTree::v2(), Arc::new(RecordedSlices::default()));
    let pods = slices(&tree, &recorded);
    assert!(pods.set_up(node()).is_empty());
    pods.update_classes(shares(1024)).expect("set");
    let ensure = || pods.ensure(&uid(), QosClass::Burstable, values());
    // systemd still rejects this one: the error is returned, and the classes are started again
    recorded.refuse(Some("pod1_2"));
    tree.lose("/kubepods.slice/kubepods-burstable.slice");
    recorded.take();
    let refused = ensure().expect_err("refused");
    assert!(
        refused.to_string().ends_with("-pod1_2.slice: no"),
        "{refused}"
    );
    let calls = recorded.take();
    assert_eq!(calls[..3], class_starts(), "{calls:?}");
    assert!(
        pods.update_classes(shares(1024)).expect("set"),
        "it was lost with the slice"
    );
    recorded.refuse(None);
    assert!(ensure().expect("made"));
}

fn class_starts() -> [String; 3] {
    ["", "-burstable", "-besteffort"].map(|class| format!("start kubepods{class}.slice"))
}

#[test]
fn cgroup_version_is_detected_from_the_directory_layout() {
    let dir = tempfile::tempdir().expect("a directory");
    let mount = dir.path();
    for hierarchy in ["cpu,cpuacct", "cpuset", "memory"] {
        let root = mount.join(hierarchy);
        fs::create_dir_all(&root).expect("made");
        fs::write(root.join("cgroup.procs"), "").expect("written");
    }
    for (file, content) in [("cpuset.cpus", "0-1\n"), ("cpuset.mems", "0\n")] {
        fs::write(mount.join("cpuset").join(file), content).expect("written");
    }
    // something else that is mounted there
    fs::create_dir_all(mount.join("other")).expect("made");
    let tree = HostTree::open(mount.to_owned()).expect("opened");
    assert!(!tree.unified());
    assert_eq!(tree.hierarchies(), ["cpu,cpuacct", "cpuset", "memory"]);
    assert_eq!(tree.hierarchy_of("cpu").as_deref(), Some("cpu,cpuacct"));
    assert_eq!(tree.hierarchy_of("pids"), None);
    assert!(tree.make("memory", "/kubepods").expect("made"));
    assert!(!tree.make("memory", "/kubepods").expect("there"));
    assert!(tree.exists("memory", "/kubepods"));
    assert_eq!(tree.children("memory", "/").expect("read"), ["kubepods"]);
    assert!(tree.children("memory", "/none").expect("read").is_empty());
    let procs = mount.join("memory/kubepods/cgroup.procs");
    fs::write(&procs, "0\n1\n42\n").expect("written");
    assert_eq!(tree.processes("memory", "/kubepods").expect("read"), [42]);
    fs::remove_file(procs).expect("removed");
    tree.remove("memory", "/kubepods").expect("removed");
    tree.remove("memory", "/kubepods").expect("again");
    // the CPU and node files of a new cgroup are empty
    fs::create_dir_all(mount.join("cpuset/kubepods")).expect("made");
    for file in ["cpuset.cpus", "cpuset.mems"] {
        fs::write(mount.join("cpuset/kubepods").join(file), "\n").expect("written");
    }
    tree.make("cpuset", "/kubepods").expect("made");
    let inherited = fs::read_to_string(mount.join("cpuset/kubepods/cpuset.cpus"));
    assert_eq!(inherited.expect("read").trim(), "0-1");
}
