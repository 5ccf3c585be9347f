//! Programs of the node that mount, unmount and make file systems.
//!
//! A program is started without a shell, with exactly the arguments given, in a process group of its
//! own. At its deadline, or when nobody waits for it any more, the group is killed and left to the
//! kernel: a helper that hangs in a dead server holds no thread of the agent. Of what it says the
//! beginning is kept.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Bytes of output that are kept: more than `mount` and `mkfs` ever say of one failure.
const MAX_OUTPUT: usize = 4096;
/// How long the output of a program that has ended is waited for: what it left behind, such as
/// `rpc.statd`, may hold the pipe for ever.
const OUTPUT_TIMEOUT: Duration = Duration::from_millis(250);

/// Where the node's programs are and how long they may take.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The only directory that programs are taken from; `None` searches `PATH`.
    pub directory: Option<PathBuf>,
    /// For `mount`: below the two minutes that the VolumeManager gives a step, so that the step
    /// ends with the helper's own text.
    pub mount_deadline: Duration,
    /// For `umount`, before it is tried again with force (upstream: one minute).
    pub unmount_deadline: Duration,
    /// For `mkfs` and `fsck`, which take their time on large devices.
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

/// A program that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProgramOutput {
    pub(crate) status: ExitStatus,
    /// Both streams; the beginning.
    pub(crate) output: String,
}

impl ProgramOutput {
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }
}

/// A program did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It cannot be started.
    #[error("{program}: {source}")]
    Start {
        /// Which.
        program: String,
        /// Why not.
        source: io::Error,
    },
    /// It did not end in time and was killed.
    #[error("{program} did not end within {seconds} s and was killed")]
    Hung {
        /// Which.
        program: String,
        /// Its deadline.
        seconds: u64,
    },
    /// It said that it failed.
    #[error("{program}: {}", status_text(*status))]
    Failed {
        /// Which.
        program: String,
        /// How it ended.
        status: ExitStatus,
        /// What it said; the beginning.
        output: String,
    },
}

impl ProgramError {
    /// How it ended, in upstream's words.
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
    /// Runs a program to its end, however it ends.
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

    /// Runs a program that has to succeed.
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

/// A child whose process group dies with this value, unless it has ended.
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
            // what it started and left running keeps its group: only a hung one is killed
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
            // gone already, or not to be killed now: the kernel ends it when it can
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Reads to the end and keeps the beginning.
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

/// As Go prints it: `exit status 32`, `signal: 9`.
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
