//! Tables of what is heard, second by second, and the steps that follow.

mod attach_limit;
mod devices;
mod drivers;
mod expansion;
mod invariants;
mod unavailable_payloads;
mod tear_downs;
mod set_ups;

use std::fmt::Write as _;
use std::path::PathBuf;

use windlass_types::corev1::EmptyDirVolumeSource;
use windlass_types::{MountedContent, Pod, PodExt, Timestamp};

use super::*;
use crate::volume_source::{BoundPvc, PvcSize, CsiVolume, PodVolume, VolumeSource};

/// A plan, driven by short words.
struct World {
    plan: VolumeReconciler,
    uptime: Duration,
    asked: u64,
    /// Steps that have not ended, by their line.
    open: BTreeMap<String, Step>,
}

/// 2023-11-14T22:13:20Z at uptime zero.
const EPOCH: i64 = 1_700_000_000;

impl World {
    /// A plan that has seen everything of a node without volumes.
    fn new() -> Self {
        let mut world = Self::unsurveyed();
        assert_eq!(world.tick(0.0), "reconstruction");
        assert_eq!(world.reconstructed(Reconstruction::default()), "");
        assert_eq!(world.hear(Input::SourcesReady), "");
        world
    }

    fn unsurveyed() -> Self {
        Self {
            plan: VolumeReconciler::new(),
            uptime: Duration::ZERO,
            asked: 0,
            open: BTreeMap::new(),
        }
    }

    /// Steps that follow, in one line, with the timer that is armed then.
    fn hear(&mut self, input: Input) -> String {
        let now = Timestamp::from_second(EPOCH).expect("in range") + self.uptime;
        let at = ClockReading {
            uptime: self.uptime,
            now,
        };
        let mut line = String::new();
        for step in self.plan.handle(input, at) {
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
                assert!(before.is_none(), "twice at a time: {line}");
            }
        }
        line
    }

    /// Seconds until the timer, `idle` without one.
    fn timer(&self) -> String {
        let wakes = self.plan.next_wake_up(self.uptime);
        wakes.map_or("idle".into(), |left| format!("{}s", left.as_secs_f64()))
    }

    fn tick(&mut self, second: f64) -> String {
        self.at(second);
        self.hear(Input::TimerFired)
    }

    fn at(&mut self, second: f64) {
        self.uptime = Duration::from_secs_f64(second);
    }

    fn ask(&mut self, pod: &str, volumes: &[PodVolume]) -> String {
        self.asked += 1;
        let input = Input::SetUp {
            request: RequestId(self.asked),
            pod: pod_named(pod),
            volumes: Arc::new(volumes.to_vec()),
            timeout: Duration::from_secs(10),
        };
        self.hear(input)
    }

    fn release(&mut self, pod: &str, by: TearDownRequester) -> String {
        self.asked += 1;
        let (request, uid) = (RequestId(self.asked), PodUid::from(pod));
        self.hear(Input::TearDown { request, uid, by })
    }

    fn reconstructed(&mut self, reconstruction: Reconstruction) -> String {
        self.open.remove("reconstruction").expect("under way");
        self.hear(Input::StepFinished(StepResult::Reconstructed(Ok(reconstruction))))
    }

    fn node(&mut self, attached: &[&str], in_use: &[&str]) -> String {
        let devices = |names: &[&str]| names.iter().map(|name| device(name)).collect();
        self.hear(Input::Node {
            attached: devices(attached),
            in_use: devices(in_use),
        })
    }

    fn expanded(&mut self, line: &str, expanded: Expanded) -> String {
        let step = self.open.remove(line);
        let Some(Step::Expand(work, _)) = step else {
            panic!("{line} is not under way");
        };
        let done = StepResult::Expanded(work.pod.uid(), work.key, Ok(expanded));
        self.hear(Input::StepFinished(done))
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

    /// A step ends; what was found belongs to `find`.
    fn ends(&mut self, line: &str, result: Result<Vec<DiscoveredVolume>, StepError>) -> String {
        let open: Vec<_> = self.open.keys().cloned().collect();
        let step = self.open.remove(line);
        let step = step.unwrap_or_else(|| panic!("{line} is not among {open:?}"));
        let done = match step {
            Step::Reconstruct => StepResult::Reconstructed(result.map(|_| Reconstruction::default())),
            Step::Discover(uid) => StepResult::Discovered(uid, result),
            Step::Stage(device, _) => StepResult::Staged(device, result.map(drop)),
            Step::Unstage(device) => StepResult::Unstaged(device, result.map(drop)),
            Step::Mount(work) => StepResult::Mounted(work.pod.uid(), work.key, result.map(|_| mounted())),
            Step::Expand(work, _) => {
                let bytes = work.volume.size().expect("a size").desired;
                let grown = result.map(|_| ExpansionResult::Expanded(bytes));
                StepResult::Expanded(work.pod.uid(), work.key, grown)
            }
            Step::Unmount(uid, key, _) => StepResult::Unmounted(uid, key, result.map(drop)),
            _ => panic!("{line} does not end"),
        };
        self.hear(Input::StepFinished(done))
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
        claim: None,
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

/// A CSI volume of a claim; change what matters.
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
    let claim = BoundPvc {
        name: name.to_owned(),
        volume: csi.volume_name.clone(),
        exclusive: false,
        group: None,
    };
    PodVolume {
        claim: Some(claim),
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
