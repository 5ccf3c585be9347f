//! The machine that loses its power: its disk survives, and what was not flushed to it does not.
//!
//! Each boot writes into a new layer of the disk (qcow2). QEMU keeps the tables that say which block of
//! the layer is used in its memory until the machine flushes, so SIGKILL loses blocks that were written
//! since the last flush, and a block that was flushed before in this boot keeps its new content: writes
//! are lost in part and out of order, as by a disk with a cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::Child;
use tokio::time::{Instant, sleep, timeout};
use windlass_chaos::MachineFile;
use windlass_testbed::debian::{self, Package};

use super::machine::{BOOTS, Hardware, Machine, falls_silent};
use super::payload;
use super::system::{self, System, succeed};
use xtask_run as run;

/// Packages besides those of the machine.
const PACKAGES: &[Package] = &[Package {
    name: "qemu-utils",
    probe: &["/usr/bin/qemu-img"],
}];
/// Memory in MiB of the machine.
const MEMORY: u64 = 2048;
/// Arguments of the kernel: a service may take longer to start than on a real processor.
const KERNEL: &[&str] = &["systemd.default_timeout_start_sec=600"];
/// Cluster of a layer: a page of the file system, so that each is lost or kept alone.
const CLUSTER: &str = "cluster_size=4k";
/// Timeout of the preparation.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Timeout until the system runs scripts.
const START_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// Timeout of a script, which ends itself after 300 s.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(360);
/// Timeout until QEMU listens.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(50);
/// Files of the system besides those of the run.
const FILES: &[(&str, &str)] = &[
    (
        "usr/lib/windlass-vm/power.sh",
        include_str!("guest/power.sh"),
    ),
    (
        "etc/systemd/system/windlass-power.service",
        include_str!("guest/windlass-power.service"),
    ),
    (
        "etc/systemd/system.conf.d/slow.conf",
        "[Manager]\nDefaultDeviceTimeoutSec=600\n",
    ),
];

/// Runs the power cuts of the options.
pub(crate) async fn run(options: &windlass_chaos::Options) -> anyhow::Result<()> {
    let work = super::work()?;
    let _lock = super::lock(&work)?;
    debian::ensure(super::PACKAGES, run::step)?;
    debian::ensure(PACKAGES, run::step)?;
    let agent = options.agent()?;
    let system = system::ensure(&work)?;
    let mut machine = PowerMachine::new(system, &work)?;
    windlass_chaos::run_power_cuts(options, &agent, &mut machine).await
}

/// A machine whose power can be cut. Dropping it removes its disk.
struct PowerMachine {
    system: System,
    hardware: Hardware,
    work: PathBuf,
    /// Directory of the layers.
    folder: tempfile::TempDir,
    running: Option<Running>,
    hung_boots: usize,
}

struct Running {
    qemu: Child,
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    /// Number of the last script.
    scripts: u64,
}

impl PowerMachine {
    fn new(system: System, work: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("power-").tempdir_in(work)?;
        Ok(Self {
            system,
            hardware: Hardware::with_memory(MEMORY, KERNEL),
            work: work.to_owned(),
            folder,
            running: None,
            hung_boots: 0,
        })
    }

    /// What is on the disk since the last cut.
    fn disk(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    /// What this boot writes.
    fn layer(&self) -> PathBuf {
        self.folder.path().join("layer")
    }

    fn console(&self) -> PathBuf {
        self.work.join("console.log")
    }

    fn new_layer(&self) -> anyhow::Result<()> {
        create_layer(&self.disk(), "qcow2", &self.layer())
    }

    /// Kills QEMU and merges into the disk what it has of the layer.
    async fn stop(&mut self) -> anyhow::Result<()> {
        let Some(mut running) = self.running.take() else {
            return Ok(());
        };
        running.qemu.kill().await?;
        let mut commit = Command::new("qemu-img");
        succeed(
            commit
                .args(["commit", "-q", "-f", "qcow2"])
                .arg(self.layer()),
        )
        .context("cannot keep what the machine wrote")?;
        fs::remove_file(self.layer())?;
        Ok(())
    }

    /// Whether the system answers; false if the machine stopped or hangs before it starts.
    async fn answers(&mut self) -> anyhow::Result<bool> {
        let console = self.console();
        let running = self.running.as_mut().context("the machine is off")?;
        tokio::select! {
            answer = running.run("echo started") => Ok(answer.is_ok()),
            () = falls_silent(&console) => Ok(false),
            () = sleep(START_TIMEOUT) => Ok(false),
        }
    }
}

fn create_layer(below: &Path, format: &str, layer: &Path) -> anyhow::Result<()> {
    let mut create = Command::new("qemu-img");
    create.args(["create", "-q", "-f", "qcow2", "-o", CLUSTER]);
    succeed(create.args(["-F", format, "-b"]).arg(below).arg(layer)).context("a layer of the disk")
}

impl windlass_chaos::Machine for PowerMachine {
    async fn prepare(&mut self, agent: &Path, files: &[MachineFile]) -> anyhow::Result<()> {
        let mut all: Vec<(&str, &str)> = FILES.to_vec();
        let of_run = files.iter();
        all.extend(of_run.map(|file| (file.path.trim_start_matches('/'), file.text.as_str())));
        let payload = payload::of_power(&self.work, agent, &all)?;
        create_layer(&self.system.disk, "raw", &self.disk())?;
        let disk = self.disk();
        let machine = Machine {
            system: &self.system,
            kept: Some(&disk),
            payload: Some(&payload),
            hardware: &self.hardware,
            work: &self.work,
        };
        machine.test(PREPARE_TIMEOUT).await
    }

