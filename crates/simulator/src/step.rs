//! One step of a plan: an act of users, or a fault. Each is one line of text.
//!
//! A fault that lasts has its duration in the line, and a kill has the time until the restart, so
//! that a step can be removed without another one.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use windlass_testing::{DiskFault, KillMoment};

use crate::words::words;

words! {
    /// Kinds of pods of the API server; a pod's name is its kind and a number.
    PodKind {
        /// One container with a readiness probe.
        Web = "web",
        /// Two containers.
        Pair = "pair",
        /// Ends with success, once.
        Job = "job",
        /// Ends with a failure, once.
        Fail = "fail",
        /// Ends after 5 s, and is restarted.
        Crash = "crash",
        /// Environment from a ConfigMap.
        Env = "env",
        /// Volume from a ConfigMap.
        Config = "config",
        /// Volume from a Secret.
        Secret = "secret",
        /// Volume from a PVC.
        Claim = "claim",
        /// Volume of a CSI driver, shared by several pods.
        Disk = "disk",
        /// Ignores SIGTERM.
        Stubborn = "stubborn",
        /// An init container of 2 s.
        Init = "init",
        /// A sidecar and a container.
        Sidecar = "sidecar",
        /// One container with a liveness probe.
        Live = "live",
        /// One device of a plugin.
        Device = "device",
        /// Guaranteed, with sizes that change.
        Sized = "sized",
        /// Network of the host.
        Host = "host",
        /// More than the node has.
        Big = "big",
        /// Uses more memory than it requests.
        Hog = "hog",
        /// Ends after its active deadline.
        Deadline = "deadline",
    }
}

words! {
    /// What a server in a container responds.
    Response {
        /// 200.
        Ok = "ok",
        /// 500.
        Error = "error",
        /// The connection is refused.
        Refused = "refused",
        /// No response.
        Hung = "hung",
        /// 200 after 700 ms.
        Slow = "slow",
    }
}

words! {
    /// Faults of the API server.
    ApiFault {
        /// Unreachable.
        Outage = "outage",
        /// Calls take 5 s longer.
        Slow = "slow",
        /// Calls hang.
        Hung = "hung",
        /// Credentials are expired.
        Unauthorized = "401",
        /// Forbidden.
        Forbidden = "403",
        /// Conflicts.
        Conflict = "409",
        /// Expired versions.
        Gone = "410",
        /// Too many requests, with `Retry-After`.
        TooMany = "429",
        /// Internal errors.
        Internal = "500",
        /// Served, but the response is lost.
        LostReply = "lost-reply",
        /// Watches end.
        ClosedWatches = "closed-watches",
        /// Watches send nothing more.
        SilentWatches = "silent-watches",
        /// Watches end with an error event.
        FailedWatches = "failed-watches",
        /// The log of changes is compacted.
        Compacted = "compacted",
        /// Lists come from a cache of now.
        StaleReads = "stale-reads",
        /// The authorizer sees changes late.
        InformerLag = "informer-lag",
        /// Events are sent twice.
        RepeatedEvents = "repeated-events",
        /// Events are reordered.
        ReorderedEvents = "reordered-events",
        /// Streaming lists are rejected.
        NoStreamingLists = "no-streaming-lists",
    }
}

words! {
    /// Calls to the API server that a fault affects.
    ApiTarget {
        /// All.
        Any = "any",
        /// Status updates.
        Status = "status",
        /// Pods.
        Pods = "pods",
        /// Watches.
        Watch = "watch",
        /// Leases.
        Lease = "lease",
        /// ConfigMaps.
        References = "references",
        /// Nodes.
        Nodes = "nodes",
    }
}

words! {
    /// Faults of the container runtime.
    RuntimeFault {
        /// Unreachable; containers continue.
        Down = "down",
        /// Calls of an operation hang.
        Hung = "hung",
        /// Calls of an operation take 3 s.
        Slow = "slow",
        /// Two calls of an operation fail.
        Failed = "failed",
        /// One call of an operation takes effect, its response is lost.
        LostReply = "lost-reply",
        /// Three events are lost.
        LostEvents = "lost-events",
        /// Three events are sent twice.
        RepeatedEvents = "repeated-events",
        /// Event streams end.
        ClosedEvents = "closed-events",
        /// Events are 2 s late.
        LateEvents = "late-events",
        /// No events.
        NoEvents = "no-events",
        /// The pod network is not ready.
        NoNetwork = "no-network",
    }
}

