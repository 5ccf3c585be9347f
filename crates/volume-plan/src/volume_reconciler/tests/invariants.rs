//! What holds whatever happens, in whatever order.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Move {
    Ask(usize, usize),
    Release(usize, bool),
    /// One of the open steps ends, well or not.
    End(usize, bool),
    Pass(u16),
    Ready,
    Node(bool),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        4 => (0..3_usize, 0..4_usize).prop_map(|(pod, set)| Move::Ask(pod, set)),
        2 => (0..3_usize, any::<bool>()).prop_map(|(pod, worker)| Move::Release(pod, worker)),
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
    if let Some(claim) = &mut alone.claim {
        claim.exclusive = true;
    }
    match set {
        0 => vec![empty("a")],
        1 => vec![empty("a"), csi("c", |_| ())],
        2 => vec![attached, csi("c", |_| ())],
        _ => vec![alone, empty("b")],
    }
}

/// What a node would hold, kept beside the plan.
#[derive(Default)]
struct Model {
    /// May lie on the disk, by pod: name and device.
    lies: BTreeMap<PodUid, BTreeMap<String, Option<DeviceName>>>,
    /// Released since something was mounted last.
    released: BTreeSet<PodUid>,
    wants: BTreeMap<PodUid, BTreeSet<DeviceName>>,
    staged: BTreeSet<DeviceName>,
    open: BTreeMap<String, Step>,
    waiting: BTreeSet<u64>,
}

impl Model {
    fn take(&mut self, steps: Vec<Step>) {
        for step in steps {
            let line = step.to_string();
            match &step {
                Step::Ready(ask, _) | Step::Released(ask, _) => {
                    assert!(self.waiting.remove(&ask.0), "answered twice: {line}");
                    continue;
                }
                Step::Wake(_)
                | Step::GiveUp(_)
                | Step::Record(..)
                | Step::RecordClaim(..)
                | Step::Reject(..)
                // nobody answers, and nothing waits for it
                | Step::CheckAttachLimit(_)
                | Step::InUse(_) => continue,
                Step::Mount(work) => {
                    let uid = work.pod.uid();
                    let device = work.volume.device();
                    let staged = device.as_ref().is_none_or(|d| self.staged.contains(d));
                    assert!(staged, "not staged: {line}");
                    self.released.remove(&uid);
                    let unmounting = format!("unmount({uid}/");
                    let taken = self.open.keys().any(|open| open.starts_with(&unmounting));
                    assert!(!taken, "taken away at the same time: {line}");
                    let name = work.volume.dir_name().to_owned();
                    self.lies.entry(uid).or_default().insert(name, device);
                }
                Step::Unmount(uid, _, _) => {
                    assert!(self.released.contains(uid), "nobody asked: {line}");
                }
                Step::Unstage(device) => {
                    let mut lying = self.lies.values().flat_map(BTreeMap::values);
                    let used = lying.any(|of| of.as_ref() == Some(device));
                    let wanted = self.wants.values().any(|devices| devices.contains(device));
                    assert!(!used && !wanted, "in use: {line}");
                }
                Step::Survey
                | Step::Find(_)
                | Step::Stage(..)
                | Step::Expand(..) => {}
            }
            assert!(
                self.open.insert(line.clone(), step).is_none(),
                "twice: {line}"
            );
        }
    }

