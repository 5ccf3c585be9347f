//! Medium and size limit of an `emptyDir`.

use std::fmt;
use std::time::Duration;

use windlass_types::corev1::{EmptyDirVolumeSource, ResourceRequirements};
use windlass_types::{Pod, PodExt};

use windlass_pod_inputs::resources::{huge_page_resource, pod_limit};
use windlass_units::quantity::Quantity;

/// Directory of the plugin below `volumes/` of a pod.
pub const EMPTY_DIR_PLUGIN: &str = "kubernetes.io~empty-dir";
/// Time after which the removal of an emptyDir counts as hung: it removes what the pod wrote, and
/// 127,000 files took 10 s on a slow disk.
pub const REMOVAL_HANG_THRESHOLD: Duration = Duration::from_secs(60);

const HUGE_PAGES: &str = "hugepages-";
const HUGE_PAGES_MEDIUM: &str = "HugePages";

/// Medium of an `emptyDir`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmptyDirMedium {
    /// A directory.
    Disk,
    /// A tmpfs.
    Memory {
        /// Size limit in bytes; `None` is the kernel's default.
        size: Option<u64>,
    },
    /// A hugetlbfs.
    HugePages {
        /// Page size in bytes.
        page_size: u64,
        /// Size limit in bytes; `None` is the kernel's default.
        size: Option<u64>,
    },
}

impl fmt::Display for EmptyDirMedium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, size) = match self {
            Self::Disk => return f.write_str("disk"),
            Self::Memory { size } => ("memory".to_owned(), size),
            Self::HugePages { page_size, size } => (format!("hugepages of {page_size}"), size),
        };
        match size {
            Some(size) => write!(f, "{name}, {size} bytes"),
            None => write!(f, "{name}, no limit"),
        }
    }
}

/// Error of an invalid `emptyDir`; the texts are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmptyDirError {
    /// Unknown medium.
    #[error("unknown storage medium {0:?}")]
    UnknownMedium(String),
    /// Invalid `sizeLimit` or page size of the medium.
    #[error("{field} {value:?} is not a size")]
    NotASize {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
    },
    /// The medium has no page size, and the resources have several.
    #[error("medium: HugePages can't be used if container requests multiple huge page sizes")]
    SeveralPageSizes,
    /// No container requests pages of this size.
    #[error(
        "medium {0}: hugePages storage requested, but there is no resource request for huge pages"
    )]
    NoHugePages(String),
}

/// Returns the medium. `allocatable` is the allocatable memory of the node in bytes; 0 if unknown.
///
/// # Errors
/// The volume is invalid.
pub fn empty_dir_medium(
    pod: &Pod,
    source: &EmptyDirVolumeSource,
    allocatable: u64,
) -> Result<EmptyDirMedium, EmptyDirError> {
    let own = match &source.size_limit {
        None => None,
        Some(quantity) => Some(size_of("sizeLimit", &quantity.0)?),
    };
    match source.medium.as_deref().unwrap_or_default() {
        "" => Ok(EmptyDirMedium::Disk),
        "Memory" => Ok(EmptyDirMedium::Memory {
            size: memory_volume_size(pod, own, allocatable),
        }),
        medium => {
            let page_size = page_size(pod, medium)?;
            let limit = pod_amount(pod, &huge_page_resource(page_size));
            let size = smallest([own, limit]).filter(|size| *size >= page_size);
            Ok(EmptyDirMedium::HugePages { page_size, size })
        }
    }
}

/// Returns the size limit of a memory volume: the minimum of its own limit, the pod's memory limit
/// and the allocatable memory; `None` if all are unknown.
pub fn memory_volume_size(pod: &Pod, own: Option<u64>, allocatable: u64) -> Option<u64> {
    let limited = |resources: Option<&ResourceRequirements>| {
        let limits = resources.and_then(|r| r.limits.as_ref());
        limits.is_some_and(|l| l.contains_key("memory"))
    };
    let mut all = pod.init_containers().iter().chain(pod.containers());
    // a container without a limit makes the pod unlimited
    let counts = limited(PodExt::spec(pod).resources.as_ref())
        || all.all(|container| limited(container.resources.as_ref()));
    let of_pod = counts.then(|| pod_amount(pod, "memory")).flatten();
    smallest([own, of_pod, Some(allocatable)])
}

/// Returns the page size of the medium, or else the only one that the pod requests.
fn page_size(pod: &Pod, medium: &str) -> Result<u64, EmptyDirError> {
    let unknown = || EmptyDirError::UnknownMedium(medium.to_owned());
    let rest = medium.strip_prefix(HUGE_PAGES_MEDIUM).ok_or_else(unknown)?;
    let named = match rest.strip_prefix('-') {
        Some(size) => Some(size_of("medium", size)?),
        None if rest.is_empty() => None,
        None => return Err(unknown()),
    };
    let mut requested = requested_page_sizes(pod);
    match named {
        Some(size) if requested.contains(&size) => return Ok(size),
        Some(_) => {}
        None if requested.len() > 1 => return Err(EmptyDirError::SeveralPageSizes),
        None => {
            if let Some(size) = requested.pop() {
                return Ok(size);
            }
        }
    }
    Err(EmptyDirError::NoHugePages(medium.to_owned()))
}

