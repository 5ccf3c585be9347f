//! Defects of other kubelets that tests put into the agent, one at a time.
//!
//! A test that finds no defect shows nothing unless it would find one. Each [`Mutation`] breaks one
//! decision as a known bug of the Go kubelet did; `docs/RELIABILITY.md` lists the scenario and the
//! invariant that find it. Without the feature `mutations` [`mutated`] is a constant false, and no
//! released binary has the feature.

use std::fmt;
use std::str::FromStr;

/// Declares the mutations with their names and the issues of kubernetes/kubernetes.
macro_rules! mutations {
    ($($(#[$doc:meta])+ $variant:ident = $name:literal [$($issue:literal)*],)+) => {
        /// A defect; the numbers are issues or pull requests of kubernetes/kubernetes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Mutation {
            $($(#[$doc])+ $variant,)+
        }

        impl Mutation {
            /// All mutations.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Returns the name in scenarios and documents.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// Returns the issues of kubernetes/kubernetes that it repeats.
            pub const fn issues(self) -> &'static [u32] {
                match self {
                    $(Self::$variant => &[$($issue),*],)+
                }
            }
        }
    };
}

mutations! {
    /// A volume operation in progress delays those of all other pods: a hung NFS mount.
    HungMountBlocksAll = "hung-mount-blocks-all" [31272 27463 90593],
    /// A relist counts only after all inspections: one hung call makes the PLEG unhealthy.
    HungCallStopsPleg = "hung-call-stops-pleg" [45419 94829 61117],
    /// An orphaned pod directory is kept because it may contain volumes.
    OrphanedVolumesStay = "orphaned-volumes-stay" [60987 45464 38498],
    /// A terminal phase is computed again from what the runtime still has.
    TerminalPhaseRegresses = "terminal-phase-regresses" [54499 58711],
    /// A terminal phase is published while containers run.
    TerminalPhaseTooEarly = "terminal-phase-too-early" [88613],
    /// An edited static pod starts beside its terminating predecessor.
    StaticPodsOverlap = "static-pods-overlap" [97722],
    /// A static pod that was edited while the agent was down starts beside its predecessor.
    StaticPodIgnoresOrphan = "static-pod-ignores-orphan" [112814],
    /// Running pods pass admission again after an agent restart.
    RestartRejectsPods = "restart-rejects-pods" [105523 68002 123859],
    /// Running pods need their device plugin after an agent restart.
    RestartFailsDevicePods = "restart-fails-device-pods" [118559 124345 133382],
    /// An agent restart ends all restart back-offs. Upstream keeps them in memory only.
    BackoffResetByRestart = "backoff-reset-by-restart" [],
    /// Volumes are torn down before the containers have stopped.
    VolumesUnmountedEarly = "volumes-unmounted-early" [113979 120150 28160],
    /// A static pod that is removed and added again while it terminates never starts again.
    StaticPodNotRestarted = "static-pod-not-restarted" [104648 107483 116880],
    /// A container without a probe result is ready.
    ReadyWithoutProbe = "ready-without-probe" [135795],
    /// A container without a probe result is not ready, although the API server has it as ready.
    NotReadyAfterRestart = "not-ready-after-restart" [113646 78733 100277 106689],
    /// Lists accept any version: a lagging watch cache goes back in time.
    StaleList = "stale-list" [59848],
    /// The object of a deleted pod stays if a container never ran.
    DeletedPodStays = "deleted-pod-stays" [24819 27013],
    /// The object of a deleted pod is removed before its volumes and directories.
    DeletedTooEarly = "deleted-too-early" [36466 29033],
    /// A deleted pod has no terminal phase.
    NoTerminalPhase = "no-terminal-phase" [116410],
    /// The final deletion has no UID: it deletes a new pod of the same name.
    WrongPodDeleted = "wrong-pod-deleted" [24937 25169],
    /// Status patches have no UID: they change a new pod of the same name.
    StatusOfOldPod = "status-of-old-pod" [82387],
    /// The hash of a container is another one after an upgrade.
    HashChangesWithVersion = "hash-changes-with-version" [63814 53644 84443],
    /// Restarts are counted by the instances that the runtime still has.
    RestartCountFromRemains = "restart-count-from-remains" [12485 13517],
    /// Sidecars stop together with the app containers.
    SidecarsStopFirst = "sidecars-stop-first" [120620],
    /// A removed init container runs again although the app containers run.
    InitContainersRerun = "init-containers-rerun" [86531 62362 67261 90271],
    /// App containers of a previous sandbox count as initialization: they start before the init
    /// containers.
    AppStartsBeforeInit = "app-starts-before-init" [120247],
    /// The grace period starts again after the preStop hook.
    GraceAfterHook = "grace-after-hook" [115817 117373 116753],
    /// A shorter grace period of a second deletion has no effect.
    ShorterGraceIgnored = "shorter-grace-ignored" [127339],
    /// The probe result of an instance applies to the next one.
    ProbeResultOfOldInstance = "probe-result-of-old-instance" [53530],
    /// The next pod is evicted before the first has ended.
    EvictsWithoutWaiting = "evicts-without-waiting" [43166 30173],
    /// An agent restart forgets an eviction in progress.
    EvictionForgotten = "eviction-forgotten" [31362 105358],
    /// An agent restart forgets the devices of pods.
    DeviceGivenTwice = "device-given-twice" [75880 137534],
    /// A refused token is not requested again.
    TokenRefusalIsFinal = "token-refusal-is-final" [138689],
    /// After a lost reply the sandbox is not taken for the pod's, and another is created.
    SecondSandbox = "second-sandbox" [68885],
    /// A mirror pod never matches its static pod.
    MirrorAlwaysReplaced = "mirror-always-replaced" [8642],
    /// A mirror pod that a user deletes stays terminating.
    MirrorStaysTerminating = "mirror-stays-terminating" [22625],
    /// The node status waits for the list of images.
    NodeWaitsForImages = "node-waits-for-images" [38373 37772],
    /// A node is not ready until the runtime was checked after an agent restart.
    NodeNotReadyAtRestart = "node-not-ready-at-restart" [96945],
    /// The lease waits for the Node object.
    LeaseWaitsForNode = "lease-waits-for-node" [29027 46969 53207],
    /// While the event stream is open a relist finds nothing.
    MissedEventIsLost = "missed-event-is-lost" [121003],
    /// A container that was created before an agent restart is never started.
    CreatedContainerStays = "created-container-stays" [123839],
    /// A pod in a terminal phase runs again after an agent restart.
    TerminatedPodRunsAgain = "terminated-pod-runs-again" [37447],
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A name that no mutation has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownMutation(String);

impl fmt::Display for UnknownMutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no mutation is named {:?}", self.0)
    }
}

impl std::error::Error for UnknownMutation {}

impl FromStr for Mutation {
    type Err = UnknownMutation;

    fn from_str(name: &str) -> Result<Self, UnknownMutation> {
        let found = Self::ALL.iter().find(|mutation| mutation.as_str() == name);
        found
            .copied()
            .ok_or_else(|| UnknownMutation(name.to_owned()))
    }
}

/// True while this thread has the mutation. Without the feature `mutations` it is always false.
#[cfg(not(feature = "mutations"))]
pub const fn mutated(_: Mutation) -> bool {
    false
}

#[cfg(feature = "mutations")]
pub use active::{ActiveMutation, mutated};

#[cfg(feature = "mutations")]
mod active {
    use std::cell::Cell;
    use std::marker::PhantomData;

    use super::Mutation;

    thread_local! {
        static ACTIVE: Cell<Option<Mutation>> = const { Cell::new(None) };
    }

    /// True while this thread has the mutation.
    pub fn mutated(mutation: Mutation) -> bool {
        ACTIVE.get() == Some(mutation)
    }

    /// Gives this thread a mutation until it is dropped.
    #[derive(Debug)]
    #[must_use = "the mutation ends when this is dropped"]
    pub struct ActiveMutation {
        before: Option<Mutation>,
        of_this_thread: PhantomData<*const ()>,
    }

    impl ActiveMutation {
        /// Activates a mutation, or none.
        pub fn new(mutation: Option<Mutation>) -> Self {
            Self {
                before: ACTIVE.replace(mutation),
                of_this_thread: PhantomData,
            }
        }
    }

    impl Drop for ActiveMutation {
        fn drop(&mut self) {
            ACTIVE.set(self.before);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_mutation_has_its_own_name_that_parses() {
        let names: BTreeSet<_> = Mutation::ALL.iter().map(|it| it.as_str()).collect();
        assert_eq!(names.len(), Mutation::ALL.len());
        for mutation in Mutation::ALL {
            assert_eq!(mutation.to_string().parse(), Ok(*mutation));
        }
        let error = "typo".parse::<Mutation>().expect_err("unknown");
        assert_eq!(error.to_string(), "no mutation is named \"typo\"");
    }

    #[cfg(feature = "mutations")]
    #[test]
    fn mutation_is_active_until_it_is_dropped() {
        let mutation = Mutation::StaleList;
        let active = ActiveMutation::new(Some(mutation));
        assert!(mutated(mutation) && !mutated(Mutation::SecondSandbox));
        let inner = ActiveMutation::new(None);
        assert!(!mutated(mutation));
        drop(inner);
        assert!(mutated(mutation));
        drop(active);
        assert!(!mutated(mutation));
    }

    #[cfg(not(feature = "mutations"))]
    #[test]
    fn mutation_without_feature_is_never_active() {
        const NEVER: bool = mutated(Mutation::StaleList);
        assert!(!NEVER);
    }
}
