//! Which pods this node has taken, and what they take of it. Pure.
//!
//! A pod is admitted once. One that was admitted before the agent started (it comes from the
//! checkpoint, it runs, or its status at the API server says that it was started) is not asked
//! again: a restart of the agent rejects nothing.

use std::collections::BTreeSet;
use std::fmt;

use windlass_node_rules::admission::{
    AdmissionInput, NodeAbilities, NodeLoad, Pressure, Rejection, admit,
};
use windlass_types::corev1::Node;
use windlass_types::{Pod, PodExt, PodUid, SharedPod};

use crate::dispatch::Dispatch;

/// What a pod is admitted against.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// The node as the API server has it, or as the agent would register it.
    pub node: &'a Node,
    /// What machine and configuration allow.
    pub abilities: &'a NodeAbilities,
    /// The runtime can keep to `supplementalGroupsPolicy: Strict`; `None` before it was asked.
    pub strict_groups: Option<bool>,
    /// The machine is about to shut down.
    pub shutting_down: bool,
    /// Pods in this update come from the checkpoint.
    pub restored: bool,
    /// The runtime has something of the pod.
    pub runs: bool,
}

/// What the checkpoint of admitted pods is told.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CheckpointChange {
    /// This is the newest version of an admitted pod.
    Record(SharedPod),
    /// The pod is gone or will never run again.
    Forget(PodUid),
    /// Nothing.
    None,
}

impl fmt::Display for CheckpointChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(pod) => write!(f, "record({})", pod.uid()),
            Self::Forget(uid) => write!(f, "forget({uid})"),
            Self::None => f.write_str("none"),
        }
    }
}

/// The admitted pods.
#[derive(Debug, Default)]
pub struct Admissions {
    load: NodeLoad,
    admitted: BTreeSet<PodUid>,
    rejected: BTreeSet<PodUid>,
}

impl Admissions {
    /// What becomes of a dispatch: a pod that may not run is rejected instead. With it goes what was
    /// decided of a pod that was not known before.
    pub fn consider(
        &mut self,
        dispatch: Dispatch,
        around: Surroundings<'_>,
    ) -> (Dispatch, Option<Result<(), Rejection>>) {
        match dispatch {
            Dispatch::Run(pod) => match self.admit(&pod, around) {
                Ok(new) => (Dispatch::Run(pod), new.then_some(Ok(()))),
                Err(rejection) => (
                    Dispatch::Reject(pod, rejection.clone().into()),
                    Some(Err(rejection)),
                ),
            },
            Dispatch::End(pod) => {
                // it takes nothing any more
                self.load.remove(&pod.uid());
                (Dispatch::End(pod), None)
            }
            Dispatch::Remove(uid) => {
                self.load.remove(&uid);
                self.admitted.remove(&uid);
                self.rejected.remove(&uid);
                (Dispatch::Remove(uid), None)
            }
            other => (other, None),
        }
    }

    /// True for a pod that was admitted and is not gone.
    pub(crate) fn is_admitted(&self, uid: &PodUid) -> bool {
        self.admitted.contains(uid)
    }

    /// What the checkpoint is told of a considered dispatch. Static pods come back with their
    /// manifests; the API server's pods are written down.
    pub(crate) fn checkpoint_change(&self, dispatch: &Dispatch) -> CheckpointChange {
        match dispatch {
            Dispatch::Run(pod) | Dispatch::Delete(pod)
                if !pod.is_static() && self.is_admitted(&pod.uid()) =>
            {
                CheckpointChange::Record(SharedPod::clone(pod))
            }
            Dispatch::End(pod) => CheckpointChange::Forget(pod.uid()),
            Dispatch::Remove(uid) => CheckpointChange::Forget(uid.clone()),
            Dispatch::Run(_) | Dispatch::Delete(_) | Dispatch::Sync(_) | Dispatch::Reject(..) => {
                CheckpointChange::None
            }
        }
    }

    /// Whether the pod was admitted just now.
    fn admit(&mut self, pod: &Pod, around: Surroundings<'_>) -> Result<bool, Rejection> {
        let uid = pod.uid();
        if self.rejected.contains(&uid) {
            // its worker has ended it, and ends nothing twice
            return Ok(false);
        }
        let before =
            self.admitted.contains(&uid) || around.restored || around.runs || was_started(pod);
        if !before {
            let input = AdmissionInput {
                pod,
                node: around.node,
                load: &self.load,
                abilities: around.abilities,
                strict_groups: around.strict_groups,
                pressure: Pressure::default(),
                shutting_down: around.shutting_down,
            };
            if let Err(rejection) = admit(input) {
                self.rejected.insert(uid);
                return Err(rejection);
            }
        }
        self.load.add(pod);
        Ok(self.admitted.insert(uid))
    }
}

