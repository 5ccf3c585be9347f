//! The system disk: Debian with a kernel, systemd, containerd and runc, created by mmdebstrap and
//! cached in
//! `target/vm` by a hash of its inputs.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use xtask_run as run;

/// Packages besides mmdebstrap's variant `minbase`.
const PACKAGES: &[&str] = &[
    "linux-image-cloud-amd64",
    "systemd",
    "systemd-sysv",
    "dbus",
    "udev",
    "kmod",
    "procps",
    "iproute2",
    "iptables",
    "ca-certificates",
    "containerd",
    "runc",
    "containernetworking-plugins",
    "busybox-static",
    // for tests that compile a program or strip the agent
    "gcc",
    "libc6-dev",
];
/// Modules that the initial RAM file system loads; the others are loaded by udev and the kernel.
const BOOT_MODULES: &[&str] = &["virtio_pci", "virtio_blk", "ext4"];
/// Additional files of the system.
const FILES: &[(&str, &str)] = &[
    (
        "usr/lib/windlass-vm/payload.sh",
        include_str!("guest/payload.sh"),
    ),
    ("usr/lib/windlass-vm/test.sh", include_str!("guest/test.sh")),
    (
        "usr/lib/windlass-vm/shell.sh",
        include_str!("guest/shell.sh"),
    ),
    (
        "etc/systemd/system/windlass-payload.service",
        include_str!("guest/windlass-payload.service"),
    ),
    (
        "etc/systemd/system/windlass-test.service",
        include_str!("guest/windlass-test.service"),
    ),
    (
        "etc/systemd/system/windlass-shell.service",
        include_str!("guest/windlass-shell.service"),
    ),
    (
        "etc/systemd/system/windlass.service",
        include_str!("../../../deploy/systemd/windlass.service"),
    ),
    (
        "etc/systemd/system/serial-getty@ttyS0.service.d/autologin.conf",
        // a first prompt at which `windlassctl` finds the agent's socket
        "[Unit]\nAfter=windlass.service\n[Service]\nExecStart=\nExecStart=-/sbin/agetty --autologin root --keep-baud 115200 %I linux\n",
    ),
    (
        "etc/containerd/config.toml",
        include_str!("guest/containerd.toml"),
    ),
    (
        "etc/cni/net.d/10-pods.conflist",
        include_str!("guest/cni.conflist"),
    ),
    (
        "etc/windlass/kubelet.yaml",
        include_str!("guest/kubelet.yaml"),
    ),
    (
        "etc/systemd/network/10-eth.network",
        include_str!("guest/eth.network"),
    ),
    (
        "etc/modprobe.d/windlass-vm.conf",
        "blacklist kvm_amd\nblacklist kvm_intel\nblacklist kvm\nblacklist powernow_k8\nblacklist acpi_cpufreq\n",
    ),
    ("etc/resolv.conf", "nameserver 10.0.2.3\n"),
    ("etc/hostname", "windlass-vm\n"),
    (
        "etc/hosts",
        "127.0.0.1 localhost windlass-vm\n::1 localhost\n",
    ),
    ("etc/motd", include_str!("guest/motd")),
    ("etc/fstab", ""),
];
/// Units that are not required, or only started by `--shell`.
const DISABLED: &[&str] = &[
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "getty@tty1.service",
    "systemd-timesyncd.service",
];
const INIT: &str = include_str!("guest/init.sh");
/// Size of the disk, a sparse file.
const SIZE: &str = "8G";

/// Boot files of a machine.
#[derive(Debug)]
pub(super) struct System {
    pub(super) disk: PathBuf,
    pub(super) kernel: PathBuf,
    pub(super) initramfs: PathBuf,
}

/// Returns the cached system, or creates it and removes others.
pub(super) fn ensure(work: &Path) -> anyhow::Result<System> {
    let suite = suite()?;
    let name = format!("system-{:016x}", key(&suite));
    let folder = work.join(&name);
    if !folder.exists() {
        remove_others(work)?;
        run::step(&format!(
            "making the virtual machine's disk: Debian {suite} with a kernel, systemd and containerd (a minute or two, once)"
        ));
        let staging = work.join("system.new");
        make(&suite, &staging).with_context(|| format!("cannot make {}", folder.display()))?;
        fs::rename(&staging, &folder)?;
    }
    Ok(System {
        disk: folder.join("disk"),
        kernel: folder.join("kernel"),
        initramfs: folder.join("initramfs"),
    })
}

/// Debian suite of the host, whose C library the built programs require.
fn suite() -> anyhow::Result<String> {
    let text = fs::read_to_string("/etc/os-release").context("/etc/os-release")?;
    let value = |name: &str| {
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.map(|value| value.trim_matches('"').to_owned())
    };
    match (value("ID").as_deref(), value("VERSION_CODENAME")) {
        (Some("debian"), Some(suite)) => Ok(suite),
        _ => bail!(
            "the virtual machine is made of this machine's Debian suite, and this is not Debian"
        ),
    }
}

fn key(suite: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (suite, PACKAGES, BOOT_MODULES, FILES, DISABLED, INIT, SIZE).hash(&mut hasher);
    hasher.finish()
}

