//! The virtual machine: its hardware, and one run of it.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context, bail};
use tokio::io::{
    AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, Split,
};
use tokio::process::{Child, ChildStdout, Command};

use super::payload::Payload;
use super::system::System;
use xtask_run as run;

/// Start of the machine's last line of output.
const EXIT_CODE: &str = "windlass-vm: exit code ";
/// First line of its output.
const BOOTED: &str = "windlass-vm: booted";
/// Output of the kernel when it starts the system.
const SYSTEM_STARTED: &str = "Run /init as init process";
/// Start of the shell's prompt.
const PROMPT: &[u8] = b"root@windlass-vm:";
/// Max silence of the console while booting. Debian's kernel sometimes hangs silently before it
/// starts the system, with more than one emulated CPU.
const CONSOLE_SILENCE: Duration = Duration::from_secs(45);
/// Max attempts to boot.
pub(super) const BOOTS: u32 = 4;
/// Timeout of a boot. On a host without time for it, systemd stops waiting for the disk of the tests and
/// boots without them.
const BOOT_TIMEOUT: Duration = Duration::from_secs(600);
/// Timeout of powering off after the tests.
const POWER_OFF: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;
/// Min memory for the system and a pod.
const MIN_MEMORY: u64 = 512;

/// Hardware of the machine.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Hardware {
    /// Memory in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 3072)]
    memory: u64,
    /// Number of CPUs.
    #[arg(long, value_name = "N", default_value_t = 2)]
    cpus: u64,
    /// Number of NUMA nodes; CPUs and memory are divided among them.
    #[arg(long, value_name = "N", default_value_t = 1)]
    numa: u64,
    /// Swap space in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 0)]
    swap: u64,
    /// Size in MiB of an empty disk (/dev/disk/by-id/virtio-disk0, …); may be repeated.
    #[arg(long, value_name = "MIB")]
    disk: Vec<u64>,
    /// Argument of the kernel, such as psi=0; may be repeated.
    #[arg(long, value_name = "ARG")]
    kernel: Vec<String>,
}

impl Default for Hardware {
    fn default() -> Self {
        Self {
            memory: 3072,
            cpus: 2,
            numa: 1,
            swap: 0,
            disk: Vec::new(),
            kernel: Vec::new(),
        }
    }
}

impl Hardware {
    /// The default with this much memory in MiB and these arguments of the kernel.
    pub(super) fn with_memory(memory: u64, kernel: &[&str]) -> Self {
        Self {
            memory,
            kernel: kernel.iter().map(|&argument| argument.to_owned()).collect(),
            ..Self::default()
        }
    }

    /// Fails for an unsupported combination.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if self.memory < MIN_MEMORY {
            bail!(
                "--memory {}: the machine needs {MIN_MEMORY} MiB",
                self.memory
            );
        }
        if self.cpus == 0 || self.numa == 0 {
            bail!("--cpus and --numa are 1 or more");
        }
        let nodes = self.numa;
        if !self.cpus.is_multiple_of(nodes) || !self.memory.is_multiple_of(nodes) {
            bail!(
                "--numa {nodes}: does not divide --cpus {} and --memory {}",
                self.cpus,
                self.memory
            );
        }
        Ok(())
    }

    /// Arguments of qemu for CPUs and memory.
    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            "-smp".to_owned(),
            format!("{},sockets={}", self.cpus, self.numa),
            "-m".to_owned(),
            self.memory.to_string(),
        ];
        if self.numa > 1 {
            let (cpus, memory) = (self.cpus / self.numa, self.memory / self.numa);
            for node in 0..self.numa {
                let (first, last) = (node * cpus, (node + 1) * cpus - 1);
                arguments.extend([
                    "-object".to_owned(),
                    format!("memory-backend-ram,id=memory{node},size={memory}M"),
                    "-numa".to_owned(),
                    format!("node,nodeid={node},memdev=memory{node},cpus={first}-{last}"),
                ]);
            }
        }
        arguments
    }
}

/// Purpose of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Test,
    Shell,
    /// The units that are enabled on a kept disk, with the host reachable.
    Kept,
}

