//! Tables of admissions and checkpoint changes.

mod allocation;
mod preemption;

use std::sync::Arc;

use windlass_node_rules::admission::SysctlAllowList;
use windlass_node_rules::resize::ResizePolicy;
use windlass_types::corev1::{NodeStatus, PodSpec, PodStatus};
use windlass_types::metav1::Time;
use windlass_types::{PhaseOverride, Timestamp, names};

use super::*;

const NO_SCOPE: &AllocationScope = &AllocationScope {
    every_pod: false,
    resources: BTreeSet::new(),
    owners: BTreeSet::new(),
};

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
        resize: ResizePolicy::default(),
    }
}

impl<'a> AdmissionContext<'a> {
    fn on(node: &'a Node, policy: &'a AdmissionPolicy, desired: &'a DesiredPods) -> Self {
        Self {
            node,
            policy,
            desired,
            strict_groups: None,
            pressure: Pressure::default(),
            shutting_down: false,
            restored: false,
            runs: false,
            scope: NO_SCOPE,
        }
    }
}

struct Case {
    admissions: AdmittedPodSet,
    desired: DesiredPods,
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
            restored,
            runs,
            ..AdmissionContext::on(&self.node, &self.policy, &self.desired)
        };
        let admission = self.admissions.admit_dispatch(dispatch, context);
        let dispatch = admission.dispatches.first().expect("a dispatch");
        assert_eq!(dispatch.to_string(), expected);
        self.admissions.checkpoint_change(dispatch, &self.desired)
    }
}

#[test]
fn pod_is_admitted_once_even_across_agent_restart() {
    let mut case = Case {
        admissions: AdmittedPodSet::default(),
        desired: DesiredPods::default(),
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
fn checkpoints_have_admitted_pods_until_they_finish() {
    let mut case = Case {
        admissions: AdmittedPodSet::default(),
        desired: DesiredPods::default(),
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
        (
            Dispatch::Run(manifest.clone()),
            "run(static)",
            "record-resources(static)",
        ),
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
        (
            Dispatch::Delete(manifest),
            "delete(static)",
            "record-resources(static)",
        ),
    ] {
        let change = case.check(dispatch, (false, false), considered);
        assert_eq!(change.to_string(), expected, "{considered}");
    }
}
