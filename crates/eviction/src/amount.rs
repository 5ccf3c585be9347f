//! An amount in the configuration: a quantity, or a share of the capacity.

use std::fmt;

use windlass_units::quantity::{Quantity, QuantityFormat};

/// A threshold or a minimum reclaim.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// An amount of the resource.
    Quantity(Quantity),
    /// A share of the capacity between 0 and 1, in single precision as upstream.
    Percentage(f32),
}

impl Amount {
    /// Reads `100Mi` or `5%`; `None` for anything else, including infinite shares.
    pub fn parse(text: &str) -> Option<Self> {
        match text.strip_suffix('%') {
            Some(percent) => {
                let percent: f32 = percent.parse().ok()?;
                percent
                    .is_finite()
                    .then_some(Self::Percentage(percent / 100.0))
            }
            None => text.parse().ok().map(Self::Quantity),
        }
    }

    /// Returns the amount for a capacity (upstream `GetThresholdQuantity`).
    pub fn resolve(self, capacity: u64) -> Quantity {
        match self {
            Self::Quantity(quantity) => quantity,
            Self::Percentage(share) => Quantity::from_units(
                (capacity as f64 * f64::from(share)) as i64,
                QuantityFormat::BinarySi,
            ),
        }
    }
}

/// The text of the configuration.
impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quantity(quantity) => write!(f, "{quantity}"),
            Self::Percentage(share) => write!(f, "{}%", share * 100.0),
        }
    }
}