words! {
    /// Operations of the runtime that a fault affects.
    RuntimeTarget {
        /// `RunPodSandbox`.
        RunSandbox = "run-sandbox",
        /// `StopPodSandbox`.
        StopSandbox = "stop-sandbox",
        /// `RemovePodSandbox`.
        RemoveSandbox = "remove-sandbox",
        /// `CreateContainer`.
        Create = "create",
        /// `StartContainer`.
        Start = "start",
        /// `StopContainer`.
        Stop = "stop",
        /// `RemoveContainer`.
        Remove = "remove",
        /// `ContainerStatus`.
        ContainerStatus = "container-status",
        /// `PodSandboxStatus`.
        SandboxStatus = "sandbox-status",
        /// `ListContainers`.
        ListContainers = "list-containers",
        /// `ListPodSandbox`.
        ListSandboxes = "list-sandboxes",
        /// `UpdateContainerResources`.
        Update = "update",
        /// `ListImages`.
        ListImages = "list-images",
    }
}

words! {
    /// Steps of volumes that a fault affects.
    VolumeTarget {
        /// Set up.
        Mount = "mount",
        /// Tear down.
        Unmount = "unmount",
        /// Discovery.
        Find = "find",
        /// Staging of a device.
        Stage = "stage",
        /// The reverse.
        Unstage = "unstage",
    }
}

words! {
    /// Acts of the device plugin.
    DeviceAct {
        /// Registers with four devices.
        Registered = "registered",
        /// One device is not healthy.
        Unhealthy = "unhealthy",
        /// The plugin ends.
        Stopped = "stopped",
        /// Calls hang.
        Hung = "hung",
    }
}

/// What happens at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A user creates a pod.
    Create(PodKind, u32),
    /// A user deletes a pod, with a grace period in seconds or its own.
    Delete(PodKind, u32, Option<i64>),
    /// A user labels a pod.
    Label(PodKind, u32),
    /// A user changes the image of a pod's first container.
    Edit(PodKind, u32),
    /// A user requests another size, in thousandths of a CPU.
    Resize(PodKind, u32, u32),
    /// A manifest file is added.
    StaticAdd(String),
    /// A manifest file is changed.
    StaticEdit(String),
    /// A manifest file is removed.
    StaticRemove(String),
    /// A manifest's pod gets another name.
    StaticRename(String, String),
    /// The server of a pod responds otherwise, for a time.
    Respond(PodKind, u32, Response, Duration),
    /// A pod's first container ends by itself, with this code.
    Exit(PodKind, u32, i32),
    /// A pod's first container is killed by the OOM killer.
    Oom(PodKind, u32),
    /// A pod's sandbox ends.
    SandboxEnd(PodKind, u32),
    /// The runtime loses what is left of a pod: its containers that do not run.
    LoseRemains(PodKind, u32),
    /// A user deletes the mirror pod of a manifest.
    DeleteMirror(String),
    /// A user writes the ConfigMap and the Secret of this number.
    WriteConfig(u32),
    /// A user deletes the ConfigMap of this number.
    DeleteConfig(u32),
    /// A user deletes the Node object.
    DeleteNode,
    /// Fault of the API server, for a time.
    Api(ApiFault, ApiTarget, Duration),
    /// Fault of the runtime, for a time.
    Runtime(RuntimeFault, RuntimeTarget, Duration),
    /// The runtime restarts: down for a time.
    RuntimeRestart(Duration),
    /// A step of volumes fails or hangs for a time.
    Volume(VolumeTarget, bool, Duration),
    /// Writes of state files fail, or do not survive a crash of the host, for a time.
    Disk(DiskFault, Duration),
    /// The device plugin, for a time.
    Device(DeviceAct, Duration),
    /// Memory (true) or the disk of the node runs short for a time.
    Pressure(bool, Duration),
    /// The wall clock of the node is set by seconds.
    Clock(i64),
    /// `kill -9`, with the time until the restart.
    Kill(Duration),
    /// `kill -9` at the n-th call that leaves the agent, with the time until the restart.
    KillAt(u64, KillMoment, Duration),
    /// `kill -9`, and a start with a checkpoint in the previous format.
    Upgrade(Duration),
    /// The host reboots, with the time until the agent starts.
    Reboot(Duration),
    /// All faults end, and the agent runs.
    Calm,
    /// Faults end. The node must converge within the first time and remain converged for the second.
    Converge(Duration, Duration),
}

