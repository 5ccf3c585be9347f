//! Quantities, durations, hashes and rates with the text and arithmetic of Kubernetes.
//!
//! For programs that sum resource requests, read durations of configuration files, or compute
//! hashes that must match those of the Go kubelet.
//!
//! # Entry points
//!
//! * [`quantity::Quantity`] is an exact `resource.Quantity`: parsing, canonical text, sums;
//!   [`quantity::lookup`] reads one entry of a resource list
//! * [`duration::GoDuration`] reads and prints durations of Go such as `1m30s`
//! * [`hash::container_hash`] is the hash in the annotation of a container; [`hash::fnv1a_32`] and
//!   the other sizes are FNV-1a
//! * [`token_bucket::TokenBucket`] is a rate limit with a burst, for any clock
//!
//! # Example
//!
//! ```
//! use windlass_units::duration::GoDuration;
//! use windlass_units::quantity::Quantity;
//!
//! let sum = "512Mi".parse::<Quantity>()? + "1.5Gi".parse()?;
//! assert_eq!(sum.to_string(), "2Gi");
//! assert_eq!(sum.value(), 2 << 30);
//! assert_eq!("250m".parse::<Quantity>()?.milli_value(), 250);
//!
//! let timeout: GoDuration = "90s".parse()?;
//! assert_eq!(timeout.to_string(), "1m30s");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `cargo run -p windlass-units --example sum_quantities -- 100m 0.5 2` prints the sum of
//! quantities in several units.
//!
//! # Guarantees
//!
//! Arithmetic is exact to nano units. Finer values are rounded away from zero, and values beyond
//! `int64` are capped, as upstream. The text of a quantity parses back to the same value. Parsers
//! never panic.
//!
//! # Limits
//!
//! Quantities have no subtraction and no `inf.Dec` beyond `int64`. Hashes are not cryptographic.

pub mod duration;
pub mod hash;
pub mod quantity;
pub mod token_bucket;