/// Returns the distinct page sizes in requests and limits, which are equal for huge pages.
fn requested_page_sizes(pod: &Pod) -> Vec<u64> {
    let containers = pod.init_containers().iter().chain(pod.containers());
    let resources = containers
        .filter_map(|container| container.resources.as_ref())
        .chain(PodExt::spec(pod).resources.as_ref());
    let lists = resources.flat_map(|r| r.requests.iter().chain(r.limits.iter()));
    let names = lists.flat_map(|list| list.keys());
    let mut sizes: Vec<u64> = names
        .filter_map(|name| name.strip_prefix(HUGE_PAGES))
        .filter_map(|size| bytes(size).filter(|size| *size > 0))
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

fn pod_amount(pod: &Pod, resource: &str) -> Option<u64> {
    let amount = pod_limit(pod, resource)?.value();
    u64::try_from(amount).ok()
}

fn smallest<const N: usize>(sizes: [Option<u64>; N]) -> Option<u64> {
    sizes.into_iter().flatten().filter(|size| *size > 0).min()
}

fn size_of(field: &'static str, text: &str) -> Result<u64, EmptyDirError> {
    bytes(text).ok_or_else(|| EmptyDirError::NotASize {
        field,
        value: text.to_owned(),
    })
}

fn bytes(text: &str) -> Option<u64> {
    let quantity: Quantity = text.parse().ok()?;
    u64::try_from(quantity.value()).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(spec: Value, source: Value, expected: &str) {
        let pod: Pod = serde_json::from_value(json!({"spec": spec})).expect("pod");
        let source = serde_json::from_value(source).expect("source");
        let line = match empty_dir_medium(&pod, &source, 1 << 30) {
            Ok(medium) => medium.to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(line, expected, "{spec} {source:?}");
    }

    fn containers(limits: &[Value]) -> Value {
        let containers: Vec<Value> = limits
            .iter()
            .map(|limits| json!({"name": "c", "resources": {"limits": limits}}))
            .collect();
        json!({"containers": containers})
    }

    #[test]
    fn memory_volume_size_is_minimum_of_volume_pod_and_node() {
        let check = |limits: &[Option<&str>], own: Option<&str>, expected: &str| {
            let limits: Vec<Value> = limits
                .iter()
                .map(|limit| limit.map_or(json!({}), |limit| json!({"memory": limit})))
                .collect();
            let mut source = json!({"medium": "Memory"});
            if let Some(own) = own {
                source["sizeLimit"] = json!(own);
            }
            check(containers(&limits), source, expected);
        };
        check(&[None], None, "memory, 1073741824 bytes");
        check(&[None], Some("7"), "memory, 7 bytes");
        check(&[None], Some("2Gi"), "memory, 1073741824 bytes");
        check(&[Some("1Ki"), Some("1Ki")], None, "memory, 2048 bytes");
        check(
            &[Some("1Ki"), Some("1Ki")],
            Some("4Ki"),
            "memory, 2048 bytes",
        );
        check(&[Some("1Ki"), Some("1Ki")], Some("7"), "memory, 7 bytes");
        check(&[Some("1Ki"), None], Some("4Ki"), "memory, 4096 bytes");
        check(&[Some("1Ki")], Some("0"), "memory, 1024 bytes");
        check(&[None], Some("many"), "sizeLimit \"many\" is not a size");
        let unknown = empty_dir_medium(&Pod::default(), &memory(), 0).expect("medium");
        assert_eq!(unknown.to_string(), "memory, no limit");
    }

    fn memory() -> EmptyDirVolumeSource {
        EmptyDirVolumeSource {
            medium: Some("Memory".to_owned()),
            size_limit: None,
        }
    }

    #[test]
    fn huge_page_size_is_from_medium_or_only_requested_size() {
        let one = containers(&[json!({"hugepages-2Mi": "8Mi"})]);
        let two = containers(&[
            json!({"hugepages-2Mi": "8Mi"}),
            json!({"hugepages-1Gi": "1Gi"}),
        ]);
        let medium = |medium: &str| json!({"medium": medium});
        check(
            one.clone(),
            medium("HugePages"),
            "hugepages of 2097152, 8388608 bytes",
        );
        check(
            one.clone(),
            json!({"medium": "HugePages-2Mi", "sizeLimit": "4Mi"}),
            "hugepages of 2097152, 4194304 bytes",
        );
        check(
            one.clone(),
            json!({"medium": "HugePages", "sizeLimit": "1Mi"}),
            "hugepages of 2097152, no limit",
        );
        check(
            two.clone(),
            medium("HugePages-1Gi"),
            "hugepages of 1073741824, 1073741824 bytes",
        );
        check(
            two,
            medium("HugePages"),
            "medium: HugePages can't be used if container requests multiple huge page sizes",
        );
        check(
            one.clone(),
            medium("HugePages-1Gi"),
            "medium HugePages-1Gi: hugePages storage requested, but there is no resource request for huge pages",
        );
        check(
            containers(&[json!({"cpu": "1"})]),
            medium("HugePages"),
            "medium HugePages: hugePages storage requested, but there is no resource request for huge pages",
        );
        check(
            one.clone(),
            medium("HugePages-x"),
            "medium \"x\" is not a size",
        );
        check(
            one.clone(),
            medium("HugePagesx"),
            "unknown storage medium \"HugePagesx\"",
        );
        check(
            one.clone(),
            medium("Paper"),
            "unknown storage medium \"Paper\"",
        );
        check(one, medium(""), "disk");
    }
}