/// A machine that can be started.
pub(super) struct Machine<'a> {
    pub(super) system: &'a System,
    /// A layer above the system disk that keeps what the machine writes; without it that is
    /// discarded.
    pub(super) kept: Option<&'a Path>,
    pub(super) payload: Option<&'a Payload>,
    pub(super) hardware: &'a Hardware,
    pub(super) work: &'a Path,
}

impl Machine<'_> {
    /// Runs the tests of the payload with visible output; fails if a test fails.
    pub(super) async fn test(&self, deadline: Duration) -> anyhow::Result<()> {
        let console = self.work.join("console.log");
        run::step(&format!(
            "starting the virtual machine (emulated, no /dev/kvm); its console is in {}",
            console.display()
        ));
        let (mut qemu, mut output) = self.boot(&console).await?;
        let result = tokio::select! {
            result = tokio::time::timeout(deadline, show(&mut output)) => result,
            _ = run::interrupted() => bail!("interrupted; the virtual machine is stopped"),
        };
        let named = || format!("see {}", console.display());
        let code = match result {
            Ok(code) => code.with_context(named)?,
            Err(_) => {
                qemu.kill().await?;
                bail!("the tests did not end within {deadline:?}; {}", named());
            }
        };
        if tokio::time::timeout(POWER_OFF, qemu.wait()).await.is_err() {
            qemu.kill().await?;
        }
        match code {
            0 => Ok(()),
            code => bail!(
                "tests in the virtual machine failed (exit code {code}); {}",
                named()
            ),
        }
    }

    /// Starts the machine, with retries if it hangs while booting.
    async fn boot(&self, console: &Path) -> anyhow::Result<(Child, Output)> {
        for boot in 1..=BOOTS {
            let _ = fs::remove_file(console);
            let mut qemu = self.start_with_output(console)?;
            let output = qemu.stdout.take().context("qemu's output")?;
            let mut output = BufReader::new(output).split(b'\n');
            let booted = tokio::select! {
                booted = is_booted(&mut output) => booted?,
                () = falls_silent(console) => false,
                () = tokio::time::sleep(BOOT_TIMEOUT) => false,
                _ = run::interrupted() => bail!("interrupted; the virtual machine is stopped"),
            };
            if booted {
                return Ok((qemu, output));
            }
            qemu.kill().await?;
            run::step(&format!(
                "the virtual machine stopped while booting (attempt {boot} of {BOOTS})"
            ));
        }
        bail!(
            "the virtual machine does not boot; see {}",
            console.display()
        )
    }

    fn start_with_output(&self, console: &Path) -> anyhow::Result<Child> {
        let mut command = self.command(Mode::Test)?;
        command
            .arg("-serial")
            .arg(format!("file:{}", console.display()))
            .args([
                "-device",
                "virtio-serial-pci",
                "-chardev",
                "file,id=output,path=/dev/stdout",
            ])
            .args([
                "-device",
                "virtserialport,chardev=output,name=windlass.output",
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        command.spawn().context("cannot run qemu-system-x86_64")
    }

    /// Connects the terminal to a shell on the machine until it is powered off.
    pub(super) async fn shell(&self) -> anyhow::Result<()> {
        run::step("starting the virtual machine; `poweroff` or Ctrl-A X ends it");
        let mut command = self.command(Mode::Shell)?;
        command.args(["-serial", "mon:stdio"]);
        if !io::stdin().is_terminal() {
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
        }
        let mut qemu = command.spawn().context("cannot run qemu-system-x86_64")?;
        if let (Some(input), Some(output)) = (qemu.stdin.take(), qemu.stdout.take()) {
            let mut input = fs::File::from(input.into_owned_fd()?);
            // a thread of its own: a read of standard input would delay the end of the runtime
            let forward = || {
                drop(thread::spawn(move || {
                    io::copy(&mut io::stdin(), &mut input)
                }))
            };
            show_shell(output, tokio::io::stdout(), forward).await?;
        }
        let status = qemu.wait().await?;
        if !status.success() {
            bail!("qemu ended with {status}");
        }
        Ok(())
    }

    /// Returns the command of a machine that runs what is enabled on its kept disk.
    pub(super) fn command_of_kept_disk(&self) -> anyhow::Result<Command> {
        self.command(Mode::Kept)
    }

    fn command(&self, mode: Mode) -> anyhow::Result<Command> {
        let (wanted, network) = match mode {
            // no network outside of the machine
            Mode::Test => (
                "systemd.wants=windlass-test.service",
                "user,id=net,restrict=on",
            ),
            Mode::Shell => (
                "systemd.wants=windlass-shell.service systemd.wants=windlass.service quiet",
                "user,id=net",
            ),
            Mode::Kept => ("", "user,id=net"),
        };
        let swap = if self.hardware.swap > 0 {
            " windlass.swap"
        } else {
            ""
        };
        let more = self.hardware.kernel.join(" ");
        let mut command = Command::new("qemu-system-x86_64");
        command
            // not KVM, which hangs where it is broken
            .args(["-accel", "tcg,thread=multi", "-cpu", "max"])
            .args(self.hardware.arguments())
            .args([
                "-nodefaults",
                "-no-user-config",
                "-no-reboot",
                "-display",
                "none",
            ])
            .arg("-kernel")
            .arg(&self.system.kernel)
            .arg("-initrd")
            .arg(&self.system.initramfs)
            .args([
                "-append",
                &format!("console=ttyS0 panic=-1 {wanted}{swap} {more}"),
            ])
            .args(["-device", "virtio-rng-pci", "-netdev", network])
            .args(["-device", "virtio-net-pci,netdev=net"])
            // changes of the disks are stored in unnamed files
            .env("TMPDIR", self.work)
            .kill_on_drop(true);
        match self.kept {
            // flushes of the machine reach the layer: without them nothing that it wrote survives
            Some(layer) => add_drive(
                &mut command,
                layer,
                "system",
                "format=qcow2,cache=writeback",
            ),
            None => self.add_disk(&mut command, &self.system.disk, "system"),
        }
        if let Some(payload) = self.payload {
            self.add_disk(&mut command, &payload.disk, "payload");
        }
        if self.hardware.swap > 0 {
            let path = self.empty_disk("swap", self.hardware.swap)?;
            self.add_disk(&mut command, &path, "swap");
        }
        for (number, size) in self.hardware.disk.iter().enumerate() {
            let name = format!("disk{number}");
            let path = self.empty_disk(&name, *size)?;
            self.add_disk(&mut command, &path, &name);
        }
        Ok(command)
    }

    fn add_disk(&self, command: &mut Command, path: &Path, name: &str) {
        add_drive(command, path, name, "format=raw,snapshot=on,cache=unsafe");
    }

    fn empty_disk(&self, name: &str, megabytes: u64) -> anyhow::Result<PathBuf> {
        let path = self.work.join(name);
        let file = fs::File::create(&path).with_context(|| path.display().to_string())?;
        file.set_len(megabytes * MIB)?;
        Ok(path)
    }
}

fn add_drive(command: &mut Command, path: &Path, name: &str, how: &str) {
    let drive = format!(
        "file={},id={name},if=none,{how}",
        // a comma ends a value
        path.display().to_string().replace(',', ",,")
    );
    command.args(["-drive", &drive]);
    command.args([
        "-device",
        &format!("virtio-blk-pci,drive={name},serial={name}"),
    ]);
}

/// Copies the output of a shell on the machine. `at_prompt` starts its input: what is sent before the
/// first prompt is lost.
async fn show_shell(
    mut output: impl AsyncRead + Unpin,
    mut shown: impl AsyncWrite + Unpin,
    at_prompt: impl FnOnce(),
) -> io::Result<()> {
    let mut at_prompt = Some(at_prompt);
    let mut end = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let length = output.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        let part = &buffer[..length];
        shown.write_all(part).await?;
        shown.flush().await?;
        end.extend_from_slice(part);
        if end.windows(PROMPT.len()).any(|text| text == PROMPT)
            && let Some(at_prompt) = at_prompt.take()
        {
            at_prompt();
        }
        // the prompt may arrive in parts
        end.drain(..end.len().saturating_sub(PROMPT.len()));
    }
}

