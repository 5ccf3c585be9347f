//! How ConfigMaps and Secrets that pods refer to are kept current
//! (`configMapAndSecretChangeDetectionStrategy`), and when one of them is read anew.

use std::fmt;
use std::time::Duration;

use windlass_types::corev1::Node;

/// The annotation by which the cluster says how long a node may remember an object, in seconds
/// (upstream `ObjectTTLAnnotationKey`).
const TTL_ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";
/// As long it may of which nobody says (upstream `defaultTTL`).
const DEFAULT_TTL: Duration = Duration::from_secs(60);

/// How the agent hears of changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChangeDetection {
    /// It is told of them.
    #[default]
    Watch,
    /// It looks whenever a pod is synced.
    Read(Reading),
}

/// What looking means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// `Cache`: an answer serves for a while.
    Cache,
    /// `Get`: each sync asks.
    Get,
}

/// What is remembered of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// It existed, in this version.
    pub version: Option<u64>,
    /// How long ago it was read.
    pub age: Duration,
}

/// How a sync comes to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// What is remembered serves.
    Remember,
    /// The API server is asked for what its cache has.
    AskCache,
    /// The API server is asked for the newest.
    AskNewest,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It exists, in this version.
    Found(u64),
    /// It does not exist.
    Missing,
    /// There was none.
    Failed,
}

/// What an answer is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worth {
    /// It counts from now on.
    Counts,
    /// What is remembered still serves, and is as old as before.
    Ignored,
    /// Nothing is known.
    Unknown,
}

impl ChangeDetection {
    /// The value of the configuration field.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "Watch" => Some(Self::Watch),
            "Cache" => Some(Self::Read(Reading::Cache)),
            "Get" => Some(Self::Read(Reading::Get)),
            _ => None,
        }
    }
}

impl fmt::Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Remember => "remember",
            Self::AskCache => "ask the cache",
            Self::AskNewest => "ask",
        })
    }
}

impl fmt::Display for Worth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Counts => "counts",
            Self::Ignored => "ignored",
            Self::Unknown => "unknown",
        })
    }
}

/// How long an object may be remembered on this node.
pub fn object_ttl(node: Option<&Node>) -> Duration {
    let annotations = node.and_then(|node| node.metadata.annotations.as_ref());
    let text = annotations.and_then(|all| all.get(TTL_ANNOTATION));
    let seconds = text.and_then(|text| text.parse::<i64>().ok());
    let negative_is_none = |seconds: i64| u64::try_from(seconds).unwrap_or_default();
    seconds.map_or(DEFAULT_TTL, |s| Duration::from_secs(negative_is_none(s)))
}

/// How a sync comes to an object. That it did not exist is never taken for granted.
pub fn look(reading: Reading, remembered: Option<Remembered>, ttl: Duration) -> Look {
    match (reading, remembered) {
        (Reading::Cache, Some(Remembered { version, age })) if version.is_some() => {
            match age < ttl {
                true => Look::Remember,
                false => Look::AskCache,
            }
        }
        _ => Look::AskNewest,
    }
}

/// What an answer is worth beside what is remembered; with `Get` nothing is.
pub fn worth(remembered: Option<Remembered>, answer: Answer) -> Worth {
    match (answer, remembered) {
        (Answer::Failed, None) => Worth::Unknown,
        (Answer::Failed, Some(_)) => Worth::Ignored,
        (Answer::Missing, _) => Worth::Counts,
        // the server's cache may be behind what it said before
        (Answer::Found(new), Some(Remembered { version, .. })) if version > Some(new) => {
            Worth::Ignored
        }
        (Answer::Found(_), _) => Worth::Counts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn remembered(version: Option<u64>, age: u64) -> Option<Remembered> {
        let age = seconds(age);
        Some(Remembered { version, age })
    }

    #[test]
    fn a_sync_asks_as_the_strategy_says() {
        let check = |strategy: &str, known: Option<Remembered>, ttl: u64, expected: &str| {
            let Some(ChangeDetection::Read(reading)) = ChangeDetection::parse(strategy) else {
                panic!("{strategy} reads");
            };
            assert_eq!(look(reading, known, seconds(ttl)).to_string(), expected);
        };
        check("Get", None, 60, "ask");
        check("Get", remembered(Some(7), 0), 60, "ask");
        check("Cache", None, 60, "ask");
        check("Cache", remembered(Some(7), 59), 60, "remember");
        check("Cache", remembered(Some(7), 60), 60, "ask the cache");
        check("Cache", remembered(Some(7), 0), 0, "ask the cache");
        check("Cache", remembered(None, 0), 60, "ask");
        assert_eq!(
            ChangeDetection::parse("Watch"),
            Some(ChangeDetection::Watch)
        );
        assert_eq!(ChangeDetection::parse("watch"), None);
    }

    #[test]
    fn an_answer_counts_unless_it_is_older_or_none() {
        let check = |known: Option<Remembered>, answer: Answer, expected: &str| {
            assert_eq!(worth(known, answer).to_string(), expected);
        };
        let known = remembered(Some(7), 90);
        check(None, Answer::Found(1), "counts");
        check(known, Answer::Found(7), "counts");
        check(known, Answer::Found(8), "counts");
        check(known, Answer::Found(6), "ignored");
        check(remembered(None, 1), Answer::Found(6), "counts");
        check(known, Answer::Missing, "counts");
        check(known, Answer::Failed, "ignored");
        check(remembered(None, 1), Answer::Failed, "ignored");
        check(None, Answer::Failed, "unknown");
    }

    #[test]
    fn the_nodes_annotation_says_how_long_an_object_serves() {
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
