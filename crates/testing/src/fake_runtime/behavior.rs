//! Behavior of scripted containers and images.

use std::time::Duration;

use windlass_cri::CriCode;

/// Behavior of a started container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behavior {
    /// Run time; `None` runs until stopped.
    pub runs_for: Option<Duration>,
    /// Exit code after the run time.
    pub exit_code: i32,
    /// Ends with an OOM kill: exit code 137, `OOMKilled`.
    pub oom_killed: bool,
    /// Ignores SIGTERM.
    pub ignores_sigterm: bool,
    /// Time from SIGTERM to exit.
    pub stops_after: Duration,
    /// Exit code after SIGTERM.
    pub sigterm_exit_code: i32,
    /// CreateContainer fails with this text.
    pub create_error: Option<String>,
    /// StartContainer fails with this text and leaves the container exited with 128.
    pub start_error: Option<String>,
    /// Message of the exit.
    pub message: String,
}

impl Default for Behavior {
    fn default() -> Self {
        Self {
            runs_for: None,
            exit_code: 0,
            oom_killed: false,
            ignores_sigterm: false,
            stops_after: Duration::ZERO,
            sigterm_exit_code: 143,
            create_error: None,
            start_error: None,
            message: String::new(),
        }
    }
}

impl Behavior {
    /// Exits after `runs_for` with `exit_code`.
    pub fn exits(runs_for: Duration, exit_code: i32) -> Self {
        Self {
            runs_for: Some(runs_for),
            exit_code,
            ..Self::default()
        }
    }

    /// Runs until SIGKILL.
    pub fn stubborn() -> Self {
        Self {
            ignores_sigterm: true,
            ..Self::default()
        }
    }

    /// Fails to start.
    pub fn fails_to_start(error: impl Into<String>) -> Self {
        Self {
            start_error: Some(error.into()),
            ..Self::default()
        }
    }
}

/// Result of an image pull; by default immediate success.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pull {
    /// Duration.
    pub takes: Duration,
    /// Error.
    pub error: Option<(CriCode, String)>,
    /// User without whose credentials it fails.
    pub username: Option<String>,
}

impl Pull {
    /// Fails with the error for an unknown image.
    pub fn not_found(image: &str) -> Self {
        let message = format!(
            "failed to pull and unpack image \"{image}\": failed to resolve reference \
             \"{image}\": {image}: not found"
        );
        Self {
            takes: Duration::ZERO,
            error: Some((CriCode::NotFound, message)),
            username: None,
        }
    }
}