/// Output of the machine.
type Output = Split<BufReader<ChildStdout>>;

async fn next_line(output: &mut Output) -> anyhow::Result<Option<String>> {
    let line = output.next_segment().await?;
    Ok(line.map(|line| {
        let line = String::from_utf8_lossy(&line);
        line.trim_end_matches('\r').to_owned()
    }))
}

/// False if the machine stopped before it had booted.
async fn is_booted(output: &mut Output) -> anyhow::Result<bool> {
    while let Some(line) = next_line(output).await? {
        if line == BOOTED {
            return Ok(true);
        }
        println!("{line}");
    }
    Ok(false)
}

/// Completes when the console is silent for [`CONSOLE_SILENCE`] before the system starts.
pub(super) async fn falls_silent(console: &Path) {
    let read = || fs::read(console).unwrap_or_default();
    let mut before = read().len();
    loop {
        tokio::time::sleep(CONSOLE_SILENCE).await;
        let text = read();
        if String::from_utf8_lossy(&text).contains(SYSTEM_STARTED) {
            return std::future::pending().await;
        }
        if text.len() == before {
            return;
        }
        before = text.len();
    }
}

/// Prints the output of the machine and returns its exit code.
async fn show(output: &mut Output) -> anyhow::Result<i32> {
    while let Some(line) = next_line(output).await? {
        if let Some(code) = line.strip_prefix(EXIT_CODE) {
            return code.trim().parse().context("an exit code");
        }
        println!("{line}");
    }
    bail!("the virtual machine ended before its tests")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hardware(cpus: u64, memory: u64, numa: u64) -> Hardware {
        Hardware {
            cpus,
            memory,
            numa,
            ..Hardware::default()
        }
    }

    #[tokio::test]
    async fn input_of_shell_begins_at_the_first_prompt() {
        let (output, mut machine) = tokio::io::duplex(64);
        let (shown, mut terminal) = tokio::io::duplex(1024);
        let (started, mut has_started) = tokio::sync::oneshot::channel();
        let shell = tokio::spawn(show_shell(output, shown, || {
            started.send(()).expect("received");
        }));
        let mut expect = async |text: &[u8]| {
            machine.write_all(text).await.expect("written");
            let mut found = vec![0; text.len()];
            terminal.read_exact(&mut found).await.expect("read");
            assert_eq!(found, text);
        };
        expect(b"windlass-vm login: root (automatic login)\r\nroot@wind").await;
        assert!(has_started.try_recv().is_err());
        expect(b"lass-vm:~# ").await;
        expect(b"ls\r\nroot@windlass-vm:~# ").await;
        assert!(has_started.try_recv().is_ok());
        drop(machine);
        shell.await.expect("no panic").expect("shown");
    }

    #[test]
    fn numa_nodes_divide_cpus_and_memory() {
        let arguments = hardware(4, 2048, 2).arguments().join(" ");
        assert_eq!(
            arguments,
            "-smp 4,sockets=2 -m 2048 \
             -object memory-backend-ram,id=memory0,size=1024M -numa node,nodeid=0,memdev=memory0,cpus=0-1 \
             -object memory-backend-ram,id=memory1,size=1024M -numa node,nodeid=1,memdev=memory1,cpus=2-3"
        );
        assert_eq!(
            hardware(2, 1024, 1).arguments().join(" "),
            "-smp 2,sockets=1 -m 1024"
        );
    }

    #[test]
    fn hardware_that_no_machine_can_have_is_rejected() {
        let check = |hardware: Hardware, expected: &str| {
            let error = hardware.check().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check(hardware(2, 100, 1), "needs 512 MiB");
        check(hardware(0, 1024, 1), "1 or more");
        check(hardware(3, 1024, 2), "does not divide");
        assert!(hardware(4, 1024, 2).check().is_ok());
    }
}
