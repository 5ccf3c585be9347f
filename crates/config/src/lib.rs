//! What the operator asks for: flags, configuration file and drop-ins become one [`Config`].
//!
//! For whoever has a kubelet's configuration to read or to check: another agent, an installer, a
//! linter. Layers, weakest first: built-in defaults, `--config`, the `*.conf` files of
//! `--config-dir`, flags set explicitly. Layers are plain JSON values merged as RFC 7386 says; each
//! is decoded on its own first, so that a wrong type or an unknown field is reported with its file
//! and line.
//!
//! # The way in
//!
//! * [`load()`] reads what [`KubeletFlags`] point to and gives a validated [`Config`], or every
//!   fault of it at once
//! * [`load::report::report`] never stops at a fault: it says of each setting whether it is
//!   supported, ignored (why) or refused
//! * [`KubeletConfiguration`] is `kubelet.config.k8s.io/v1beta1`, with upstream's defaults
//! * [`FeatureGates`] are the gates, [`fields::FIELDS`] the table of what each field does in this
//!   version
//!
//! # Example
//!
//! ```
//! use windlass_config::{KubeletFlags, load};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let file = folder.path().join("config.yaml");
//! std::fs::write(
//!     &file,
//!     "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 60\n",
//! )?;
//! let line = ["kubelet", "--config", &file.to_string_lossy(), "--node-ip=10.0.0.7"];
//! let flags = KubeletFlags::from_args(line.map(Into::into))?;
//! let config = load(&flags)?;
//! assert_eq!(config.kubelet.max_pods, 60);
//! assert_eq!(config.kubelet.sync_frequency.to_string(), "1m0s", "upstream's default");
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run -p windlass-config --example read_configuration -- config.yaml` says what would be
//! acted upon, ignored and refused.
//!
//! # What it promises
//!
//! * What is accepted is what the Go kubelet 1.36 accepts, with its defaults, its flags
//!   (underscores too) and its rules; what differs is told by [`Support`](fields::Support) of the
//!   field.
//! * The result is validated as a whole and all faults are reported together, with file, line and
//!   how to mend them. What is accepted and not acted upon is told once, as a [`Warning`].
//! * A file is at most 1 MiB. The report shows no values: some are secrets.
//!
//! # What it does not do
//!
//! It watches nothing: a changed file counts when the agent starts again. It does not look at the
//! machine, but for [`checks`] and [`node`], which are asked for separately.

pub mod gates;
pub mod kubelet;

pub mod flags;

pub mod fields;
pub mod layers;
pub mod load;
mod shown;
pub mod tls;
pub mod validate;

pub mod checks;
mod collector;
pub mod node;

use windlass_units::duration;

pub use collector::CollectorAddress;
pub use duration::GoDuration;
pub use flags::KubeletFlags;
pub use gates::FeatureGates;
pub use kubelet::KubeletConfiguration;
pub use load::{Config, ConfigError, Warning, load};
pub use shown::shown_flags;
