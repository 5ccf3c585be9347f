//! Generates the plan of a seed.
//!
//! The generator knows only what it has planned, not what the node does: a step on a pod that no
//! longer exists has no effect. So a plan is complete before the run, and each step can be removed.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use windlass_testing::{DiskFault, KillMoment};

use crate::plan::{Mode, Plan, TimedStep};
use crate::step::{
    ApiFault, ApiTarget, DeviceAct, PodKind, Response, RuntimeFault, RuntimeTarget, Step,
    VolumeTarget,
};

/// Pods that a plan has at most: enough to compete, few enough that hours are simulated in seconds.
const MAX_PODS: usize = 12;
/// Names of static pods.
const STATICS: [&str; 3] = ["etcd", "proxy", "scheduler"];
/// ConfigMaps and Secrets by number.
pub(crate) const CONFIGS: u32 = 3;
/// Time in which a calm node must converge: the longest back-off and a grace period.
const CONVERGE: Duration = Duration::from_secs(600);
/// Time for which it must remain so.
const STEADY: Duration = Duration::from_secs(300);

/// Returns the plan of a seed.
pub fn generate(seed: u64, mode: Mode, length: Duration) -> Plan {
    let mut generator = Generator {
        dice: SmallRng::seed_from_u64(seed),
        pods: BTreeMap::new(),
        statics: BTreeMap::new(),
        next: 0,
    };
    let mut steps = Vec::new();
    let mut at = Duration::from_secs(2);
    for name in &STATICS[..2] {
        generator.statics.insert(name, true);
        let step = Step::StaticAdd((*name).to_owned());
        steps.push(TimedStep { at, step });
    }
    let mut calm_at = at + generator.storm();
    loop {
        at += generator.gap();
        if mode == Mode::Liveness && at >= calm_at {
            let step = Step::Converge(CONVERGE, STEADY);
            steps.push(TimedStep { at, step });
            at += CONVERGE + STEADY;
            calm_at = at + generator.storm();
            continue;
        }
        if at >= length {
            break;
        }
        if let Some(step) = generator.step() {
            steps.push(TimedStep { at, step });
        }
    }
    steps.retain(|timed| timed.at < length);
    Plan {
        seed,
        mode,
        length,
        steps,
    }
}

struct Generator {
    dice: SmallRng,
    /// Planned pods by number.
    pods: BTreeMap<u32, PodKind>,
    /// Planned manifests.
    statics: BTreeMap<&'static str, bool>,
    next: u32,
}

impl Generator {
    /// Time of faults before a node must converge.
    fn storm(&mut self) -> Duration {
        Duration::from_secs(self.dice.random_range(120..1200))
    }

    /// Time to the next step: bursts, pauses, and now and then a quiet time.
    fn gap(&mut self) -> Duration {
        let milliseconds = match self.dice.random_range(0..100) {
            0..=14 => self.dice.random_range(0..50),
            15..=79 => self.dice.random_range(50..15_000),
            80..=95 => self.dice.random_range(15_000..120_000),
            _ => self.dice.random_range(120_000..1_200_000),
        };
        Duration::from_millis(milliseconds)
    }

    /// Duration of a fault: mostly short, rarely long.
    fn time(&mut self) -> Duration {
        let milliseconds = match self.dice.random_range(0..10) {
            0..=3 => self.dice.random_range(10..3000),
            4..=8 => self.dice.random_range(3000..60_000),
            _ => self.dice.random_range(60_000..900_000),
        };
        Duration::from_millis(milliseconds)
    }