    fn end(&mut self, line: &str, ok: bool) -> Option<Done> {
        let error = StepError {
            operation: None,
            message: "no".into(),
            retry: Retry::Later,
        };
        let result = |(): ()| if ok { Ok(()) } else { Err(error) };
        Some(match self.open.remove(line)? {
            Step::Survey => Done::Reconstructed(result(()).map(|()| Survey::default())),
            Step::Find(uid) => {
                let lies = self.lies.get(&uid).into_iter().flatten();
                let found = lies.map(|(name, device)| DiscoveredVolume {
                    plugin_dir: match device {
                        Some(_) => "kubernetes.io~csi".into(),
                        None => "kubernetes.io~empty-dir".into(),
                    },
                    name: name.clone(),
                    block: false,
                    device: device.clone(),
                });
                let found = found.collect();
                Done::Found(uid, result(()).map(|()| found))
            }
            Step::Stage(device, _) => {
                if ok {
                    self.staged.insert(device.clone());
                }
                Done::Staged(device, result(()))
            }
            Step::Unstage(device) => {
                if ok {
                    self.staged.remove(&device);
                }
                Done::Unstaged(device, result(()))
            }
            Step::Mount(work) => {
                Done::Mounted(work.pod.uid(), work.key, result(()).map(|()| mounted()))
            }
            Step::Expand(work, _) => {
                let expanded = result(()).map(|()| Expanded::NotNow);
                Done::Expanded(work.pod.uid(), work.key, expanded)
            }
            Step::Unmount(uid, key, found) => {
                if ok && let Some(lies) = self.lies.get_mut(&uid) {
                    lies.remove(&found.name);
                }
                Done::Unmounted(uid, key, result(()))
            }
            _ => return None,
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn nothing_in_use_is_taken_away_and_everybody_is_answered(moves in moves()) {
        let mut plan = VolumeReconciler::new();
        let mut model = Model::default();
        let mut uptime = Duration::ZERO;
        let mut asked = 0;
        let hear = |plan: &mut VolumeReconciler, model: &mut Model, input, uptime| {
            let now = Timestamp::from_second(EPOCH).expect("in range");
            model.take(plan.handle(input, Moment { uptime, now }));
        };
        for one in moves {
            let input = match one {
                Move::Ask(pod, set) => {
                    asked += 1;
                    model.waiting.insert(asked);
                    let volumes = volumes(set);
                    let devices = volumes.iter().filter_map(PodVolume::device).collect();
                    model.wants.insert(PodUid::from(PODS[pod]), devices);
                    Input::SetUp {
                        ask: RequestId(asked),
                        pod: pod_named(PODS[pod]),
                        volumes: Arc::new(volumes),
                        patience: Duration::from_secs(10),
                    }
                }
                Move::Release(pod, worker) => {
                    asked += 1;
                    model.waiting.insert(asked);
                    let uid = PodUid::from(PODS[pod]);
                    let refused = !worker && model.wants.contains_key(&uid);
                    if !refused {
                        model.wants.remove(&uid);
                        model.released.insert(uid.clone());
                    }
                    let by = match worker {
                        true => TearDownRequester::Worker,
                        false => TearDownRequester::Housekeeping,
                    };
                    Input::TearDown { ask: RequestId(asked), uid, by }
                }
                Move::End(n, ok) => {
                    let line = model.open.keys().nth(n).cloned();
                    match line.and_then(|line| model.end(&line, ok)) {
                        Some(done) => Input::Done(done),
                        None => continue,
                    }
                }
                Move::Pass(hundredths) => {
                    uptime += Duration::from_millis(u64::from(hundredths) * 10);
                    Input::Tick
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
            hear(&mut plan, &mut model, input, uptime);
        }
        // everything ends well from now on
        hear(&mut plan, &mut model, Input::SourcesReady, uptime);
        for _ in 0..2000 {
            let line = model.open.keys().next().cloned();
            if let Some(done) = line.and_then(|line| model.end(&line, true)) {
                hear(&mut plan, &mut model, Input::Done(done), uptime);
            } else if let Some(left) = plan.wakes_in(uptime) {
                uptime += left;
                hear(&mut plan, &mut model, Input::Tick, uptime);
            } else {
                break;
            }
        }
        // who waits for a volume that another pod keeps tries for ever
        prop_assert!(model.open.is_empty(), "goes on: {:?}", model.open.keys());
        prop_assert!(model.waiting.is_empty(), "not answered: {:?}", model.waiting);
        for uid in PODS.map(PodUid::from) {
            let lies = model.lies.get(&uid).is_some_and(|lies| !lies.is_empty());
            let refused = plan.pods.get(&uid).is_some_and(|pod| pod.pod.is_none());
            prop_assert!(!refused || lies, "remembered for nothing: {uid}");
        }
    }
}
