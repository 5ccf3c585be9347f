//! What an `emptyDir` is made of, and how large it may become.

use std::fmt;

use windlass_types::corev1::{EmptyDirVolumeSource, ResourceRequirements};
use windlass_types::{Pod, PodExt};

use windlass_pod_inputs::resources::pod_limit;
use windlass_units::quantity::{Quantity, QuantityFormat};

const HUGE_PAGES: &str = "hugepages-";
const HUGE_PAGES_MEDIUM: &str = "HugePages";

/// What an `emptyDir` is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmptyDirMedium {
    /// A directory.
    Disk,
    /// A tmpfs.
    Memory {
        /// Bytes it may hold; `None` leaves it to the kernel.
        size: Option<u64>,
    },
    /// A hugetlbfs.
    HugePages {
        /// Bytes of one page.
        page_size: u64,
        /// Bytes it may hold; `None` leaves it to the kernel.
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

/// An `emptyDir` that cannot be made; the texts are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmptyDirError {
    /// Not a medium.
    #[error("unknown storage medium {0:?}")]
    UnknownMedium(String),
    /// `sizeLimit` or the page size of the medium is no size.
    #[error("{field} {value:?} is not a size")]
    NotASize {
        /// Which.
        field: &'static str,
        /// What it says.
        value: String,
    },
    /// The page size is left to the resources, which name several.
    #[error("medium: HugePages can't be used if container requests multiple huge page sizes")]
    SeveralPageSizes,
    /// No container asks for pages of that size.
    #[error(
        "medium {0}: hugePages storage requested, but there is no resource request for huge pages"
    )]
    NoHugePages(String),
}

/// Decides. `allocatable` is the memory that all pods of the node may use, in bytes; 0 if unknown.
///
/// # Errors
/// The definition makes no sense, whatever the node is like.
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
            let limit = pod_amount(pod, &resource_of(page_size));
            // less than a page would hold nothing
            let size = smallest([own, limit]).filter(|size| *size >= page_size);
            Ok(EmptyDirMedium::HugePages { page_size, size })
        }
    }
}

/// How large a memory volume may become: the least of its own limit, the pod's memory limit, because
/// what is written counts against that, and the node's allocatable memory. `None` if nothing of that
/// is known.
pub fn memory_volume_size(pod: &Pod, own: Option<u64>, allocatable: u64) -> Option<u64> {
    let limited = |resources: Option<&ResourceRequirements>| {
        let limits = resources.and_then(|r| r.limits.as_ref());
        limits.is_some_and(|l| l.contains_key("memory"))
    };
    let mut all = pod.init_containers().iter().chain(pod.containers());
    // one container without a limit leaves the pod without one
    let counts = limited(PodExt::spec(pod).resources.as_ref())
        || all.all(|container| limited(container.resources.as_ref()));
    let of_pod = counts.then(|| pod_amount(pod, "memory")).flatten();
    smallest([own, of_pod, Some(allocatable)])
}

/// The page size that a medium names, or else the only one that the pod asks for.
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

/// Each once. Limits count as well: requests and limits of huge pages are equal.
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

fn resource_of(page_size: u64) -> String {
    let size = i64::try_from(page_size).unwrap_or(i64::MAX);
    let size = Quantity::from_units(size, QuantityFormat::BinarySi);
    format!("{HUGE_PAGES}{size}")
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
    fn a_memory_volume_is_no_larger_than_its_limit_the_pods_and_the_nodes() {
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
    fn huge_pages_have_the_size_that_is_named_or_the_only_one_that_is_asked_for() {
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