impl Step {
    /// Returns the name of the step's kind, for coverage.
    pub fn kind(&self) -> String {
        match self {
            Self::Create(kind, _) => format!("create {kind}"),
            Self::Delete(_, _, grace) => match grace {
                None => "delete".to_owned(),
                Some(0) => "delete by force".to_owned(),
                Some(_) => "delete with grace".to_owned(),
            },
            Self::Respond(_, _, response, _) => format!("respond {response}"),
            Self::Api(fault, ..) => format!("api {fault}"),
            Self::Runtime(fault, ..) => format!("runtime {fault}"),
            Self::Volume(target, hangs, _) => format!("volume {target} {}", hung_or_failed(*hangs)),
            Self::Disk(fault, _) => format!("disk {}", disk_word(*fault)),
            Self::Device(act, _) => format!("device {act}"),
            Self::Pressure(memory, _) => format!("pressure {}", resource(*memory)),
            Self::KillAt(_, moment, _) => format!("kill-at {}", moment_word(*moment)),
            other => {
                let text = other.to_string();
                text.split(' ').next().unwrap_or_default().to_owned()
            }
        }
    }

    /// Returns the step with every duration and count halved, or `None` if none can be.
    pub fn halved(&self) -> Option<Self> {
        let half = |time: Duration| {
            let halved = Duration::from_millis(u64::try_from(time.as_millis() / 2).unwrap_or(0));
            (time > Duration::from_millis(1)).then_some(halved)
        };
        Some(match self {
            Self::Respond(kind, number, response, time) => {
                Self::Respond(*kind, *number, *response, half(*time)?)
            }
            Self::Api(fault, target, time) => Self::Api(*fault, *target, half(*time)?),
            Self::Runtime(fault, target, time) => Self::Runtime(*fault, *target, half(*time)?),
            Self::RuntimeRestart(time) => Self::RuntimeRestart(half(*time)?),
            Self::Volume(target, hangs, time) => Self::Volume(*target, *hangs, half(*time)?),
            Self::Disk(fault, time) => Self::Disk(*fault, half(*time)?),
            Self::Device(act, time) => Self::Device(*act, half(*time)?),
            Self::Pressure(memory, time) => Self::Pressure(*memory, half(*time)?),
            Self::Kill(time) => Self::Kill(half(*time)?),
            Self::KillAt(crossing, moment, time) => Self::KillAt(*crossing, *moment, half(*time)?),
            Self::Upgrade(time) => Self::Upgrade(half(*time)?),
            Self::Reboot(time) => Self::Reboot(half(*time)?),
            _ => return None,
        })
    }
}

fn hung_or_failed(hangs: bool) -> &'static str {
    match hangs {
        true => "hung",
        false => "failed",
    }
}

fn resource(memory: bool) -> &'static str {
    match memory {
        true => "memory",
        false => "disk",
    }
}

fn disk_word(fault: DiskFault) -> &'static str {
    match fault {
        DiskFault::NoSpace => "full",
        DiskFault::Io => "io-error",
        DiskFault::Lost => "lost",
        DiskFault::Torn => "torn",
    }
}

fn moment_word(moment: KillMoment) -> &'static str {
    match moment {
        KillMoment::Before => "before",
        KillMoment::After => "after",
    }
}

/// Seconds with milliseconds.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{}.{:03}", time.as_secs(), time.subsec_millis())
}

