//! Which pods the URL asks for, fetch after fetch. Pure.

use windlass_actors::RejectedManifest;
use windlass_manifests::manifest::Origin;
use windlass_manifests::static_pod;
use windlass_types::SharedPod;

use super::io::FetchError;
use crate::snapshot::News;

/// Failures in a row that are logged as warnings; further ones only at debug.
const LOUD_FAILURES: u32 = 3;

/// The manifest as last fetched.
#[derive(Debug)]
pub(crate) struct HttpState {
    url: String,
    node_name: String,
    body: Option<bytes::Bytes>,
    /// What is wrong with the present body, which is not fetched into pods again.
    body_error: Option<String>,
    pods: Option<Vec<SharedPod>>,
    failures: u32,
    last: Option<News>,
}

/// A line to log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The pods of a new body.
    Loaded {
        /// How many.
        pods: usize,
        /// What the user should know.
        warnings: Vec<String>,
    },
    /// A failure worth a warning.
    Failed {
        /// The error.
        error: String,
        /// The last warning: further failures are logged at debug.
        last: bool,
    },
    /// One more of many failures.
    StillFailing {
        /// The error.
        error: String,
    },
    /// It works again.
    Recovered,
}

impl HttpState {
    /// Nothing fetched yet.
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

    /// Takes a fetch in; answers what to tell PodStorage, if anything, and what to log.
    pub(crate) fn apply(
        &mut self,
        fetched: Result<bytes::Bytes, FetchError>,
    ) -> (Option<News>, Vec<Report>) {
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
        let news = News {
            pods: self.pods.clone(),
            rejected: rejected.into_iter().collect(),
        };
        if self.last.as_ref() == Some(&news) {
            return (None, reports);
        }
        self.last = Some(news.clone());
        (Some(news), reports)
    }

    /// Reads a body, unless it is the last one. Answers what is wrong with it.
    fn body(&mut self, body: bytes::Bytes, reports: &mut Vec<Report>) -> Option<String> {
        if body.is_empty() {
            self.body = None;
            self.body_error = None;
            self.pods = Some(Vec::new());
            return Some(format!("{}: the body is empty, no pods are run", self.url));
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
        if self.failures > LOUD_FAILURES + 1 {
            return Report::StillFailing { error };
        }
        Report::Failed {
            error,
            last: self.failures > LOUD_FAILURES,
        }
    }
}
