//! Programs of the node that mount, unmount and format.
//!
//! A program is started without a shell, with exactly the given arguments, in its own process group.
//! At its deadline, or when the caller is cancelled, the group is killed without waiting: a hung
//! helper holds no thread of the agent. The first part of its output is kept.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Max bytes of kept output: more than `mount` and `mkfs` print for one failure.
const MAX_OUTPUT: usize = 4096;
/// Time to read the output after the program ended: a daemon that it started, such as `rpc.statd`,
/// may keep the pipe open.
const OUTPUT_TIMEOUT: Duration = Duration::from_millis(250);

/// Location and deadlines of the programs.
#[derive(Clone, Debug)]
pub struct Programs {
    /// Directory of the programs; `None` searches `PATH`.
    pub directory: Option<PathBuf>,
    /// For `mount`: below the VolumeManager's two minutes per step, so that the error has the text of
    /// the helper.
    pub mount_deadline: Duration,
    /// For `umount`, before the retry with force (upstream: one minute).
    pub unmount_deadline: Duration,
    /// For `mkfs` and `fsck`, which are slow on large devices.
    pub format_deadline: Duration,
}

impl Default for Programs {
    fn default() -> Self {
        Self {
            directory: None,
            mount_deadline: Duration::from_secs(110),
            unmount_deadline: Duration::from_secs(60),
            format_deadline: Duration::from_secs(600),
        }
    }
}

/// Result of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProgramOutput {
    pub(crate) status: ExitStatus,
    /// First part of both streams.
    pub(crate) output: String,
}

impl ProgramOutput {
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }
}

/// A program failed.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It could not be started.
    #[error("{program}: {source}")]
    Start {
        /// Its name.
        program: String,
        /// Cause.
        source: io::Error,
    },
    /// It exceeded its deadline and was killed.
    #[error("{program} did not end within {seconds} s and was killed")]
    Hung {
        /// Its name.
        program: String,
        /// Its deadline.
        seconds: u64,
    },
    /// It exited with an error.
    #[error("{program}: {}", status_text(*status))]
    Failed {
        /// Its name.
        program: String,
        /// Exit status.
        status: ExitStatus,
        /// First part of its output.
        output: String,
    },
}

impl ProgramError {
    /// The cause as upstream prints it.
    pub(crate) fn cause(&self) -> String {
        match self {
            Self::Failed { status, .. } => status_text(*status),
            Self::Start { .. } | Self::Hung { .. } => self.to_string(),
        }
    }

    pub(crate) fn output(&self) -> &str {
        match self {
            Self::Failed { output, .. } => output,
            Self::Start { .. } | Self::Hung { .. } => "",
        }
    }
}

impl Programs {
    /// Runs a program and returns its result.
    pub(crate) async fn run(
        &self,
        program: &str,
        args: &[OsString],
        deadline: Duration,
    ) -> Result<ProgramOutput, ProgramError> {
        let path = match &self.directory {
            Some(directory) => directory.join(program),
            None => PathBuf::from(program),
        };
        let mut command = Command::new(path);
        command
            .args(args)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let child = command.spawn().map_err(|source| ProgramError::Start {
            program: program.to_owned(),
            source,
        })?;
        let mut running = Running::new(child);
        let ended = timeout(deadline, running.wait()).await;
        let hung = |_| ProgramError::Hung {
            program: program.to_owned(),
            seconds: deadline.as_secs(),
        };
        ended.map_err(hung)?.map_err(|source| ProgramError::Start {
            program: program.to_owned(),
            source,
        })
    }

    /// Runs a program; an exit status other than 0 is an error.
    pub(crate) async fn succeed(
        &self,
        program: &str,
        args: &[OsString],
        deadline: Duration,
    ) -> Result<(), ProgramError> {
        let ProgramOutput { status, output } = self.run(program, args, deadline).await?;
        if status.success() {
            return Ok(());
        }
        Err(ProgramError::Failed {
            program: program.to_owned(),
            status,
            output,
        })
    }
}

/// A child process whose group is killed on drop, unless it has ended.
struct Running {
    child: Child,
    group: Option<Pid>,
}

impl Running {
    fn new(child: Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self {
            child,
            group: id.and_then(Pid::from_raw),
        }
    }

    async fn wait(&mut self) -> io::Result<ProgramOutput> {
        let (stdout, stderr) = (self.child.stdout.take(), self.child.stderr.take());
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let status = {
            let reading = async {
                tokio::join!(keep(stdout, &mut out), keep(stderr, &mut err));
            };
            tokio::pin!(reading);
            let mut read_through = false;
            let status = loop {
                tokio::select! {
                    biased;
                    () = &mut reading, if !read_through => read_through = true,
                    status = self.child.wait() => break status?,
                }
            };
            // daemons that it started keep running: only a hung program is killed
            self.group = None;
            if !read_through {
                let _ = timeout(OUTPUT_TIMEOUT, reading).await;
            }
            status
        };
        out.append(&mut err);
        out.truncate(MAX_OUTPUT);
        let output = String::from_utf8_lossy(&out).into_owned();
        Ok(ProgramOutput { status, output })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            // an error means that the group is gone
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Reads to the end and keeps the first part.
async fn keep(stream: Option<impl AsyncRead + Unpin>, kept: &mut Vec<u8>) {
    let Some(mut stream) = stream else {
        return;
    };
    let mut buffer = [0; 1024];
    while let Ok(read) = stream.read(&mut buffer).await
        && read > 0
    {
        let room = MAX_OUTPUT.saturating_sub(kept.len()).min(read);
        kept.extend_from_slice(buffer.get(..room).unwrap_or_default());
    }
}

/// The status as Go prints it: `exit status 32`, `signal: 9`.
fn status_text(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal: {signal}"),
        (None, None) => "no exit status".to_owned(),
    }
}

#[cfg(test)]
mod tests;
