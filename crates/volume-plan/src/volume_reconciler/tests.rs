//! Inputs at given times and the steps that follow.

mod attach_limit;
mod devices;
mod drivers;
mod expansion;
mod invariants;
mod set_ups;
mod tear_downs;
mod unavailable_payloads;

use std::fmt::Write as _;
use std::path::PathBuf;

use windlass_types::corev1::EmptyDirVolumeSource;
use windlass_types::{MountedContent, Pod, PodExt, Timestamp};

use super::*;
use crate::volume_source::{BoundPvc, CsiVolume, PodVolume, PvcSize, VolumeSource};

/// A reconciler with its clock and its steps in progress.
struct Fixture {
    reconciler: VolumeReconciler,
    elapsed: Duration,
    requests: u64,
    /// Steps in progress, by their text.
    open: BTreeMap<String, Step>,
}

/// Start of the wall clock: 2023-11-14T22:13:20Z.
const EPOCH: i64 = 1_700_000_000;

impl Fixture {
    /// Reconciler with all inputs of a node without volumes.
    fn new() -> Self {
        let mut fixture = Self::before_reconstruction();
        assert_eq!(fixture.tick(0.0), "reconstruct");
        assert_eq!(fixture.reconstructed(Reconstruction::default()), "");
        assert_eq!(fixture.input(Input::SourcesReady), "");
        fixture
    }

    fn before_reconstruction() -> Self {
        Self {
            reconciler: VolumeReconciler::new(),
            elapsed: Duration::ZERO,
            requests: 0,
            open: BTreeMap::new(),
        }
    }

    /// Returns the steps that follow, on one line.
    fn input(&mut self, input: Input) -> String {
        let now = ClockReading {
            wall: Timestamp::from_second(EPOCH).expect("in range") + self.elapsed,
            monotonic: self.elapsed,
        };
        let mut line = String::new();
        for step in self.reconciler.handle(input, now) {
            let separator = if line.is_empty() { "" } else { ", " };
            write!(line, "{separator}{step}").expect("text");
            if !matches!(
                step,
                Step::ReplySetUp(..)
                    | Step::ReplyTearDown(..)
                    | Step::RequeuePod(_)
                    | Step::CancelOperations(_)
                    | Step::Record(..)
                    | Step::RecordPvc(..)
                    | Step::Reject(..)
                    | Step::ReportInUse(_)
            ) {
                let before = self.open.insert(step.to_string(), step);
                assert!(before.is_none(), "started twice: {line}");
            }
        }
        line
    }

    /// Returns the time until the timer, `idle` without one.
    fn timer(&self) -> String {
        let wakes = self.reconciler.next_wake_up(self.elapsed);
        wakes.map_or("idle".into(), |left| format!("{}s", left.as_secs_f64()))
    }

    fn tick(&mut self, second: f64) -> String {
        self.at(second);
        self.input(Input::TimerFired)
    }

    fn at(&mut self, second: f64) {
        self.elapsed = Duration::from_secs_f64(second);
    }

    fn set_up(&mut self, pod: &str, volumes: &[PodVolume]) -> String {
        self.requests += 1;
        let input = Input::SetUp {
            request: RequestId(self.requests),
            pod: pod_named(pod),
            volumes: Arc::new(volumes.to_vec()),
            timeout: Duration::from_secs(10),
        };
        self.input(input)
    }

    fn tear_down(&mut self, pod: &str, by: TearDownRequester) -> String {
        self.requests += 1;
        let (request, uid) = (RequestId(self.requests), PodUid::from(pod));
        self.input(Input::TearDown { request, uid, by })
    }

    fn reconstructed(&mut self, reconstruction: Reconstruction) -> String {
        self.open.remove("reconstruct").expect("in progress");
        self.input(Input::StepFinished(StepResult::Reconstructed(Ok(
            reconstruction,
        ))))
    }

    fn node(&mut self, attached: &[&str], in_use: &[&str]) -> String {
        let devices = |names: &[&str]| names.iter().map(|name| device(name)).collect();
        self.input(Input::Node {
            attached: devices(attached),
            in_use: devices(in_use),
        })
    }

