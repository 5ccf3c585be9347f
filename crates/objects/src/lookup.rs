//! Reads of sets that are watched: what is known of an object by a deadline.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use windlass_client::Selector;

use crate::reflections::{Kept, Reflections, settled};
use crate::resolve::{Kind, Unanswered};

/// How long a pod waits until each of its references was answered once.
pub(crate) const ANSWER_DEADLINE: Duration = Duration::from_secs(10);

/// The one object of this name.
pub(crate) fn by_name(namespace: &str, name: &str) -> Selector {
    Selector {
        namespace: Some(namespace.to_owned()),
        fields: Some(format!("metadata.name={name}")),
        labels: None,
    }
}

/// All objects of a cluster-scoped type.
pub(crate) fn all() -> Selector {
    Selector::default()
}

/// Namespace, and names in it.
pub(crate) type Names = (String, Vec<String>);

/// Objects that exist, by name, and those of which nothing is known until the deadline.
pub(crate) async fn read<T: Kept>(
    sets: &Reflections<T>,
    kind: Kind,
    (namespace, names): Names,
) -> (BTreeMap<String, Arc<T>>, Vec<Unanswered>) {
    let deadline = Instant::now() + ANSWER_DEADLINE;
    let mut found = BTreeMap::new();
    let mut unanswered = Vec::new();
    // one after the other is as fast as together: the watches are under way already
    for name in names {
        let selector = by_name(&namespace, &name);
        match item(sets, &selector, &namespace, &name, deadline).await {
            Ok(Some(content)) => {
                found.insert(name, content);
            }
            Ok(None) => {}
            Err(error) => unanswered.push(Unanswered { kind, name, error }),
        }
    }
    (found, unanswered)
}

/// One object of a set, once the set was read; the last error if it is not until the deadline.
pub(crate) async fn item<T: Kept>(
    sets: &Reflections<T>,
    selector: &Selector,
    namespace: &str,
    name: &str,
    deadline: Instant,
) -> Result<Option<Arc<T>>, Option<Arc<str>>> {
    // the pod went while it was being resolved
    let Some(known) = sets.subscribe(selector) else {
        return Err(None);
    };
    // what came of it is in `known`
    let _ = tokio::time::timeout_at(deadline, settled(&known)).await;
    let known = known.borrow();
    if known.synced {
        let key = (namespace.to_owned(), name.to_owned());
        return Ok(known.items.get(&key).cloned());
    }
    Err(known.error.as_ref().map(|e| e.to_string().into()))
}
