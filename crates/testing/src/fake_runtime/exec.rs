//! Scripts and counts of exec commands.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use windlass_cri::{CriCode, CriResult};
use windlass_types::cri::ExecOutput;
use windlass_types::{ContainerId, PodUid};

use super::FakeRuntime;
use super::driver::SimDriver;
use super::operation::Operation;

/// Behavior of a command; by default exit code 0 without output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exec {
    /// Exit code.
    pub exit_code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Run time. After its timeout the command is killed with `DeadlineExceeded`; see `Fault::hang`
    /// for a hung call.
    pub takes: Duration,
    /// Error of the runtime.
    pub error: Option<(CriCode, String)>,
}

impl Exec {
    /// Exits immediately with `exit_code`.
    pub fn exits(exit_code: i32) -> Self {
        Self {
            exit_code,
            ..Self::default()
        }
    }

    /// Exits immediately with `exit_code` and `stdout`.
    pub fn prints(exit_code: i32, stdout: &str) -> Self {
        Self {
            stdout: stdout.to_owned(),
            ..Self::exits(exit_code)
        }
    }

    /// Never exits.
    pub fn hangs() -> Self {
        Self::default().taking(Duration::MAX)
    }

    /// Fails to run.
    pub fn fails(code: CriCode, message: &str) -> Self {
        Self {
            error: Some((code, message.to_owned())),
            ..Self::default()
        }
    }

    /// Sets the run time.
    pub fn taking(mut self, takes: Duration) -> Self {
        self.takes = takes;
        self
    }
}

/// Scripts and counts.
#[derive(Debug, Default)]
pub(super) struct Execs {
    scripts: BTreeMap<String, Vec<Exec>>,
    counts: BTreeMap<(PodUid, String), Count>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    begun: u32,
    in_flight: u32,
    peak: u32,
}

impl Execs {
    /// Returns the script for the next command of a container.
    fn script(&self, keys: &[&str], command: &str, before: u32) -> Exec {
        let of_command = keys.iter().map(|key| format!("{key} {command}"));
        let of_container = keys.iter().map(|key| (*key).to_owned());
        of_command
            .chain(of_container)
            .find_map(|key| self.scripts.get(&key))
            .and_then(|script| script.get(before as usize).or(script.last()))
            .cloned()
            .unwrap_or_default()
    }
}

/// Guard that counts a running command.
struct InFlight {
    driver: Arc<SimDriver>,
    key: (PodUid, String),
}

impl InFlight {
    /// Also returns the number of earlier commands in the container.
    fn begin(driver: &Arc<SimDriver>, key: (PodUid, String)) -> (Self, u32) {
        let before = driver.change(|state| {
            let count = state.execs.counts.entry(key.clone()).or_default();
            count.begun += 1;
            count.in_flight += 1;
            count.peak = count.peak.max(count.in_flight);
            count.begun - 1
        });
        let driver = Arc::clone(driver);
        (Self { driver, key }, before)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.driver.change(|state| {
            if let Some(count) = state.execs.counts.get_mut(&self.key) {
                count.in_flight -= 1;
            }
        });
    }
}

/// Scripts and counts of commands.
impl FakeRuntime {
    /// Sets the behavior of commands. `key` is `namespace/pod/container` or a container name,
    /// optionally followed by a space and the command.
    pub fn set_exec(&self, key: &str, exec: Exec) {
        self.script_execs(key, vec![exec]);
    }

    /// Sets one script for each command in a container, over all its instances; the last one
    /// repeats.
    pub fn script_execs(&self, key: &str, execs: Vec<Exec>) {
        self.driver
            .change(|state| state.execs.scripts.insert(key.to_owned(), execs));
    }

    /// Returns the number of commands in a container, over all its instances.
    pub fn execs(&self, uid: &PodUid, container: &str) -> u32 {
        self.exec_count(uid, container).begun
    }

    /// Returns the number of running commands.
    pub fn execs_in_flight(&self, uid: &PodUid, container: &str) -> u32 {
        self.exec_count(uid, container).in_flight
    }

    /// Returns the maximum number of concurrent commands.
    pub fn max_execs_in_flight(&self, uid: &PodUid, container: &str) -> u32 {
        self.exec_count(uid, container).peak
    }

    fn exec_count(&self, uid: &PodUid, container: &str) -> Count {
        let key = (uid.clone(), container.to_owned());
        self.driver
            .change(|state| state.execs.counts.get(&key).copied().unwrap_or_default())
    }

    pub(super) async fn exec(
        &self,
        id: &ContainerId,
        command: &[String],
        timeout: Duration,
    ) -> CriResult<ExecOutput> {
        let subject = self.container_subject(id);
        let identity = self.driver.change(|state| {
            let container = state.model.containers.get(id)?;
            Some((container.uid.clone(), container.config.name.clone()))
        });
        let counted = identity.map(|key| (key.1.clone(), InFlight::begin(&self.driver, key)));
        let ticket = self
            .driver
            .begin(Operation::ExecSync, subject.clone())
            .await?;
        let runs = self.driver.step(|model, _| model.check_exec(id));
        let (Ok(()), Some((name, (_in_flight, before)))) = (&runs, &counted) else {
            return self.driver.complete(&ticket, |model, _| {
                model.check_exec(id).map(|()| ExecOutput::default())
            });
        };
        let full_name = subject.split('#').next().unwrap_or_default();
        let command = command.join(" ");
        let exec = self.driver.change(|state| {
            state
                .execs
                .script(&[full_name, name.as_str()], &command, *before)
        });
        if let Some(error) = exec.error {
            return self.driver.finish(&ticket, Err(error));
        }
        // killed with its container
        let dead = self
            .driver
            .wait_until(|state| state.model.check_exec(id).is_err());
        let ends = exec.takes.min(timeout);
        let killed = !ends.is_zero() && tokio::time::timeout(ends, dead).await.is_ok();
        let seconds = timeout.as_secs();
        self.driver.complete(&ticket, |_, _| {
            if killed {
                return Ok(ExecOutput {
                    exit_code: 137,
                    ..ExecOutput::default()
                });
            }
            if exec.takes > timeout {
                let message = format!(
                    "failed to exec in container: timeout {seconds}s exceeded: context deadline \
                     exceeded"
                );
                return Err((CriCode::DeadlineExceeded, message));
            }
            Ok(ExecOutput {
                stdout: exec.stdout.into_bytes(),
                stderr: exec.stderr.into_bytes(),
                exit_code: exec.exit_code,
            })
        })
    }
}
