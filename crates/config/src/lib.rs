//! What the operator asks for: flags, configuration file and drop-ins become one [`Config`].
//!
//! Layers, weakest first: built-in defaults, `--config`, the `*.conf` files of `--config-dir`,
//! flags set explicitly. Layers are plain JSON values merged as RFC 7386 says; each is decoded
//! on its own first, so that a wrong type or an unknown field is reported with its file and
//! line. The result is validated as a whole and all faults are reported together.

pub mod duration;
pub mod gates;
pub mod kubelet;

pub mod flags;

pub mod fields;
pub mod layers;
pub mod load;
pub mod shown;
pub mod tls;
pub mod validate;

pub mod checks;
pub mod collector;
pub mod node;

pub use collector::CollectorAddress;
pub use duration::GoDuration;
pub use flags::KubeletFlags;
pub use gates::FeatureGates;
pub use kubelet::KubeletConfiguration;
pub use load::{Config, ConfigError, Warning, load};
pub use shown::shown_flags;