/// True if a status of the API server says that a node agent took the pod.
fn was_started(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    !pod.is_static() && status.is_some_and(|status| status.start_time.is_some())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use windlass_node_rules::admission::SysctlAllowList;
    use windlass_types::corev1::{NodeStatus, PodSpec, PodStatus};
    use windlass_types::metav1::Time;
    use windlass_types::{Timestamp, names};

    use super::*;

    /// A node for `pods` pods.
    fn node(pods: u32) -> Node {
        let quantity = |text: &str| serde_json::from_value(text.into()).expect("a quantity");
        let amounts = [
            ("pods", pods.to_string()),
            ("cpu", "4".into()),
            ("memory", "4Gi".into()),
        ];
        let allocatable = amounts.map(|(name, text)| (name.to_owned(), quantity(&text)));
        Node {
            status: Some(NodeStatus {
                allocatable: Some(allocatable.into()),
                ..NodeStatus::default()
            }),
            ..Node::default()
        }
    }

    fn pod(uid: &str, started: bool) -> Dispatch {
        let mut pod = Pod {
            spec: Some(PodSpec::default()),
            ..Pod::default()
        };
        pod.metadata.uid = Some(uid.to_owned());
        let start_time = started.then_some(Time(Timestamp::UNIX_EPOCH));
        pod.status = Some(PodStatus {
            start_time,
            ..PodStatus::default()
        });
        Dispatch::Run(Arc::new(pod))
    }

    fn abilities() -> NodeAbilities {
        NodeAbilities {
            sysctls: SysctlAllowList::default(),
            app_armor: false,
            pod_level_resources: true,
            declared_features: None,
        }
    }

    struct Case {
        admissions: Admissions,
        node: Node,
        abilities: NodeAbilities,
    }

    impl Case {
        /// Considers a dispatch; what the checkpoint is told of what comes out.
        fn check(
            &mut self,
            dispatch: Dispatch,
            (restored, runs): (bool, bool),
            expected: &str,
        ) -> CheckpointChange {
            let around = Surroundings {
                node: &self.node,
                abilities: &self.abilities,
                strict_groups: None,
                shutting_down: false,
                restored,
                runs,
            };
            let (dispatch, _) = self.admissions.consider(dispatch, around);
            assert_eq!(dispatch.to_string(), expected);
            self.admissions.checkpoint_change(&dispatch)
        }
    }

    #[test]
    fn a_pod_is_admitted_once_and_one_that_was_before_is_not_asked_again() {
        let mut case = Case {
            admissions: Admissions::default(),
            node: node(1),
            abilities: abilities(),
        };
        let new = (false, false);
        case.check(pod("a", false), new, "run(a)");
        case.check(pod("a", false), new, "run(a)");
        case.check(pod("b", false), new, "reject(b OutOfpods)");
        case.check(pod("b", false), new, "run(b)");
        assert!(!case.admissions.is_admitted(&"b".into()));
        // room or not: these were admitted by an earlier life of the agent
        case.check(pod("c", true), new, "run(c)");
        case.check(pod("d", false), (true, false), "run(d)");
        case.check(pod("e", false), (false, true), "run(e)");
        for uid in ["a", "c", "d", "e"] {
            let gone = format!("remove({uid})");
            case.check(Dispatch::Remove(uid.into()), new, &gone);
        }
        case.check(pod("f", false), new, "run(f)");
    }

    #[test]
    fn the_checkpoint_has_the_admitted_pods_of_the_api_server_until_they_end() {
        let mut case = Case {
            admissions: Admissions::default(),
            node: node(2),
            abilities: abilities(),
        };
        let shared = |uid: &str| match pod(uid, false) {
            Dispatch::Run(pod) => pod,
            other => panic!("{other}"),
        };
        let mut manifest = Arc::unwrap_or_clone(shared("static"));
        let source = (names::ANN_CONFIG_SOURCE.to_owned(), "file".to_owned());
        manifest.metadata.annotations = Some([source].into());
        let manifest = Arc::new(manifest);
        for (dispatch, considered, expected) in [
            (pod("a", false), "run(a)", "record(a)"),
            (Dispatch::Run(manifest.clone()), "run(static)", "none"),
            (pod("b", false), "reject(b OutOfpods)", "none"),
            // its worker is asked again, and it runs as little as before
            (pod("b", false), "run(b)", "none"),
            (Dispatch::Delete(shared("b")), "delete(b)", "none"),
            (Dispatch::Sync("a".into()), "sync(a)", "none"),
            (Dispatch::Delete(shared("a")), "delete(a)", "record(a)"),
            (Dispatch::End(shared("a")), "end(a)", "forget(a)"),
            (Dispatch::Remove("a".into()), "remove(a)", "forget(a)"),
            (Dispatch::Delete(manifest), "delete(static)", "none"),
        ] {
            let change = case.check(dispatch, (false, false), considered);
            assert_eq!(change.to_string(), expected, "{considered}");
        }
    }
}
