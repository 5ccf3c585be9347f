//! Kubelet configuration: merges defaults, files, drop-ins and flags into a [`Config`].
//!
//! Precedence, lowest first: built-in defaults, `--config`, the `*.conf` files of `--config-dir`,
//! flags. Layers are JSON values merged as in RFC 7386. Each layer is decoded before the merge, so
//! that a wrong type or an unknown field is reported with its file and line.
//!
//! # Entry points
//!
//! * [`load()`] returns a validated [`Config`] for [`KubeletFlags`], or all errors at once
//! * [`load::report::report`] reports every setting as supported, ignored or rejected
//! * [`KubeletConfiguration`] is `kubelet.config.k8s.io/v1beta1`, with upstream's defaults
//! * [`FeatureGates`] are the gates; [`fields::FIELDS`] lists the support of each field
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
//! `cargo run -p windlass-config --example read_configuration -- config.yaml` prints the report.
//!
//! # Guarantees
//!
//! * Fields, flags, defaults and rules are those of the Go kubelet 1.36; differences are in the
//!   [`Support`](fields::Support) of a field.
//! * All errors are reported together, with file, line and remedy. Settings without full support
//!   are reported once, as a [`Warning`].
//! * A file has at most 1 MiB. The report contains no values, because some are secrets.
//!
//! # Limits
//!
//! Files are read once, at startup. Only [`checks`] and [`node`] read the host.

/// An array of tuples, or of calls of a constructor, with one row per line.
macro_rules! rows {
    ($constructor:ident: $($($cell:expr),+;)*) => { [$($constructor($($cell),+)),*] };
    ($($($cell:expr),+;)*) => { [$(($($cell),+)),*] };
}

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
mod eviction;
mod managers;
pub mod node;

use windlass_units::duration;

pub use collector::CollectorAddress;
pub use duration::GoDuration;
pub use flags::KubeletFlags;
pub use gates::FeatureGates;
pub use kubelet::KubeletConfiguration;
pub use load::{Config, ConfigError, Warning, load};
pub use shown::shown_flags;
pub use validate::percent;
