//! Invariants under random inputs.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Move {
    SetUp(usize, usize),
    TearDown(usize, bool),
    /// A step in progress succeeds or fails.
    End(usize, bool),
    Pass(u16),
    Ready,
    Node(bool),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        4 => (0..3_usize, 0..4_usize).prop_map(|(pod, set)| Move::SetUp(pod, set)),
        2 => (0..3_usize, any::<bool>()).prop_map(|(pod, worker)| Move::TearDown(pod, worker)),
        8 => (0..8_usize, prop::bool::weighted(0.8)).prop_map(|(n, ok)| Move::End(n, ok)),
        2 => (1..2000_u16).prop_map(Move::Pass),
        1 => Just(Move::Ready),
        1 => any::<bool>().prop_map(Move::Node),
    ];
    prop::collection::vec(one, 1..120)
}

const PODS: [&str; 3] = ["p", "q", "r"];

fn volumes(set: usize) -> Vec<PodVolume> {
    let attached = csi("t", |volume| volume.attach_required = true);
    let mut alone = csi("x", |_| ());
    if let Some(pvc) = &mut alone.pvc {
        pvc.exclusive = true;
    }
    match set {
        0 => vec![empty("a")],
        1 => vec![empty("a"), csi("c", |_| ())],
        2 => vec![attached, csi("c", |_| ())],
        _ => vec![alone, empty("b")],
    }
}

/// Model of the node.
#[derive(Default)]
struct Model {
    /// Volumes that may be on the disk, by pod: name and device.
    on_disk: BTreeMap<PodUid, BTreeMap<String, Option<DeviceName>>>,
    /// Torn down since the last mount.
    torn_down: BTreeSet<PodUid>,
    desired: BTreeMap<PodUid, BTreeSet<DeviceName>>,
    staged: BTreeSet<DeviceName>,
    open: BTreeMap<String, Step>,
    waiting: BTreeSet<u64>,
}

impl Model {
    fn take(&mut self, steps: Vec<Step>) {
        for step in steps {
            let line = step.to_string();
            match &step {
                Step::ReplySetUp(request, _) | Step::ReplyTearDown(request, _) => {
                    assert!(self.waiting.remove(&request.0), "second reply: {line}");
                    continue;
                }
                Step::RequeuePod(_)
                | Step::CancelOperations(_)
                | Step::Record(..)
                | Step::RecordPvc(..)
                | Step::Reject(..)
                // without a result, and nothing waits for it
                | Step::CheckAttachLimit(_)
                | Step::ReportInUse(_) => continue,
                Step::Mount(work) => {
                    let uid = work.pod.uid();
                    let device = work.volume.device();
                    let staged = device.as_ref().is_none_or(|d| self.staged.contains(d));
                    assert!(staged, "not staged: {line}");
                    self.torn_down.remove(&uid);
                    let unmounting = format!("unmount({uid}/");
                    let taken = self.open.keys().any(|open| open.starts_with(&unmounting));
                    assert!(!taken, "unmount in progress: {line}");
                    let name = work.volume.dir_name().to_owned();
                    self.on_disk.entry(uid).or_default().insert(name, device);
                }
                Step::Unmount(uid, _, _) => {
                    assert!(self.torn_down.contains(uid), "not requested: {line}");
                }
                Step::Unstage(device) => {
                    let mut stored = self.on_disk.values().flat_map(BTreeMap::values);
                    let used = stored.any(|of| of.as_ref() == Some(device));
                    let wanted = self.desired.values().any(|devices| devices.contains(device));
                    assert!(!used && !wanted, "in use: {line}");
                }
                Step::Reconstruct
                | Step::Discover(_)
                | Step::Stage(..)
                | Step::Expand(..) => {}
            }
            assert!(
                self.open.insert(line.clone(), step).is_none(),
                "twice: {line}"
            );
        }
    }

