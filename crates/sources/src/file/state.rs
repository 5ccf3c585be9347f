//! Which pods the manifests ask for, pass after pass. Pure: `now` is an argument.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use windlass_actors::RejectedManifest;
use windlass_manifests::static_pod::Loaded;
use windlass_types::{PodExt, SharedPod, Timestamp};

use super::io::{FileScan, Scan};
use crate::snapshot::News;

/// The manifests as last read.
#[derive(Debug)]
pub(crate) struct FileSet {
    path: PathBuf,
    /// How long a manifest that turned bad keeps its pods.
    retention: Duration,
    files: BTreeMap<PathBuf, FileState>,
    /// Why the path as a whole could not be read, if so.
    failure: Option<String>,
    /// A complete set has been told.
    told: bool,
    /// What was told last.
    last: Option<News>,
}

#[derive(Debug)]
struct FileState {
    fingerprint: u128,
    /// Pods of the last good content.
    pods: Vec<SharedPod>,
    /// The error of the present content and since when it is bad.
    bad: Option<(String, Timestamp)>,
}

/// A change to log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// A manifest was read.
    Loaded {
        /// Its path.
        path: PathBuf,
        /// Number of its pods.
        pods: usize,
        /// What the user should know.
        warnings: Vec<String>,
    },
    /// A manifest cannot be used.
    Refused {
        /// The whole error.
        error: String,
        /// Number of pods kept from its last good content.
        kept: usize,
    },
    /// A pod of a manifest has the name of a pod of an earlier manifest.
    Duplicate {
        /// The whole error, with both files.
        error: String,
    },
    /// A manifest that stayed bad lost its pods.
    Expired {
        /// Its path.
        path: PathBuf,
        /// Number of pods given up.
        pods: usize,
    },
    /// A manifest is gone.
    Gone {
        /// Its path.
        path: PathBuf,
    },
    /// The path as a whole cannot be read; what was read before stays.
    Failed {
        /// The error.
        error: String,
    },
}

impl FileSet {
    /// Nothing read yet.
    pub(crate) fn new(path: PathBuf, retention: Duration) -> Self {
        Self {
            path,
            retention,
            files: BTreeMap::new(),
            failure: None,
            told: false,
            last: None,
        }
    }

    /// The path being read.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Fingerprints, so that a pass parses only what changed.
    pub(crate) fn fingerprints(&self) -> BTreeMap<PathBuf, u128> {
        let files = self.files.iter();
        files.map(|(p, f)| (p.clone(), f.fingerprint)).collect()
    }

    /// Takes a pass in; answers what to tell PodStorage, in this order, and what to log. `removed` is
    /// what was removed before the pass: a manifest of these that is back, unchanged or not, is told as
    /// gone first. As upstream, its pods end and start anew.
    pub(crate) fn apply(
        &mut self,
        scan: Scan,
        removed: &BTreeSet<PathBuf>,
        now: Timestamp,
    ) -> (Vec<News>, Vec<Report>) {
        let mut reports = Vec::new();
        let mut gone = None;
        match scan {
            Scan::Failed(error) => {
                if self.failure.as_ref() != Some(&error) {
                    reports.push(Report::Failed {
                        error: error.clone(),
                    });
                }
                self.failure = Some(error);
            }
            Scan::Missing => self.replace(BTreeMap::new(), now, &mut reports),
            Scan::Files(found) => {
                if self.files.keys().any(|path| removed.contains(path)) {
                    self.keep(|path| !removed.contains(path), &mut reports);
                    gone = self.tell(&mut reports);
                }
                self.replace(found, now, &mut reports);
            }
        }
        let news = self.tell(&mut reports);
        (gone.into_iter().chain(news).collect(), reports)
    }

    /// What to tell, if it is something else than last time.
    fn tell(&mut self, reports: &mut Vec<Report>) -> Option<News> {
        let news = self.news();
        if self.last.as_ref() == Some(&news) {
            return None;
        }
        reports.extend(self.new_duplicates());
        self.last = Some(news.clone());
        // A first failure with nothing to refuse has nothing to tell.
        let empty = news.pods.is_none() && news.rejected.is_empty();
        (!empty).then_some(news)
    }

