//! Trust anchors: what a ClusterTrustBundle says, chosen by label and put into one file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use windlass_types::certificatesv1beta1::ClusterTrustBundle;
use windlass_types::metav1::LabelSelector;

/// Characters of base64 in one line of PEM.
const LINE: usize = 64;

/// What a ClusterTrustBundle says. All pods that show it share the one copy.
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
            anchors: blocks(&object.spec.trust_bundle).collect(),
        }
    }
}

/// All anchors of some bundles, each once, as PEM.
///
/// Upstream shuffles them anew at each of its starts, so that nobody relies on their order; here
/// they are sorted, so that a restart changes no file.
pub(super) fn file<'a>(bundles: impl Iterator<Item = &'a TrustBundle>) -> Arc<[u8]> {
    let anchors: BTreeSet<&Vec<u8>> = bundles.flat_map(|bundle| &bundle.anchors).collect();
    let mut text = String::new();
    for anchor in anchors {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let encoded = STANDARD.encode(anchor);
        let mut rest = encoded.as_str();
        while !rest.is_empty() {
            // base64 is ASCII: any place is a boundary
            let (line, after) = rest.split_at(LINE.min(rest.len()));
            text.push_str(line);
            text.push('\n');
            rest = after;
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text.into_bytes().into()
}

/// The selector chooses something with these labels; one that is not there chooses nothing, an
/// empty one everything.
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

/// The contents of the PEM blocks of a text; what is no block is passed over.
fn blocks(text: &str) -> impl Iterator<Item = Vec<u8>> {
    let mut lines = text.lines().map(str::trim_end);
    std::iter::from_fn(move || {
        loop {
            let begin = lines.find_map(|line| label(line, "-----BEGIN "))?;
            let mut body = String::new();
            let mut ended = false;
            for line in lines.by_ref() {
                if let Some(end) = label(line, "-----END ") {
                    ended = end == begin;
                    break;
                }
                // headers, which certificates do not have
                if !line.contains(':') {
                    body.push_str(line);
                }
            }
            match STANDARD.decode(&body) {
                Ok(der) if ended && !der.is_empty() => return Some(der),
                _ => {}
            }
        }
    })
}

fn label<'a>(line: &'a str, start: &str) -> Option<&'a str> {
    line.strip_prefix(start)?.strip_suffix("-----")
}