fn remove_others(work: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(work)?.flatten() {
        if entry.file_name().to_string_lossy().starts_with("system") {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

fn make(suite: &str, folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder)?;
    let root = folder.join("root");
    let mut mmdebstrap = Command::new("mmdebstrap");
    mmdebstrap
        .args(["--quiet", "--mode=root", "--variant=minbase"])
        .arg("--dpkgopt=path-exclude=/usr/share/doc/*")
        .arg("--dpkgopt=path-exclude=/usr/share/man/*")
        .arg("--dpkgopt=path-exclude=/usr/share/locale/*")
        .arg("--dpkgopt=force-unsafe-io")
        .arg(format!("--include={}", PACKAGES.join(",")))
        .arg(suite)
        .arg(&root)
        // the initial RAM file system is built here
        .env("INITRD", "No");
    succeed(&mut mmdebstrap).context("fix: check that deb.debian.org can be reached")?;
    configure(&root)?;
    let version = kernel_version(&root)?;
    let kernel = root.join(format!("boot/vmlinuz-{version}"));
    fs::copy(&kernel, folder.join("kernel")).with_context(|| kernel.display().to_string())?;
    initramfs(&root, &version, folder)?;
    let mut mke2fs = Command::new("mke2fs");
    mke2fs.args(["-q", "-t", "ext4", "-E", "lazy_itable_init=1", "-d"]);
    succeed(mke2fs.arg(&root).arg(folder.join("disk")).arg(SIZE))?;
    fs::remove_dir_all(&root)?;
    Ok(())
}

/// Writes the additional files and enables root login without a password.
fn configure(root: &Path) -> anyhow::Result<()> {
    for (path, text) in FILES {
        let path = root.join(path);
        let parent = path.parent().context("a path in a directory")?;
        fs::create_dir_all(parent)?;
        // never through a link, which could lead out of the system
        let _ = fs::remove_file(&path);
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    for unit in DISABLED {
        let path = root.join("etc/systemd/system").join(unit);
        let _ = fs::remove_file(&path);
        symlink("/dev/null", &path)?;
    }
    let wanted = root.join("etc/systemd/system/multi-user.target.wants");
    fs::create_dir_all(&wanted)?;
    let _ = fs::remove_file(wanted.join("containerd.service"));
    let networkd = wanted.join("systemd-networkd.service");
    let _ = fs::remove_file(&networkd);
    symlink("/lib/systemd/system/systemd-networkd.service", networkd)?;
    let shadow = root.join("etc/shadow");
    let text = fs::read_to_string(&shadow)?;
    fs::write(&shadow, text.replacen("root:*:", "root::", 1))?;
    Ok(())
}

fn kernel_version(root: &Path) -> anyhow::Result<String> {
    let mut entries = fs::read_dir(root.join("lib/modules"))?.flatten();
    let first = entries.next().context("no kernel was installed")?;
    Ok(first.file_name().to_string_lossy().into_owned())
}

/// Packs busybox, the modules of the disk, and a script that loads them.
fn initramfs(root: &Path, version: &str, folder: &Path) -> anyhow::Result<()> {
    let staging = folder.join("initramfs.new");
    for directory in ["bin", "dev", "modules", "root"] {
        fs::create_dir_all(staging.join(directory))?;
    }
    let busybox = root.join("bin/busybox");
    fs::copy(&busybox, staging.join("bin/busybox"))
        .with_context(|| busybox.display().to_string())?;
    let mut order = Vec::new();
    for module in BOOT_MODULES {
        for path in modules(root, version, module)? {
            let name = Path::new(&path).file_name().context("a module's name")?;
            let place = format!("/modules/{}", name.to_string_lossy());
            if !order.contains(&place) {
                fs::copy(
                    root.join(path.trim_start_matches('/')),
                    staging.join(&place[1..]),
                )?;
                order.push(place);
            }
        }
    }
    fs::write(staging.join("modules/order"), order.join("\n") + "\n")?;
    fs::write(staging.join("init"), INIT)?;
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(staging.join("init"), executable)?;

    let archive = fs::File::create(folder.join("initramfs"))?;
    let mut cpio = Command::new("cpio")
        .args(["--create", "--format=newc", "--quiet", "--owner=0:0"])
        .current_dir(&staging)
        .stdin(Stdio::piped())
        .stdout(archive)
        .spawn()
        .context("cannot run cpio")?;
    // the kernel unpacks in this order: directories first
    let fixed = [
        ".",
        "bin",
        "dev",
        "modules",
        "root",
        "init",
        "bin/busybox",
        "modules/order",
    ];
    let names = fixed
        .into_iter()
        .chain(order.iter().map(|place| &place[1..]));
    let names: String = names.map(|name| format!("{name}\n")).collect();
    let mut stdin = cpio.stdin.take().context("cpio's input")?;
    stdin.write_all(names.as_bytes())?;
    drop(stdin);
    if !cpio.wait()?.success() {
        bail!("cpio failed");
    }
    fs::remove_dir_all(staging)?;
    Ok(())
}

/// Files of a module and its dependencies, in load order.
fn modules(root: &Path, version: &str, module: &str) -> anyhow::Result<Vec<String>> {
    let output = Command::new("chroot")
        .arg(root)
        .args([
            "modprobe",
            "--show-depends",
            "--set-version",
            version,
            module,
        ])
        .output()
        .context("cannot run chroot")?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("modprobe {module}: {}", stderr.trim());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let files = text.lines().filter_map(|line| line.strip_prefix("insmod "));
    Ok(files.map(|path| path.trim().to_owned()).collect())
}

/// Runs a program and returns the end of its output if it fails.
pub(super) fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {name}"))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = stderr
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let tail = &lines[lines.len().saturating_sub(5)..];
    bail!("{name} failed: {}", tail.join("\n"))
}