    fn keep(&mut self, stays: impl Fn(&PathBuf) -> bool, reports: &mut Vec<Report>) {
        self.files.retain(|path, _| {
            let stays = stays(path);
            if !stays {
                reports.push(Report::Gone { path: path.clone() });
            }
            stays
        });
    }

    fn replace(
        &mut self,
        found: BTreeMap<PathBuf, FileScan>,
        now: Timestamp,
        reports: &mut Vec<Report>,
    ) {
        self.failure = None;
        self.told = true;
        self.keep(|path| found.contains_key(path), reports);
        for (path, scan) in found {
            if let FileScan::Changed(fingerprint, outcome) = scan {
                match *outcome {
                    Ok(loaded) => self.good(&path, fingerprint, loaded, reports),
                    Err(error) => self.bad(&path, fingerprint, error.to_string(), now, reports),
                }
            }
            self.expire(&path, now, reports);
        }
    }

    fn good(&mut self, path: &Path, fingerprint: u128, loaded: Loaded, reports: &mut Vec<Report>) {
        reports.push(Report::Loaded {
            path: path.to_owned(),
            pods: loaded.pods.len(),
            warnings: loaded.warnings,
        });
        let state = FileState {
            fingerprint,
            pods: loaded.pods,
            bad: None,
        };
        self.files.insert(path.to_owned(), state);
    }

    fn bad(
        &mut self,
        path: &Path,
        fingerprint: u128,
        error: String,
        now: Timestamp,
        reports: &mut Vec<Report>,
    ) {
        let state = self
            .files
            .entry(path.to_owned())
            .or_insert_with(|| FileState {
                fingerprint,
                pods: Vec::new(),
                bad: None,
            });
        state.fingerprint = fingerprint;
        // Bad content after bad content does not start the time over.
        let since = state.bad.as_ref().map_or(now, |(_, since)| *since);
        state.bad = Some((error.clone(), since));
        reports.push(Report::Refused {
            error,
            kept: state.pods.len(),
        });
    }

    fn expire(&mut self, path: &Path, now: Timestamp, reports: &mut Vec<Report>) {
        let Some(state) = self.files.get_mut(path) else {
            return;
        };
        let Some((_, since)) = &state.bad else { return };
        let age = Duration::try_from(now.duration_since(*since)).unwrap_or_default();
        if age >= self.retention && !state.pods.is_empty() {
            reports.push(Report::Expired {
                path: path.to_owned(),
                pods: state.pods.len(),
            });
            state.pods.clear();
        }
    }

    fn news(&self) -> News {
        let pods = self.files.values().flat_map(|f| f.pods.iter().cloned());
        let mut rejected: Vec<RejectedManifest> = self
            .files
            .iter()
            .filter_map(|(path, state)| {
                let (error, _) = state.bad.as_ref()?;
                Some(RejectedManifest {
                    origin: path.display().to_string(),
                    error: error.clone(),
                })
            })
            .collect();
        rejected.extend(self.duplicates());
        if let Some(error) = &self.failure {
            rejected.push(RejectedManifest {
                origin: self.path.display().to_string(),
                error: format!("{}: {error}", self.path.display()),
            });
        }
        News {
            pods: self.told.then(|| pods.collect()),
            rejected,
        }
    }

    /// The duplicates that have not been told yet.
    fn new_duplicates(&self) -> Vec<Report> {
        let known = self.last.as_ref().map_or(&[][..], |news| &news.rejected);
        let new = self.duplicates().into_iter();
        new.filter(|duplicate| !known.contains(duplicate))
            .map(|duplicate| Report::Duplicate {
                error: duplicate.error,
            })
            .collect()
    }

    /// Pods of a name that an earlier manifest has taken. They are told all the same: the merger
    /// refuses them and records the event, but cannot know the two files.
    fn duplicates(&self) -> Vec<RejectedManifest> {
        let mut taken = BTreeMap::new();
        let mut duplicates = Vec::new();
        for (path, state) in &self.files {
            for pod in &state.pods {
                let name = pod.full_name();
                let first = *taken.entry(name.clone()).or_insert(path);
                if first != path {
                    let (path, first) = (path.display(), first.display());
                    duplicates.push(RejectedManifest {
                        origin: path.to_string(),
                        error: format!(
                            "{path}: pod {name} is defined by {first} already (rename or remove one of them)"
                        ),
                    });
                }
            }
        }
        duplicates
    }
}
