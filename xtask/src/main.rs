//! Development tasks of the workspace: `cargo xtask <command>`. Missing tools are installed, or
//! reported with the fix.

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
mod sim;
mod terminal;
mod vm;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use windlass_bench as bench;
use windlass_chaos as chaos;

/// Development tasks of the Windlass workspace.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run all checks and tests: formatting, clippy, tidy, unit tests and tests on containerd.
    ///
    /// Installs missing Debian packages and cargo-nextest. Tests on containerd require root; they
    /// start a private containerd and remove it.
    Test(verify::Options),
    /// Run the checks of CI: `test`, then the release build of both binaries.
    Ci,
    /// Check the rules of the code base: crate edges, module heads, file sizes, documents.
    Tidy,
    /// Check that each library crate is usable alone: documentation, examples, public names,
    /// dependencies, separate compilation, packaging.
    Crates(crates::Options),
    /// Regenerate the gRPC code from `proto/`.
    Codegen,
    /// Regenerate the reference pages in `docs/reference` from the code.
    Reference,
    /// Run the examples on a private containerd and show their pods; Ctrl-C removes everything.
    Demo(demo::Options),
    /// Measure windlass against the bare CRI sequence on the same private containerd.
    ///
    /// Prints a Markdown table. Takes about ten minutes, mostly for the release build.
    Bench(Box<bench::Options>),
    /// Kill the agent, the runtime and containers at random instants under load; count the damage.
    ///
    /// Prints a Markdown table; fails if a count exceeds its budget.
    Chaos(chaos::Options),
    /// Build the images of the agent, its container runtime and sandboxes, without a container
    /// engine.
    ///
    /// Writes OCI layouts, archives for `ctr images import`, and SBOMs (SPDX). Fails if an image
    /// exceeds its size limit. With several platforms each image is an index.
    Image(image::Options),
    /// Write the DaemonSet's manifests as plain files, one for each overlay of `deploy/`.
    Manifests(manifests::Options),
    /// Run the tests on containerd.
    E2e,
    /// Run the tests on containerd, or a shell, in a virtual machine with cgroup v2 and systemd.
    ///
    /// The machine is emulated: it does not require KVM and is about ten times slower than the
    /// host. It is built from Debian packages once, then starts in half a minute. It does not
    /// change the host.
    Vm(vm::Options),
    /// Build for aarch64 with Debian's cross-compiler, and run unit tests and simulations under
    /// qemu.
    ///
    /// Installs missing Debian packages and, with rustup, the Rust target.
    Cross(cross::Options),
    /// Fuzz the parsers; installs cargo-fuzz if missing.
    Fuzz(fuzz::Options),
    /// Simulate hours of a node with faults, and check invariants; `sim --help` lists the options.
    #[command(disable_help_flag = true)]
    Sim(sim::Options),
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
        Command::Chaos(options) if options.wants_power_cuts() => block_on(vm::power::run(&options)),
        Command::Chaos(options) => block_on(chaos::run(&options)),
        Command::Image(options) => image::run(&options),
        Command::Manifests(options) => manifests::run(&options),
        Command::E2e => verify::e2e(),
        Command::Vm(options) => block_on(vm::run(&options)),
        Command::Cross(options) => cross::run(&options),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Sim(options) => sim::run(&options),
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
