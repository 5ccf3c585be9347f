//! The pods of the URL over consecutive fetches. Pure.

use windlass_actors::RejectedManifest;
use windlass_manifests::manifest::Origin;
use windlass_manifests::static_pod;
use windlass_types::SharedPod;

use super::io::FetchError;
use crate::snapshot::PassOutput;

/// Number of consecutive failures logged as warnings; further ones are logged at debug.
const MAX_WARNINGS: u32 = 3;

/// The manifest as last fetched.
#[derive(Debug)]
pub(crate) struct HttpState {
    url: String,
    node_name: String,
    body: Option<bytes::Bytes>,
    body_error: Option<String>,
    pods: Option<Vec<SharedPod>>,
    failures: u32,
    last: Option<PassOutput>,
}

/// A line to log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The pods of a new body.
    Loaded {
        /// Number of pods.
        pods: usize,
        /// Warnings for the user.
        warnings: Vec<String>,
    },
    /// A failure logged as a warning.
    Failed {
        /// The error.
        error: String,
        /// True for the last warning; further failures are logged at debug.
        last: bool,
    },
    /// A failure logged at debug.
    StillFailing {
        /// The error.
        error: String,
    },
    /// The fetch works again.
    Recovered,
}

impl HttpState {
    /// Creates a state without a body.
    pub(crate) fn new(url: String, node_name: String) -> Self {
        Self {
            url,
            node_name,
            body: None,
            body_error: None,
            pods: None,
            failures: 0,
            last: None,
        }
    }

    /// Applies a fetch; returns the output for PodStorage, if it changed, and the reports to log.
    pub(crate) fn apply(
        &mut self,
        fetched: Result<bytes::Bytes, FetchError>,
    ) -> (Option<PassOutput>, Vec<Report>) {
        let mut reports = Vec::new();
        let error = match fetched {
            Ok(body) => self.body(body, &mut reports),
            Err(error) => Some(format!("{}: {error}", self.url)),
        };
        match &error {
            Some(error) => reports.push(self.failed(error.clone())),
            None if self.failures > 0 => {
                self.failures = 0;
                reports.push(Report::Recovered);
            }
            None => {}
        }
        let rejected = error.map(|error| RejectedManifest {
            origin: self.url.clone(),
            error,
        });
        let output = PassOutput {
            pods: self.pods.clone(),
            rejected: rejected.into_iter().collect(),
        };
        if self.last.as_ref() == Some(&output) {
            return (None, reports);
        }
        self.last = Some(output.clone());
        (Some(output), reports)
    }

    /// Parses a body, unless it is unchanged; returns its error.
    fn body(&mut self, body: bytes::Bytes, reports: &mut Vec<Report>) -> Option<String> {
        if body.is_empty() {
            self.body = None;
            self.body_error = None;
            self.pods = Some(Vec::new());
            return Some(format!("{}: empty body, no pods", self.url));
        }
        if self.body.as_ref() == Some(&body) {
            return self.body_error.clone();
        }
        let origin = Origin::Url(self.url.clone());
        match static_pod::load(&body, &origin, &self.node_name) {
            Ok(loaded) => {
                reports.push(Report::Loaded {
                    pods: loaded.pods.len(),
                    warnings: loaded.warnings,
                });
                self.pods = Some(loaded.pods);
                self.body_error = None;
            }
            Err(error) => self.body_error = Some(error.to_string()),
        }
        self.body = Some(body);
        self.body_error.clone()
    }

    fn failed(&mut self, error: String) -> Report {
        self.failures = self.failures.saturating_add(1);
        if self.failures > MAX_WARNINGS + 1 {
            return Report::StillFailing { error };
        }
        Report::Failed {
            error,
            last: self.failures > MAX_WARNINGS,
        }
    }
}
