//! How ConfigMaps and Secrets of pods are kept current
//! (`configMapAndSecretChangeDetectionStrategy`), and when one of them is read.

use std::time::Duration;

use windlass_types::corev1::Node;

/// Node annotation that sets the cache lifetime of an object, in seconds (upstream
/// `ObjectTTLAnnotationKey`).
const TTL_ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";
/// Cache lifetime without the annotation (upstream `defaultTTL`).
const DEFAULT_TTL: Duration = Duration::from_secs(60);

/// How the agent learns of changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChangeDetection {
    /// By a watch.
    #[default]
    Watch,
    /// By reading the object at each sync of a pod.
    Poll(PollStrategy),
}

/// How objects are read at a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollStrategy {
    /// `Cache`: a result is reused for the cache lifetime.
    Cache,
    /// `Get`: each sync sends a request.
    Get,
}

/// Cached version of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedVersion {
    /// Its resource version; `None` if the object did not exist.
    pub version: Option<u64>,
    /// Time since it was read.
    pub age: Duration,
}

/// Where a sync gets an object from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadSource {
    /// The cache of the agent.
    Cached,
    /// The watch cache of the API server (`resourceVersion=0`).
    ApiServerCache,
    /// The API server, with the newest version.
    ApiServer,
}

/// Result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadResult {
    /// The object exists in this version.
    Found(u64),
    /// The object does not exist.
    Missing,
    /// The request failed.
    Failed,
}

/// What a result does to the cached version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheDecision {
    /// It replaces the cached version.
    Replace,
    /// The cached version stays valid, with its age.
    Keep,
    /// Nothing is cached.
    Unknown,
}

impl ChangeDetection {
    /// Parses the value of the configuration field.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "Watch" => Some(Self::Watch),
            "Cache" => Some(Self::Poll(PollStrategy::Cache)),
            "Get" => Some(Self::Poll(PollStrategy::Get)),
            _ => None,
        }
    }
}

/// Returns the cache lifetime of objects on this node.
pub fn object_ttl(node: Option<&Node>) -> Duration {
    let annotations = node.and_then(|node| node.metadata.annotations.as_ref());
    let text = annotations.and_then(|all| all.get(TTL_ANNOTATION));
    let seconds = text.and_then(|text| text.parse::<i64>().ok());
    let negative_is_zero = |seconds: i64| u64::try_from(seconds).unwrap_or_default();
    seconds.map_or(DEFAULT_TTL, |s| Duration::from_secs(negative_is_zero(s)))
}

/// Returns where a sync gets an object from. A missing object is always read again.
pub fn read_source(
    strategy: PollStrategy,
    cached: Option<CachedVersion>,
    ttl: Duration,
) -> ReadSource {
    match (strategy, cached) {
        (PollStrategy::Cache, Some(CachedVersion { version, age })) if version.is_some() => {
            match age < ttl {
                true => ReadSource::Cached,
                false => ReadSource::ApiServerCache,
            }
        }
        _ => ReadSource::ApiServer,
    }
}

/// Returns what a result does to the cached version; with `Get` nothing is cached.
pub fn cache_decision(cached: Option<CachedVersion>, result: ReadResult) -> CacheDecision {
    match (result, cached) {
        (ReadResult::Failed, None) => CacheDecision::Unknown,
        (ReadResult::Failed, Some(_)) => CacheDecision::Keep,
        (ReadResult::Missing, _) => CacheDecision::Replace,
        // the cache of the API server may be older than its previous response
        (ReadResult::Found(new), Some(CachedVersion { version, .. })) if version > Some(new) => {
            CacheDecision::Keep
        }
        (ReadResult::Found(_), _) => CacheDecision::Replace,
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    impl fmt::Display for CacheDecision {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(match self {
                Self::Replace => "replace",
                Self::Keep => "keep",
                Self::Unknown => "unknown",
            })
        }
    }

    impl fmt::Display for ReadSource {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(match self {
                Self::Cached => "cached",
                Self::ApiServerCache => "API server cache",
                Self::ApiServer => "API server",
            })
        }
    }

    const fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn cached(version: Option<u64>, age: u64) -> Option<CachedVersion> {
        let age = seconds(age);
        Some(CachedVersion { version, age })
    }

    #[test]
    fn read_source_follows_strategy_and_age() {
        let check = |text: &str, version: Option<CachedVersion>, ttl: u64, expected: &str| {
            let Some(ChangeDetection::Poll(strategy)) = ChangeDetection::parse(text) else {
                panic!("{text} does not poll");
            };
            let source = read_source(strategy, version, seconds(ttl));
            assert_eq!(source.to_string(), expected);
        };
        check("Get", None, 60, "API server");
        check("Get", cached(Some(7), 0), 60, "API server");
        check("Cache", None, 60, "API server");
        check("Cache", cached(Some(7), 59), 60, "cached");
        check("Cache", cached(Some(7), 60), 60, "API server cache");
        check("Cache", cached(Some(7), 0), 0, "API server cache");
        check("Cache", cached(None, 0), 60, "API server");
        assert_eq!(
            ChangeDetection::parse("Watch"),
            Some(ChangeDetection::Watch)
        );
        assert_eq!(ChangeDetection::parse("watch"), None);
    }

    #[test]
    fn result_replaces_cached_version_unless_older_or_failed() {
        let check = |version: Option<CachedVersion>, result: ReadResult, expected: &str| {
            assert_eq!(cache_decision(version, result).to_string(), expected);
        };
        let known = cached(Some(7), 90);
        check(None, ReadResult::Found(1), "replace");
        check(known, ReadResult::Found(7), "replace");
        check(known, ReadResult::Found(8), "replace");
        check(known, ReadResult::Found(6), "keep");
        check(cached(None, 1), ReadResult::Found(6), "replace");
        check(known, ReadResult::Missing, "replace");
        check(known, ReadResult::Failed, "keep");
        check(cached(None, 1), ReadResult::Failed, "keep");
        check(None, ReadResult::Failed, "unknown");
    }

    #[test]
    fn node_annotation_sets_object_ttl() {
        let check = |text: Option<&str>, expected: u64| {
            let mut node = Node::default();
            let pair = text.map(|text| (TTL_ANNOTATION.to_owned(), text.to_owned()));
            node.metadata.annotations = Some(pair.into_iter().collect());
            assert_eq!(object_ttl(Some(&node)), seconds(expected), "{text:?}");
        };
        check(None, 60);
        check(Some("0"), 0);
        check(Some("300"), 300);
        check(Some("-1"), 0);
        check(Some("soon"), 60);
        assert_eq!(object_ttl(None), seconds(60));
    }
}
