//! Limits and requests of a container or pod: allocated, requested and actual.

use std::collections::BTreeSet;

use windlass_types::corev1::ResourceRequirements;

use super::page::Page;

/// Resources of a container or pod.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sizes<'a> {
    /// What the node has allocated.
    pub(super) allocated: Option<&'a ResourceRequirements>,
    /// What the spec requests, if that is not allocated.
    pub(super) requested: Option<&'a ResourceRequirements>,
    /// What is in effect, if that is known.
    pub(super) actual: Option<&'a ResourceRequirements>,
}

/// Adds the limits and requests; those that are not allocated or not in effect with each value.
pub(super) fn fields(page: &mut Page, level: usize, sizes: Sizes<'_>) {
    for title in ["Limits", "Requests"] {
        let list = |resources: Option<&'_ ResourceRequirements>| {
            let list = resources.and_then(|resources| match title {
                "Limits" => resources.limits.clone(),
                _ => resources.requests.clone(),
            });
            list.unwrap_or_default()
        };
        let (allocated, requested) = (list(sizes.allocated), list(sizes.requested));
        let actual = list(sizes.actual);
        let names: BTreeSet<&String> = allocated.keys().chain(requested.keys()).collect();
        if names.is_empty() {
            continue;
        }
        page.line(level, &format!("{title}:"));
        for name in names {
            let mut value = allocated.get(name).map_or("<none>", |a| &a.0).to_owned();
            for (title, is_known, list) in [
                ("requested", sizes.requested.is_some(), &requested),
                ("actual", sizes.actual.is_some(), &actual),
            ] {
                let other = list.get(name);
                if is_known && other != allocated.get(name) {
                    let other = other.map_or("<none>", |other| &other.0);
                    value.push_str(&format!(" ({title}: {other})"));
                }
            }
            page.field(level + 1, name, &value);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Values side by side.

    use serde_json::json;

    use super::*;

    #[test]
    fn differing_sizes_are_side_by_side() {
        let resources = |memory: &str| -> ResourceRequirements {
            let amounts = json!({"limits": {"memory": memory}, "requests": {"cpu": "1"}});
            serde_json::from_value(amounts).expect("resources")
        };
        let (allocated, requested, actual) =
            (resources("64Mi"), resources("1Gi"), resources("32Mi"));
        let check = |sizes: Sizes<'_>, expected: &str| {
            let mut page = Page::default();
            fields(&mut page, 0, sizes);
            assert_eq!(page.into_text(), expected);
        };
        check(Sizes::default(), "");
        let same = Sizes {
            allocated: Some(&allocated),
            actual: Some(&allocated),
            ..Sizes::default()
        };
        let lines = |memory: &str| {
            format!("Limits:\n  memory:         {memory}\nRequests:\n  cpu:            1\n")
        };
        check(same, &lines("64Mi"));
        let differing = Sizes {
            requested: Some(&requested),
            actual: Some(&actual),
            ..same
        };
        check(differing, &lines("64Mi (requested: 1Gi) (actual: 32Mi)"));
    }
}