/// Parses [`seconds`].
pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<f64>().ok().filter(|s| (0.0..1e9).contains(s));
    let parsed = parsed.ok_or_else(|| format!("{text:?} is not a time in seconds"))?;
    Ok(Duration::from_millis((parsed * 1000.0).round() as u64))
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(kind, number) => write!(f, "create {kind}-{number}"),
            Self::Delete(kind, number, None) => write!(f, "delete {kind}-{number}"),
            Self::Delete(kind, number, Some(grace)) => write!(f, "delete {kind}-{number} {grace}"),
            Self::Label(kind, number) => write!(f, "label {kind}-{number}"),
            Self::Edit(kind, number) => write!(f, "edit {kind}-{number}"),
            Self::Resize(kind, number, cpu) => write!(f, "resize {kind}-{number} {cpu}"),
            Self::StaticAdd(name) => write!(f, "static-add {name}"),
            Self::StaticEdit(name) => write!(f, "static-edit {name}"),
            Self::StaticRemove(name) => write!(f, "static-remove {name}"),
            Self::StaticRename(from, to) => write!(f, "static-rename {from} {to}"),
            Self::Respond(kind, number, response, time) => {
                write!(f, "respond {kind}-{number} {response} {}", seconds(*time))
            }
            Self::Exit(kind, number, code) => write!(f, "exit {kind}-{number} {code}"),
            Self::Oom(kind, number) => write!(f, "oom {kind}-{number}"),
            Self::SandboxEnd(kind, number) => write!(f, "sandbox-end {kind}-{number}"),
            Self::LoseRemains(kind, number) => write!(f, "lose-remains {kind}-{number}"),
            Self::DeleteMirror(name) => write!(f, "delete-mirror {name}"),
            Self::WriteConfig(number) => write!(f, "write-config {number}"),
            Self::DeleteConfig(number) => write!(f, "delete-config {number}"),
            Self::DeleteNode => f.write_str("delete-node"),
            Self::Api(fault, target, time) => write!(f, "api {fault} {target} {}", seconds(*time)),
            Self::Runtime(fault, target, time) => {
                write!(f, "runtime {fault} {target} {}", seconds(*time))
            }
            Self::RuntimeRestart(time) => write!(f, "runtime-restart {}", seconds(*time)),
            Self::Volume(target, hangs, time) => {
                let word = hung_or_failed(*hangs);
                write!(f, "volume {target} {word} {}", seconds(*time))
            }
            Self::Disk(fault, time) => write!(f, "disk {} {}", disk_word(*fault), seconds(*time)),
            Self::Device(act, time) => write!(f, "device {act} {}", seconds(*time)),
            Self::Pressure(memory, time) => {
                write!(f, "pressure {} {}", resource(*memory), seconds(*time))
            }
            Self::Clock(by) => write!(f, "clock {by}"),
            Self::Kill(down) => write!(f, "kill {}", seconds(*down)),
            Self::KillAt(crossing, moment, down) => {
                let moment = moment_word(*moment);
                write!(f, "kill-at {crossing} {moment} {}", seconds(*down))
            }
            Self::Upgrade(down) => write!(f, "upgrade {}", seconds(*down)),
            Self::Reboot(down) => write!(f, "reboot {}", seconds(*down)),
            Self::Calm => f.write_str("calm"),
            Self::Converge(within, steady) => {
                write!(f, "converge {} {}", seconds(*within), seconds(*steady))
            }
        }
    }
}

/// The parts of a line, from left to right.
struct Parts<'a>(std::str::SplitWhitespace<'a>);

impl<'a> Parts<'a> {
    fn word(&mut self) -> Result<&'a str, String> {
        self.0.next().ok_or_else(|| "a word is missing".to_owned())
    }

    fn value<T: FromStr>(&mut self) -> Result<T, String> {
        let word = self.word()?;
        word.parse()
            .map_err(|_| format!("{word:?} is not a value here"))
    }

    fn time(&mut self) -> Result<Duration, String> {
        parse_seconds(self.word()?)
    }

    fn pod(&mut self) -> Result<(PodKind, u32), String> {
        let word = self.word()?;
        parse_pod(word).ok_or_else(|| format!("{word:?} is not a pod"))
    }

    fn either(&mut self, yes: &str, no: &str) -> Result<bool, String> {
        match self.word()? {
            word if word == yes => Ok(true),
            word if word == no => Ok(false),
            word => Err(format!("{word:?} is neither {yes} nor {no}")),
        }
    }
}

/// Returns kind and number of a pod's name.
pub fn parse_pod(name: &str) -> Option<(PodKind, u32)> {
    let (kind, number) = name.split_once('-')?;
    Some((kind.parse().ok()?, number.parse().ok()?))
}

