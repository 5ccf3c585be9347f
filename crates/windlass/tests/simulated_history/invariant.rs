//! The invariants of `docs/RELIABILITY.md`, and their violations.

use std::fmt;

macro_rules! invariants {
    ($($(#[$doc:meta])+ $variant:ident = $name:literal,)+) => {
        /// What holds at any time.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Invariant {
            $($(#[$doc])+ $variant,)+
        }

        impl Invariant {
            const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

invariants! {
    /// A container has one live instance, a pod one ready sandbox, a static pod's full name one pod.
    OneInstance = "one-instance",
    /// A desired pod runs within a bound.
    DesiredPodRuns = "desired-pod-runs",
    /// What fails or hangs delays its own pod only.
    PodsAreIndependent = "pods-are-independent",
    /// A running container is not restarted without a cause; an agent restart is not one.
    RunningPodStays = "running-pod-stays",
    /// A pod in a terminal phase never runs again.
    EndedPodStaysEnded = "ended-pod-stays-ended",
    /// A terminal phase is never left.
    TerminalPhaseIsFinal = "terminal-phase-is-final",
    /// A terminal phase is published when nothing of the pod can run.
    TerminalPhaseIsTrue = "terminal-phase-is-true",
    /// The object of a deleted pod goes within a bound.
    DeletedPodGoes = "deleted-pod-goes",
    /// The object of a deleted pod goes after its containers, volumes and directories.
    ObjectGoesLast = "object-goes-last",
    /// A request of a pod never changes another of the same name.
    UidIsChecked = "uid-is-checked",
    /// A restart count never goes back.
    RestartCountGrows = "restart-count-grows",
    /// The restart back-off holds over an agent restart.
    BackoffHolds = "back-off-holds",
    /// Init containers run once, in order, before app containers; sidecars stop after them.
    ContainersInOrder = "containers-in-order",
    /// The time from the stop of a pod to its end is at most its grace period.
    GracePeriodHolds = "grace-period-holds",
    /// An exit is noticed within a bound, whatever events are lost.
    ExitIsNoticed = "exit-is-noticed",
    /// Readiness changes only by a probe of this instance.
    ReadinessIsProbed = "readiness-is-probed",
    /// The node stays ready while its runtime responds.
    NodeStaysReady = "node-stays-ready",
    /// The lease is renewed on time.
    LeaseOnTime = "lease-on-time",
    /// A mirror pod follows its static pod and affects nothing.
    MirrorFollows = "mirror-follows",
    /// Volumes are mounted from before the start until after the end of the containers.
    VolumesWhileRunning = "volumes-while-running",
    /// Nothing of a removed pod is left after a bound.
    NothingIsLeft = "nothing-is-left",
    /// One pod is evicted at a time, and stays evicted.
    OneEviction = "one-eviction",
    /// A device has one owner.
    DeviceHasOneOwner = "device-has-one-owner",
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An invariant that did not hold.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) invariant: Invariant,
    pub(crate) text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.text)
    }
}
