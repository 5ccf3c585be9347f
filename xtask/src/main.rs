//! Every chore of the workspace, as `cargo xtask <command>`. What a command needs and the
//! machine lacks is installed or named with the fix; nothing has to be set up by hand.

mod tidy;
mod verify;

mod crates;
mod cross;
mod demo;
mod fuzz;
mod image;
mod manifests;
mod phases;
mod reference;
mod terminal;
mod vm;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use windlass_bench as bench;

/// Chores of the Windlass workspace.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run every check and test: formatting, clippy, tidy, unit to real-containerd tests.
    ///
    /// Installs what is missing (Debian packages, cargo-nextest). The tests on a real containerd
    /// need root; they start a containerd of their own and leave nothing behind.
    Test(verify::Options),
    /// What CI runs: `test`, then the optimised build of both binaries.
    Ci,
    /// Check the rules of the code base: crate edges, module heads, file sizes, documents.
    Tidy,
    /// Check that each library crate can be taken alone: page, examples, public names, dependencies,
    /// compiling by itself, packaging.
    Crates(crates::Options),
    /// Regenerate the gRPC code from `proto/`.
    Codegen,
    /// Regenerate the reference pages in `docs/reference` from the code.
    Reference,
    /// Run the examples on a containerd of its own and show their pods; Ctrl-C removes it all.
    Demo(demo::Options),
    /// Measure windlass against the bare CRI sequence on the same private containerd.
    ///
    /// Prints a Markdown table; takes about ten minutes, most of it the optimised build.
    Bench(bench::Options),
    /// Build the images of the agent, its container runtime and sandboxes, without a container engine.
    ///
    /// Writes OCI layouts, archives for `ctr images import`, and lists of parts (SPDX); fails if an
    /// image has outgrown its limit. With several platforms each image is an index.
    Image(image::Options),
    /// Write the DaemonSet's manifests as plain files, one for each overlay of `deploy/`.
    Manifests(manifests::Options),
    /// Run only the tests on a real containerd.
    E2e,
    /// Run the tests on a real containerd in a virtual machine with cgroup v2 and systemd, or a shell.
    ///
    /// The machine is emulated: it needs no KVM and is about ten times slower than the host. It is made of
    /// Debian packages once, and starts in half a minute afterwards. It changes nothing on the host.
    Vm(vm::Options),
    /// Build for aarch64 with Debian's cross-compiler, and run unit tests and simulations under qemu.
    ///
    /// Installs what is missing: Debian packages and, with rustup, the target of Rust.
    Cross(cross::Options),
    /// Give parsers invented bytes; installs cargo-fuzz if it is missing.
    Fuzz(fuzz::Options),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Test(options) => block_on(verify::test(&options)),
        Command::Ci => block_on(verify::ci()),
        Command::Tidy => tidy::run(),
        Command::Crates(options) => block_on(crates::run(&options)),
        Command::Codegen => xtask_run::cargo(&["run", "--quiet", "--package", "windlass-codegen"]),
        Command::Reference => reference::run(),
        Command::Demo(options) => block_on(demo::run(&options)),
        Command::Bench(options) => block_on(bench::run(&options)),
        Command::Image(options) => image::run(&options),
        Command::Manifests(options) => manifests::run(&options),
        Command::E2e => verify::e2e(),
        Command::Vm(options) => block_on(vm::run(&options)),
        Command::Cross(options) => cross::run(&options),
        Command::Fuzz(options) => fuzz::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn block_on(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(work)
}