impl FromStr for Step {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let mut words = Parts(line.split_whitespace());
        let verb = words.word()?;
        let step = match verb {
            "create" | "label" | "edit" | "oom" | "sandbox-end" | "lose-remains" => {
                let (kind, number) = words.pod()?;
                match verb {
                    "create" => Self::Create(kind, number),
                    "label" => Self::Label(kind, number),
                    "edit" => Self::Edit(kind, number),
                    "oom" => Self::Oom(kind, number),
                    "lose-remains" => Self::LoseRemains(kind, number),
                    _ => Self::SandboxEnd(kind, number),
                }
            }
            "delete" => {
                let (kind, number) = words.pod()?;
                let grace = words.0.next().map(str::parse);
                let grace = grace
                    .transpose()
                    .map_err(|_| "not a grace period".to_owned())?;
                Self::Delete(kind, number, grace)
            }
            "resize" => {
                let (kind, number) = words.pod()?;
                Self::Resize(kind, number, words.value()?)
            }
            "static-add" => Self::StaticAdd(words.word()?.to_owned()),
            "static-edit" => Self::StaticEdit(words.word()?.to_owned()),
            "static-remove" => Self::StaticRemove(words.word()?.to_owned()),
            "static-rename" => {
                let from = words.word()?.to_owned();
                Self::StaticRename(from, words.word()?.to_owned())
            }
            "respond" => {
                let (kind, number) = words.pod()?;
                Self::Respond(kind, number, words.value()?, words.time()?)
            }
            "exit" => {
                let (kind, number) = words.pod()?;
                Self::Exit(kind, number, words.value()?)
            }
            "delete-mirror" => Self::DeleteMirror(words.word()?.to_owned()),
            "write-config" => Self::WriteConfig(words.value()?),
            "delete-config" => Self::DeleteConfig(words.value()?),
            "delete-node" => Self::DeleteNode,
            "api" => Self::Api(words.value()?, words.value()?, words.time()?),
            "runtime" => Self::Runtime(words.value()?, words.value()?, words.time()?),
            "runtime-restart" => Self::RuntimeRestart(words.time()?),
            "volume" => {
                let target = words.value()?;
                Self::Volume(target, words.either("hung", "failed")?, words.time()?)
            }
            "disk" => {
                let word = words.word()?;
                let faults = [
                    DiskFault::NoSpace,
                    DiskFault::Io,
                    DiskFault::Lost,
                    DiskFault::Torn,
                ];
                let fault = faults.into_iter().find(|fault| disk_word(*fault) == word);
                let fault = fault.ok_or_else(|| format!("{word:?} is not a fault of a disk"))?;
                Self::Disk(fault, words.time()?)
            }
            "device" => Self::Device(words.value()?, words.time()?),
            "pressure" => Self::Pressure(words.either("memory", "disk")?, words.time()?),
            "clock" => Self::Clock(words.value()?),
            "kill" => Self::Kill(words.time()?),
            "kill-at" => {
                let crossing = words.value()?;
                let moment = match words.either("before", "after")? {
                    true => KillMoment::Before,
                    false => KillMoment::After,
                };
                Self::KillAt(crossing, moment, words.time()?)
            }
            "upgrade" => Self::Upgrade(words.time()?),
            "reboot" => Self::Reboot(words.time()?),
            "calm" => Self::Calm,
            "converge" => Self::Converge(words.time()?, words.time()?),
            other => return Err(format!("{other:?} is not a step")),
        };
        match words.0.next() {
            None => Ok(step),
            Some(word) => Err(format!("unexpected {word:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Step;

    #[test]
    fn every_step_is_read_back_as_written() {
        let lines = [
            "create web-1",
            "delete web-1",
            "delete web-1 0",
            "label web-1",
            "edit web-1",
            "resize sized-1 500",
            "static-add etcd",
            "static-edit etcd",
            "static-remove etcd",
            "static-rename etcd proxy",
            "respond live-1 hung 5.000",
            "exit web-1 137",
            "oom web-1",
            "sandbox-end web-1",
            "lose-remains job-1",
            "delete-mirror etcd",
            "write-config 1",
            "delete-config 1",
            "delete-node",
            "api 429 status 1.500",
            "runtime hung start 20.000",
            "runtime-restart 3.000",
            "volume mount hung 3.000",
            "disk torn 3.000",
            "device stopped 3.000",
            "pressure memory 3.000",
            "clock -3600",
            "kill 0.000",
            "kill-at 17 before 0.250",
            "upgrade 1.000",
            "reboot 30.000",
            "calm",
            "converge 600.000 300.000",
        ];
        for line in lines {
            let step: Step = line
                .parse()
                .unwrap_or_else(|error| panic!("{line}: {error}"));
            assert_eq!(step.to_string(), line);
        }
    }

    #[test]
    fn malformed_steps_are_rejected() {
        for line in [
            "",
            "create",
            "create web",
            "kill",
            "kill x",
            "calm now",
            "disk x 1",
            "api x",
        ] {
            assert!(line.parse::<Step>().is_err(), "{line}");
        }
    }
}
