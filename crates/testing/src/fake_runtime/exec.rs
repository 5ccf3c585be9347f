//! Commands run in containers: what they do, and how many were run at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use windlass_cri::{CriCode, CriResult};
use windlass_types::cri::ExecOutput;
use windlass_types::{ContainerId, PodUid};

use super::FakeRuntime;
use super::operation::Operation;
use super::driver::SimDriver;

/// What a command does. Without a script it writes nothing and ends at once with 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exec {
    /// Its exit code.
    pub exit_code: i32,
    /// What it writes to standard output.
    pub stdout: String,
    /// What it writes to standard error.
    pub stderr: String,
    /// How long it runs. Longer than its timeout: it is killed then and the caller hears
    /// `DeadlineExceeded`. A command that the runtime itself forgets is `Fault::hang`.
    pub takes: Duration,
    /// The runtime cannot run it.
    pub error: Option<(CriCode, String)>,
}

impl Exec {
    /// Ends at once with `exit_code`.
    pub fn exits(exit_code: i32) -> Self {
        Self {
            exit_code,
            ..Self::default()
        }
    }

    /// Ends at once with `exit_code` after it wrote `stdout`.
    pub fn prints(exit_code: i32, stdout: &str) -> Self {
        Self {
            stdout: stdout.to_owned(),
            ..Self::exits(exit_code)
        }
    }

    /// Never ends by itself.
    pub fn hangs() -> Self {
        Self::default().taking(Duration::MAX)
    }

    /// The runtime refuses to run it.
    pub fn fails(code: CriCode, message: &str) -> Self {
        Self {
            error: Some((code, message.to_owned())),
            ..Self::default()
        }
    }

    /// Runs so long before it ends.
    pub fn taking(mut self, takes: Duration) -> Self {
        self.takes = takes;
        self
    }
}

/// The scripts and the counts.
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
    /// The script for the next command: of this container and command, of this container.
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

/// Counts a command while it lives.
struct InFlight {
    driver: Arc<SimDriver>,
    key: (PodUid, String),
}

impl InFlight {
    /// Also tells how many were run in this container before.
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

/// Scripting and counting commands.
impl FakeRuntime {
    /// What commands do. `key` is `namespace/pod/container` or a container name, either of them
    /// with a space and the command (its words joined by spaces) for that command only.
    pub fn set_exec(&self, key: &str, exec: Exec) {
        self.script_execs(key, vec![exec]);
    }

    /// One script for each command run in a container of a pod, counted over all its instances;
    /// the last goes for all further ones.
    pub fn script_execs(&self, key: &str, execs: Vec<Exec>) {
        self.driver
            .change(|state| state.execs.scripts.insert(key.to_owned(), execs));
    }

    /// How many commands were begun in a container of a pod, over all its instances.
    pub fn execs(&self, uid: &PodUid, container: &str) -> u32 {
        self.exec_count(uid, container).begun
    }

    /// How many commands run in it now.
    pub fn execs_in_flight(&self, uid: &PodUid, container: &str) -> u32 {
        self.exec_count(uid, container).in_flight
    }

    /// How many ran in it at one time at most: whoever promises never to pile up has 1 here.
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
        // The command dies with its container.
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