    fn one<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        all.choose(&mut self.dice).copied()
    }

    fn pod(&mut self) -> Option<(PodKind, u32)> {
        let pods: Vec<_> = self.pods.iter().map(|(n, kind)| (*kind, *n)).collect();
        self.one(&pods)
    }

    fn create(&mut self) -> Option<Step> {
        if self.pods.len() >= MAX_PODS {
            return self.delete();
        }
        let kind = self.one(&PodKind::ALL)?;
        // few pods come back under the same name
        let number = match self.dice.random_bool(0.1) && self.next > 0 {
            true => self.dice.random_range(0..self.next),
            false => self.next,
        };
        self.next = self.next.max(number + 1);
        self.pods.insert(number, kind);
        Some(Step::Create(kind, number))
    }

    fn delete(&mut self) -> Option<Step> {
        let (kind, number) = self.pod()?;
        self.pods.remove(&number);
        let grace = self.one(&[None, None, None, Some(0), Some(1), Some(20)])?;
        Some(Step::Delete(kind, number, grace))
    }

    fn static_pod(&mut self) -> Option<Step> {
        let name = self.one(&STATICS)?;
        let is_there = self.statics.get(name).copied().unwrap_or(false);
        let other = STATICS
            .iter()
            .find(|name| !self.statics.contains_key(*name));
        Some(match (is_there, self.dice.random_range(0..4)) {
            (false, _) => {
                self.statics.insert(name, true);
                Step::StaticAdd(name.to_owned())
            }
            (true, 0) => {
                self.statics.remove(name);
                Step::StaticRemove(name.to_owned())
            }
            (true, 1) if let Some(other) = other => {
                self.statics.remove(name);
                self.statics.insert(other, true);
                Step::StaticRename(name.to_owned(), (*other).to_owned())
            }
            (true, _) => Step::StaticEdit(name.to_owned()),
        })
    }

    fn kill(&mut self) -> Option<Step> {
        let down = match self.dice.random_range(0..4) {
            0 => Duration::ZERO,
            1 => self.time(),
            _ => Duration::from_millis(self.dice.random_range(1..5000)),
        };
        let moment = self.one(&[KillMoment::Before, KillMoment::After])?;
        Some(match self.dice.random_range(0..10) {
            0..=2 => Step::Kill(down),
            3 => Step::Upgrade(down),
            _ => {
                let calls = self.dice.random_range(1..120);
                Step::KillAt(calls, moment, down)
            }
        })
    }

    fn respond(&mut self) -> Option<Step> {
        let probed: Vec<_> = self.pods.iter().map(|(n, kind)| (*kind, *n)).collect();
        let has_probe = |kind: &PodKind| matches!(kind, PodKind::Web | PodKind::Live);
        let probed: Vec<_> = probed.into_iter().filter(|(k, _)| has_probe(k)).collect();
        let (kind, number) = self.one(&probed)?;
        let response = self.one(&Response::ALL[1..])?;
        Some(Step::Respond(kind, number, response, self.time()))
    }

    /// Of a pod that leaves remains while it exists.
    fn lose_remains(&mut self) -> Option<Step> {
        let leaves = |kind: &PodKind| {
            matches!(
                kind,
                PodKind::Job | PodKind::Fail | PodKind::Crash | PodKind::Init | PodKind::Deadline
            )
        };
        let pods = self.pods.iter().filter(|(_, kind)| leaves(kind));
        let pods: Vec<_> = pods.map(|(number, kind)| (*kind, *number)).collect();
        let (kind, number) = self.one(&pods)?;
        Some(Step::LoseRemains(kind, number))
    }

    fn resize(&mut self) -> Option<Step> {
        let pods = self
            .pods
            .iter()
            .filter(|(_, kind)| **kind == PodKind::Sized);
        let pods: Vec<u32> = pods.map(|(number, _)| *number).collect();
        let number = self.one(&pods)?;
        let cpu = self.one(&[100, 250, 500, 900_000])?;
        Some(Step::Resize(PodKind::Sized, number, cpu))
    }

    fn api(&mut self) -> Option<Step> {
        let fault = self.one(&ApiFault::ALL)?;
        let target = match fault {
            ApiFault::Slow
            | ApiFault::Hung
            | ApiFault::Unauthorized
            | ApiFault::Forbidden
            | ApiFault::Conflict
            | ApiFault::Gone
            | ApiFault::TooMany
            | ApiFault::Internal
            | ApiFault::LostReply => self.one(&ApiTarget::ALL)?,
            _ => ApiTarget::Any,
        };
        Some(Step::Api(fault, target, self.time()))
    }

    fn runtime(&mut self) -> Option<Step> {
        let fault = self.one(&RuntimeFault::ALL)?;
        let target = self.one(&RuntimeTarget::ALL)?;
        Some(Step::Runtime(fault, target, self.time()))
    }

    fn volume(&mut self) -> Option<Step> {
        let target = self.one(&VolumeTarget::ALL)?;
        let hangs = self.dice.random_bool(0.4);
        Some(Step::Volume(target, hangs, self.time()))
    }

    fn disk(&mut self) -> Option<Step> {
        let fault = self.one(&[
            DiskFault::NoSpace,
            DiskFault::Io,
            DiskFault::Lost,
            DiskFault::Torn,
        ])?;
        Some(Step::Disk(fault, self.time()))
    }

    fn step(&mut self) -> Option<Step> {
        match self.dice.random_range(0..100) {
            0..=19 => self.create(),
            20..=28 => self.delete(),
            29..=30 => self.pod().map(|(kind, number)| Step::Label(kind, number)),
            31..=32 => self.pod().map(|(kind, number)| Step::Edit(kind, number)),
            33..=35 => self.resize(),
            36..=40 => self.static_pod(),
            41..=43 => self.respond(),
            44..=45 => {
                let code = self.one(&[0, 1, 137])?;
                self.pod()
                    .map(|(kind, number)| Step::Exit(kind, number, code))
            }
            46 => self.pod().map(|(kind, number)| Step::Oom(kind, number)),
            47 => self
                .pod()
                .map(|(kind, number)| Step::SandboxEnd(kind, number)),
            48 => Some(Step::WriteConfig(self.dice.random_range(0..CONFIGS))),
            49 => match self.dice.random_bool(0.5) {
                true => self.lose_remains(),
                false => self
                    .one(&STATICS)
                    .map(|name| Step::DeleteMirror(name.to_owned())),
            },
            50 => Some(Step::DeleteConfig(self.dice.random_range(0..CONFIGS))),
            51 => Some(Step::DeleteNode),
            52..=63 => self.api(),
            64..=73 => self.runtime(),
            74 => Some(Step::RuntimeRestart(self.time())),
            75..=76 => self.volume(),
            77..=79 => self.disk(),
            80..=81 => {
                let act = self.one(&DeviceAct::ALL)?;
                Some(Step::Device(act, self.time()))
            }
            82 => {
                let memory = self.dice.random_bool(0.6);
                Some(Step::Pressure(memory, self.time()))
            }
            83 => {
                let by = self.one(&[-3600, -60, -5, -1, 1, 5, 60, 3600])?;
                Some(Step::Clock(by))
            }
            84..=93 => self.kill(),
            94 => Some(Step::Reboot(self.time())),
            95..=96 => Some(Step::Calm),
            _ => self.create(),
        }
    }
}