    async fn power_on(&mut self) -> anyhow::Result<()> {
        self.stop().await?;
        self.new_layer()?;
        let console = self.console();
        let _ = fs::remove_file(&console);
        let socket = self.folder.path().join("control");
        let _ = fs::remove_file(&socket);
        let layer = self.layer();
        let machine = Machine {
            system: &self.system,
            kept: Some(&layer),
            payload: None,
            hardware: &self.hardware,
            work: &self.work,
        };
        let control = format!(
            "socket,id=control,path={},server=on,wait=off",
            socket.display()
        );
        let mut command = machine.command_of_kept_disk()?;
        command
            .arg("-serial")
            .arg(format!("file:{}", console.display()))
            .args(["-device", "virtio-serial-pci", "-chardev", &control])
            .args([
                "-device",
                "virtserialport,chardev=control,name=windlass.control",
            ])
            .stdin(Stdio::null());
        let qemu = command.spawn().context("cannot run qemu-system-x86_64")?;
        let (reader, writer) = connect(&socket).await?.into_split();
        self.running = Some(Running {
            qemu,
            reader: BufReader::new(reader),
            writer,
            scripts: 0,
        });
        Ok(())
    }

    async fn system_started(&mut self) -> anyhow::Result<()> {
        for _ in 0..BOOTS {
            if self.answers().await? {
                return Ok(());
            }
            run::step("the virtual machine stopped while booting; booting again");
            self.hung_boots += 1;
            self.power_on().await?;
        }
        bail!(
            "the virtual machine does not boot; see {}",
            self.console().display()
        )
    }

    async fn run(&mut self, script: &str) -> anyhow::Result<String> {
        let console = self.console();
        let running = self.running.as_mut().context("the machine is off")?;
        timeout(SCRIPT_TIMEOUT, running.run(script))
            .await
            .context("a script does not end")
            .flatten()
            .with_context(|| format!("in the virtual machine; see {}", console.display()))
    }

    async fn cut(&mut self) -> anyhow::Result<()> {
        self.stop().await
    }

    fn hung_boots(&self) -> usize {
        self.hung_boots
    }
}

impl Running {
    async fn run(&mut self, script: &str) -> anyhow::Result<String> {
        self.scripts += 1;
        let line = format!("{} {}\n", self.scripts, STANDARD.encode(script));
        self.writer.write_all(line.as_bytes()).await?;
        let mut line = String::new();
        loop {
            line.clear();
            if self.reader.read_line(&mut line).await? == 0 {
                bail!("the machine stopped");
            }
            if let Some(output) = output_of(&line, self.scripts) {
                let output = STANDARD.decode(output).context("output of a script")?;
                return Ok(String::from_utf8_lossy(&output).into_owned());
            }
        }
    }
}

/// Output in a line of the machine, if it is of the script with this number.
fn output_of(line: &str, number: u64) -> Option<&str> {
    let (of, output) = line
        .trim_end()
        .split_once(' ')
        .unwrap_or((line.trim_end(), ""));
    (of.parse() == Ok(number)).then_some(output)
}

async fn connect(socket: &Path) -> anyhow::Result<UnixStream> {
    let end = Instant::now() + CONNECT_TIMEOUT;
    loop {
        match UnixStream::connect(socket).await {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() > end => {
                return Err(error).context("QEMU does not listen");
            }
            Err(_) => sleep(POLL).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_another_script_is_skipped() {
        assert_eq!(output_of("3 YWJj\n", 3), Some("YWJj"));
        assert_eq!(output_of("3\n", 3), Some(""));
        assert_eq!(output_of("2 YWJj\n", 3), None);
        assert_eq!(output_of("noise\n", 3), None);
    }
}
