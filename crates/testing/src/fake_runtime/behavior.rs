//! How a scripted container and a scripted image behave.

use std::time::Duration;

use windlass_cri::CriCode;

/// What a container does once it is started; set by container name or by image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behavior {
    /// How long it runs by itself; `None` runs until stopped.
    pub runs_for: Option<Duration>,
    /// Exit code when it ends by itself.
    pub exit_code: i32,
    /// It ends by itself because the kernel kills it for memory: exit code 137, `OOMKilled`.
    pub oom_killed: bool,
    /// It goes on after SIGTERM until SIGKILL.
    pub ignores_sigterm: bool,
    /// Time between SIGTERM and its exit.
    pub stops_after: Duration,
    /// Exit code after SIGTERM.
    pub sigterm_exit_code: i32,
    /// CreateContainer fails with this text.
    pub create_error: Option<String>,
    /// StartContainer fails with this text and leaves the container exited with 128.
    pub start_error: Option<String>,
    /// Message of its end, as the runtime reports it.
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
    /// Ends by itself after `runs_for` with `exit_code`.
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

    /// Cannot be started.
    pub fn fails_to_start(error: impl Into<String>) -> Self {
        Self {
            start_error: Some(error.into()),
            ..Self::default()
        }
    }
}

/// How a pull of an image goes. Without a script a pull succeeds at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pull {
    /// How long it takes.
    pub takes: Duration,
    /// It fails so.
    pub error: Option<(CriCode, String)>,
}

impl Pull {
    /// Fails with the runtime's usual answer for a name that no registry knows.
    pub fn not_found(image: &str) -> Self {
        let message = format!(
            "failed to pull and unpack image \"{image}\": failed to resolve reference \
             \"{image}\": {image}: not found"
        );
        Self {
            takes: Duration::ZERO,
            error: Some((CriCode::NotFound, message)),
        }
    }
}
