//! The pods of all manifests over consecutive passes. Pure: `now` is an argument.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use windlass_actors::RejectedManifest;
use windlass_manifests::static_pod::LoadedManifest;
use windlass_types::{PodExt, SharedPod, Timestamp};

use super::io::{FileScan, Scan};
use crate::snapshot::PassOutput;

/// The manifests as last read.
#[derive(Debug)]
pub(crate) struct FileSet {
    path: PathBuf,
    /// Time that an invalid manifest keeps its pods.
    retention: Duration,
    files: BTreeMap<PathBuf, FileState>,
    /// Error of reading the path as a whole.
    failure: Option<String>,
    /// A complete set was sent.
    complete: bool,
    last: Option<PassOutput>,
}

#[derive(Debug)]
struct FileState {
    fingerprint: u128,
    /// Pods of the last valid content.
    pods: Vec<SharedPod>,
    /// Error of the current content and since when it is invalid.
    invalid: Option<(String, Timestamp)>,
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
        /// Warnings for the user.
        warnings: Vec<String>,
    },
    /// A manifest is invalid.
    Rejected {
        /// The error.
        error: String,
        /// Number of pods kept from its last valid content.
        kept: usize,
    },
    /// A pod has the same full name as a pod of an earlier manifest.
    Duplicate {
        /// The error with both files.
        error: String,
    },
    /// The pods of an invalid manifest are removed.
    Expired {
        /// Its path.
        path: PathBuf,
        /// Number of removed pods.
        pods: usize,
    },
    /// A manifest was removed.
    Removed {
        /// Its path.
        path: PathBuf,
    },
    /// The path as a whole cannot be read; its pods stay.
    Failed {
        /// The error.
        error: String,
    },
}

impl FileSet {
    /// Creates an empty set.
    pub(crate) fn new(path: PathBuf, retention: Duration) -> Self {
        Self {
            path,
            retention,
            files: BTreeMap::new(),
            failure: None,
            complete: false,
            last: None,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the fingerprints, so that a pass parses only changed content.
    pub(crate) fn fingerprints(&self) -> BTreeMap<PathBuf, u128> {
        let files = self.files.iter();
        files.map(|(p, f)| (p.clone(), f.fingerprint)).collect()
    }

    /// Applies a pass; returns the outputs for PodStorage in order, and the reports to log. A
    /// manifest in `removed` that exists again is first reported as removed: as upstream, its pods
    /// restart.
    pub(crate) fn apply(
        &mut self,
        scan: Scan,
        removed: &BTreeSet<PathBuf>,
        now: Timestamp,
    ) -> (Vec<PassOutput>, Vec<Report>) {
        let mut reports = Vec::new();
        let mut removals = None;
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
                    removals = self.output_if_changed(&mut reports);
                }
                self.replace(found, now, &mut reports);
            }
        }
        let output = self.output_if_changed(&mut reports);
        (removals.into_iter().chain(output).collect(), reports)
    }

    fn output_if_changed(&mut self, reports: &mut Vec<Report>) -> Option<PassOutput> {
        let output = self.output();
        if self.last.as_ref() == Some(&output) {
            return None;
        }
        reports.extend(self.new_duplicates());
        self.last = Some(output.clone());
        // a first failure without rejections has no output
        let empty = output.pods.is_none() && output.rejected.is_empty();
        (!empty).then_some(output)
    }

    fn keep(&mut self, stays: impl Fn(&PathBuf) -> bool, reports: &mut Vec<Report>) {
        self.files.retain(|path, _| {
            let stays = stays(path);
            if !stays {
                reports.push(Report::Removed { path: path.clone() });
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
        self.complete = true;
        self.keep(|path| found.contains_key(path), reports);
        for (path, scan) in found {
            if let FileScan::Changed(fingerprint, outcome) = scan {
                match *outcome {
                    Ok(loaded) => self.accept(&path, fingerprint, loaded, reports),
                    Err(error) => self.reject(&path, fingerprint, error.to_string(), now, reports),
                }
            }
            self.expire(&path, now, reports);
        }
    }

    fn accept(
        &mut self,
        path: &Path,
        fingerprint: u128,
        loaded: LoadedManifest,
        reports: &mut Vec<Report>,
    ) {
        reports.push(Report::Loaded {
            path: path.to_owned(),
            pods: loaded.pods.len(),
            warnings: loaded.warnings,
        });
        let state = FileState {
            fingerprint,
            pods: loaded.pods,
            invalid: None,
        };
        self.files.insert(path.to_owned(), state);
    }

    fn reject(
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
                invalid: None,
            });
        state.fingerprint = fingerprint;
        // further invalid content does not restart the retention
        let since = state.invalid.as_ref().map_or(now, |(_, since)| *since);
        state.invalid = Some((error.clone(), since));
        reports.push(Report::Rejected {
            error,
            kept: state.pods.len(),
        });
    }

    fn expire(&mut self, path: &Path, now: Timestamp, reports: &mut Vec<Report>) {
        let Some(state) = self.files.get_mut(path) else {
            return;
        };
        let Some((_, since)) = &state.invalid else {
            return;
        };
        let age = Duration::try_from(now.duration_since(*since)).unwrap_or_default();
        if age >= self.retention && !state.pods.is_empty() {
            reports.push(Report::Expired {
                path: path.to_owned(),
                pods: state.pods.len(),
            });
            state.pods.clear();
        }
    }

    fn output(&self) -> PassOutput {
        let pods = self.files.values().flat_map(|f| f.pods.iter().cloned());
        let mut rejected: Vec<RejectedManifest> = self
            .files
            .iter()
            .filter_map(|(path, state)| {
                let (error, _) = state.invalid.as_ref()?;
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
        PassOutput {
            pods: self.complete.then(|| pods.collect()),
            rejected,
        }
    }

    /// Returns the duplicates that were not reported before.
    fn new_duplicates(&self) -> Vec<Report> {
        let known = self
            .last
            .as_ref()
            .map_or(&[][..], |output| &output.rejected);
        let new = self.duplicates().into_iter();
        new.filter(|duplicate| !known.contains(duplicate))
            .map(|duplicate| Report::Duplicate {
                error: duplicate.error,
            })
            .collect()
    }

    /// Returns pods with the same full name as a pod of an earlier manifest. The merge rejects
    /// them, too, but does not know the files.
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