    fn end(&mut self, line: &str, ok: bool) -> Option<StepResult> {
        let error = StepError {
            operation: None,
            message: "no".into(),
            retry: Retry::Later,
        };
        let result = |(): ()| if ok { Ok(()) } else { Err(error) };
        Some(match self.open.remove(line)? {
            Step::Reconstruct => {
                StepResult::Reconstructed(result(()).map(|()| Reconstruction::default()))
            }
            Step::Discover(uid) => {
                let on_disk = self.on_disk.get(&uid).into_iter().flatten();
                let found = on_disk.map(|(name, device)| DiscoveredVolume {
                    plugin_dir: match device {
                        Some(_) => "kubernetes.io~csi".into(),
                        None => "kubernetes.io~empty-dir".into(),
                    },
                    name: name.clone(),
                    block: false,
                    device: device.clone(),
                });
                let found = found.collect();
                StepResult::Discovered(uid, result(()).map(|()| found))
            }
            Step::Stage(device, _) => {
                if ok {
                    self.staged.insert(device.clone());
                }
                StepResult::Staged(device, result(()))
            }
            Step::Unstage(device) => {
                if ok {
                    self.staged.remove(&device);
                }
                StepResult::Unstaged(device, result(()))
            }
            Step::Mount(work) => {
                StepResult::Mounted(work.pod.uid(), work.key, result(()).map(|()| mounted()))
            }
            Step::Expand(work, _) => {
                let expanded = result(()).map(|()| ExpansionResult::Deferred);
                StepResult::Expanded(work.pod.uid(), work.key, expanded)
            }
            Step::Unmount(uid, key, found) => {
                if ok && let Some(volumes) = self.on_disk.get_mut(&uid) {
                    volumes.remove(&found.name);
                }
                StepResult::Unmounted(uid, key, result(()))
            }
            _ => return None,
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn used_volumes_stay_and_each_request_gets_a_reply(moves in moves()) {
        let mut reconciler = VolumeReconciler::new();
        let mut model = Model::default();
        let mut monotonic = Duration::ZERO;
        let mut requests = 0;
        let handle = |reconciler: &mut VolumeReconciler, model: &mut Model, input, monotonic| {
            let wall = Timestamp::from_second(EPOCH).expect("in range");
            let now = ClockReading { wall, monotonic };
            model.take(reconciler.handle(input, now));
        };
        for one in moves {
            let input = match one {
                Move::SetUp(pod, set) => {
                    requests += 1;
                    model.waiting.insert(requests);
                    let volumes = volumes(set);
                    let devices = volumes.iter().filter_map(PodVolume::device).collect();
                    model.desired.insert(PodUid::from(PODS[pod]), devices);
                    Input::SetUp {
                        request: RequestId(requests),
                        pod: pod_named(PODS[pod]),
                        volumes: Arc::new(volumes),
                        timeout: Duration::from_secs(10),
                    }
                }
                Move::TearDown(pod, worker) => {
                    requests += 1;
                    model.waiting.insert(requests);
                    let uid = PodUid::from(PODS[pod]);
                    let rejected = !worker && model.desired.contains_key(&uid);
                    if !rejected {
                        model.desired.remove(&uid);
                        model.torn_down.insert(uid.clone());
                    }
                    let by = match worker {
                        true => TearDownRequester::Worker,
                        false => TearDownRequester::Housekeeping,
                    };
                    Input::TearDown { request: RequestId(requests), uid, by }
                }
                Move::End(n, ok) => {
                    let line = model.open.keys().nth(n).cloned();
                    match line.and_then(|line| model.end(&line, ok)) {
                        Some(result) => Input::StepFinished(result),
                        None => continue,
                    }
                }
                Move::Pass(hundredths) => {
                    monotonic += Duration::from_millis(u64::from(hundredths) * 10);
                    Input::TimerFired
                }
                Move::Ready => Input::SourcesReady,
                Move::Node(attached) => {
                    let devices = BTreeSet::from([device("t")]);
                    Input::Node {
                        attached: if attached { devices.clone() } else { BTreeSet::new() },
                        in_use: devices,
                    }
                }
            };
            handle(&mut reconciler, &mut model, input, monotonic);
        }
        // all steps succeed from now on
        handle(&mut reconciler, &mut model, Input::SourcesReady, monotonic);
        for _ in 0..2000 {
            let line = model.open.keys().next().cloned();
            if let Some(result) = line.and_then(|line| model.end(&line, true)) {
                handle(&mut reconciler, &mut model, Input::StepFinished(result), monotonic);
            } else if let Some(left) = reconciler.next_wake_up(monotonic) {
                monotonic += left;
                handle(&mut reconciler, &mut model, Input::TimerFired, monotonic);
            } else {
                break;
            }
        }
        // a pod that waits for an exclusive volume of another retries without end
        prop_assert!(model.open.is_empty(), "in progress: {:?}", model.open.keys());
        prop_assert!(model.waiting.is_empty(), "no reply: {:?}", model.waiting);
        for uid in PODS.map(PodUid::from) {
            let on_disk = model.on_disk.get(&uid).is_some_and(|volumes| !volumes.is_empty());
            let undesired = reconciler.pods.get(&uid).is_some_and(|pod| pod.pod.is_none());
            prop_assert!(!undesired || on_disk, "stale state: {uid}");
        }
    }
}
