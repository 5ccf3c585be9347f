//! A program that runs until dropped, with its output in a file.

use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};

/// A running program; the drop kills it.
#[derive(Debug)]
pub(super) struct Daemon {
    name: String,
    log: PathBuf,
    child: Child,
}

impl Daemon {
    /// Starts `program` with output to `<dir>/<name>.log`.
    pub(super) fn start(program: &Path, dir: &Path, args: &[String]) -> anyhow::Result<Self> {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let log = dir.join(format!("{name}.log"));
        let output = OpenOptions::new().create(true).append(true).open(&log)?;
        let child = Command::new(program)
            .args(args)
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            // Ctrl-C must not reach the program
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self {
            name: name.into_owned(),
            log,
            child,
        })
    }

    /// Fails with the last output if the program has exited.
    pub(super) fn check_alive(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} ended with {status}: {}", self.name, self.last_words());
        }
        Ok(())
    }

    /// Returns the last lines of output.
    pub(super) fn last_words(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
