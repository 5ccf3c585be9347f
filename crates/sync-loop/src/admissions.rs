//! The admitted pods and their requests. Pure.
//!
//! A pod is admitted once. A pod that is in the checkpoint, runs, or has a start time at the API
//! server is not checked again: an agent restart rejects no pod.

use std::collections::BTreeSet;
use std::fmt;

use windlass_node_rules::admission::{
    AdmissionInput, AdmissionPolicy, NodeLoad, Pressure, Rejection, admit,
};
use windlass_types::corev1::Node;
use windlass_types::{Pod, PodExt, PodUid, SharedPod};

use crate::dispatch::Dispatch;

/// Input of an admission besides the pod.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionContext<'a> {
    /// The Node object, or the one that the agent would register.
    pub node: &'a Node,
    /// Limits of host and configuration.
    pub policy: &'a AdmissionPolicy,
    /// The runtime supports `supplementalGroupsPolicy: Strict`; `None` if unknown.
    pub strict_groups: Option<bool>,
    /// The host is about to shut down.
    pub shutting_down: bool,
    /// The pods are from the checkpoint.
    pub restored: bool,
    /// The runtime has containers or sandboxes of the pod.
    pub runs: bool,
}

/// Change to the checkpoint of admitted pods.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CheckpointChange {
    /// Record the newest version of an admitted pod.
    Record(SharedPod),
    /// Remove a deleted or finished pod.
    Forget(PodUid),
    /// No change.
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
pub struct AdmittedPodSet {
    load: NodeLoad,
    admitted: BTreeSet<PodUid>,
    rejected: BTreeSet<PodUid>,
}

impl AdmittedPodSet {
    /// Admits the pod of a dispatch or replaces the dispatch by a rejection. Also returns the
    /// decision for a new pod.
    pub fn admit_dispatch(
        &mut self,
        dispatch: Dispatch,
        context: AdmissionContext<'_>,
    ) -> (Dispatch, Option<Result<(), Rejection>>) {
        match dispatch {
            Dispatch::Run(pod) => match self.admit(&pod, context) {
                Ok(new) => (Dispatch::Run(pod), new.then_some(Ok(()))),
                Err(rejection) => (
                    Dispatch::Reject(pod, rejection.clone().into()),
                    Some(Err(rejection)),
                ),
            },
            Dispatch::Terminate(pod) => {
                // it uses no resources
                self.load.remove(&pod.uid());
                (Dispatch::Terminate(pod), None)
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

    /// True for an admitted pod.
    pub(crate) fn is_admitted(&self, uid: &PodUid) -> bool {
        self.admitted.contains(uid)
    }

    /// Returns the checkpoint change for an admitted dispatch. Static pods are not in the
    /// checkpoint.
    pub(crate) fn checkpoint_change(&self, dispatch: &Dispatch) -> CheckpointChange {
        match dispatch {
            Dispatch::Run(pod) | Dispatch::Delete(pod)
                if !pod.is_static() && self.is_admitted(&pod.uid()) =>
            {
                CheckpointChange::Record(SharedPod::clone(pod))
            }
            Dispatch::Terminate(pod) => CheckpointChange::Forget(pod.uid()),
            Dispatch::Remove(uid) => CheckpointChange::Forget(uid.clone()),
            Dispatch::Run(_)
            | Dispatch::Delete(_)
            | Dispatch::Sync(_)
            | Dispatch::Reject(..)
            | Dispatch::Kill(..) => CheckpointChange::None,
        }
    }

    /// Admits a pod; true if it is new.
    fn admit(&mut self, pod: &Pod, context: AdmissionContext<'_>) -> Result<bool, Rejection> {
        let uid = pod.uid();
        if self.rejected.contains(&uid) {
            // its worker has terminated it already
            return Ok(false);
        }
        let before =
            self.admitted.contains(&uid) || context.restored || context.runs || was_started(pod);
        if !before {
            let input = AdmissionInput {
                pod,
                node: context.node,
                load: &self.load,
                policy: context.policy,
                strict_groups: context.strict_groups,
                pressure: Pressure::default(),
                shutting_down: context.shutting_down,
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

/// True if the API status has a start time.
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

    fn policy() -> AdmissionPolicy {
        AdmissionPolicy {
            sysctls: SysctlAllowList::default(),
            app_armor: false,
            pod_level_resources: true,
            declared_features: None,
        }
    }

    struct Case {
        admissions: AdmittedPodSet,
        node: Node,
        policy: AdmissionPolicy,
    }

    impl Case {
        /// Admits a dispatch and returns the checkpoint change.
        fn check(
            &mut self,
            dispatch: Dispatch,
            (restored, runs): (bool, bool),
            expected: &str,
        ) -> CheckpointChange {
            let context = AdmissionContext {
                node: &self.node,
                policy: &self.policy,
                strict_groups: None,
                shutting_down: false,
                restored,
                runs,
            };
            let (dispatch, _) = self.admissions.admit_dispatch(dispatch, context);
            assert_eq!(dispatch.to_string(), expected);
            self.admissions.checkpoint_change(&dispatch)
        }
    }

    #[test]
    fn pod_is_admitted_once_even_across_agent_restart() {
        let mut case = Case {
            admissions: AdmittedPodSet::default(),
            node: node(1),
            policy: policy(),
        };
        let new = (false, false);
        case.check(pod("a", false), new, "run(a)");
        case.check(pod("a", false), new, "run(a)");
        case.check(pod("b", false), new, "reject(b OutOfpods)");
        case.check(pod("b", false), new, "run(b)");
        assert!(!case.admissions.is_admitted(&"b".into()));
        // admitted by a previous agent run, despite the limit
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
    fn checkpoint_has_admitted_api_pods_until_they_finish() {
        let mut case = Case {
            admissions: AdmittedPodSet::default(),
            node: node(2),
            policy: policy(),
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
            // the dispatch is repeated, but its worker does not run it
            (pod("b", false), "run(b)", "none"),
            (Dispatch::Delete(shared("b")), "delete(b)", "none"),
            (Dispatch::Sync("a".into()), "sync(a)", "none"),
            (Dispatch::Delete(shared("a")), "delete(a)", "record(a)"),
            (
                Dispatch::Terminate(shared("a")),
                "terminate(a)",
                "forget(a)",
            ),
            (Dispatch::Remove("a".into()), "remove(a)", "forget(a)"),
            (Dispatch::Delete(manifest), "delete(static)", "none"),
        ] {
            let change = case.check(dispatch, (false, false), considered);
            assert_eq!(change.to_string(), expected, "{considered}");
        }
    }
}
