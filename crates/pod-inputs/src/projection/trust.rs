//! Trust anchors of ClusterTrustBundles: selection by label, and the PEM file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use windlass_types::certificatesv1beta1::ClusterTrustBundle;
use windlass_types::metav1::LabelSelector;

use super::pem;

/// Content of a ClusterTrustBundle, shared by its pods.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TrustBundle {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its certificates, DER.
    pub anchors: BTreeSet<Vec<u8>>,
}

impl fmt::Debug for TrustBundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} anchors", self.anchors.len())
    }
}

impl From<ClusterTrustBundle> for TrustBundle {
    fn from(object: ClusterTrustBundle) -> Self {
        Self {
            labels: object.metadata.labels.unwrap_or_default(),
            anchors: pem::blocks(&object.spec.trust_bundle).collect(),
        }
    }
}

/// Returns the anchors of all bundles, each once, as PEM.
///
/// They are sorted, so that an agent restart does not change the file; upstream shuffles them at
/// each start.
pub(super) fn file<'a>(bundles: impl Iterator<Item = &'a TrustBundle>) -> Arc<[u8]> {
    let anchors: BTreeSet<&Vec<u8>> = bundles.flat_map(|bundle| &bundle.anchors).collect();
    pem::certificates(anchors.into_iter().map(Vec::as_slice))
}

/// Returns whether the selector matches the labels. No selector matches nothing, an empty one
/// everything.
pub(super) fn matches(selector: Option<&LabelSelector>, labels: &BTreeMap<String, String>) -> bool {
    let Some(selector) = selector else {
        return false;
    };
    let mut wanted = selector.match_labels.iter().flatten();
    let mut conditions = selector.match_expressions.iter().flatten();
    wanted.all(|(key, value)| labels.get(key) == Some(value))
        && conditions.all(|condition| {
            let value = labels.get(&condition.key);
            let listed = value.is_some_and(|value| {
                let values = condition.values.as_deref().unwrap_or_default();
                values.contains(value)
            });
            match condition.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}