    fn expanded(&mut self, line: &str, expanded: ExpansionResult) -> String {
        let step = self.open.remove(line);
        let Some(Step::Expand(work, _)) = step else {
            panic!("{line} is not in progress");
        };
        let result = StepResult::Expanded(work.pod.uid(), work.key, Ok(expanded));
        self.input(Input::StepFinished(result))
    }

    fn ok(&mut self, line: &str) -> String {
        self.ends(line, Ok(Vec::new()))
    }

    fn fails(&mut self, line: &str, message: &str) -> String {
        let error = StepError {
            operation: None,
            message: message.to_owned(),
            retry: Retry::Later,
        };
        self.ends(line, Err(error))
    }

    /// Finishes a step; the volumes are the result of `discover`.
    fn ends(&mut self, line: &str, result: Result<Vec<DiscoveredVolume>, StepError>) -> String {
        let open: Vec<_> = self.open.keys().cloned().collect();
        let step = self.open.remove(line);
        let step = step.unwrap_or_else(|| panic!("{line} is not among {open:?}"));
        let result = match step {
            Step::Reconstruct => {
                StepResult::Reconstructed(result.map(|_| Reconstruction::default()))
            }
            Step::Discover(uid) => StepResult::Discovered(uid, result),
            Step::Stage(device, _) => StepResult::Staged(device, result.map(drop)),
            Step::Unstage(device) => StepResult::Unstaged(device, result.map(drop)),
            Step::Mount(work) => {
                StepResult::Mounted(work.pod.uid(), work.key, result.map(|_| mounted()))
            }
            Step::Expand(work, _) => {
                let bytes = work.volume.size().expect("a size").desired;
                let expanded = result.map(|_| ExpansionResult::Expanded(bytes));
                StepResult::Expanded(work.pod.uid(), work.key, expanded)
            }
            Step::Unmount(uid, key, _) => StepResult::Unmounted(uid, key, result.map(drop)),
            _ => panic!("{line} has no result"),
        };
        self.input(Input::StepFinished(result))
    }
}

fn mounted() -> MountedVolume {
    MountedVolume {
        content: MountedContent::Path(PathBuf::from("/x")),
        read_only: false,
        relabel: false,
    }
}

fn pod_named(uid: &str) -> SharedPod {
    let mut pod = Pod::default();
    pod.metadata.uid = Some(uid.to_owned());
    pod.metadata.name = Some(uid.to_owned());
    Arc::new(pod)
}

fn volume(name: &str, source: VolumeSource) -> PodVolume {
    PodVolume {
        name: name.to_owned(),
        source,
        read_only: false,
        mount_options: Vec::new(),
        pvc: None,
    }
}

fn empty(name: &str) -> PodVolume {
    volume(
        name,
        VolumeSource::EmptyDir(EmptyDirVolumeSource::default()),
    )
}

fn device(name: &str) -> DeviceName {
    DeviceName(format!("kubernetes.io/csi/d^{name}"))
}

/// Returns a CSI volume with a PVC.
fn csi(name: &str, change: impl FnOnce(&mut CsiVolume)) -> PodVolume {
    let mut csi = CsiVolume {
        volume_name: format!("pv-{name}"),
        driver: "d".to_owned(),
        handle: Some(name.to_owned()),
        fs_type: String::new(),
        attributes: BTreeMap::new(),
        block: false,
        access_modes: Vec::new(),
        stage_secret: None,
        publish_secret: None,
        expand_secret: None,
        size: None,
        attach_required: false,
    };
    change(&mut csi);
    let pvc = BoundPvc {
        name: name.to_owned(),
        volume: csi.volume_name.clone(),
        exclusive: false,
        group: None,
    };
    PodVolume {
        pvc: Some(pvc),
        ..volume(name, VolumeSource::Csi(Box::new(csi)))
    }
}

fn found(kind: &str, name: &str, of: Option<&str>) -> DiscoveredVolume {
    DiscoveredVolume {
        plugin_dir: format!("kubernetes.io~{kind}"),
        name: name.to_owned(),
        block: false,
        device: of.map(device),
    }
}
