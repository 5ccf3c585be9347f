//! An amount in the configuration: a quantity, or a share of the capacity.

use std::fmt;

use windlass_units::quantity::{Quantity, QuantityFormat};

/// A threshold or a minimum reclaim.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// An amount of the resource.
    Quantity(Quantity),
    /// A share of the capacity in percent, in single precision as upstream.
    Percentage(f32),
}

impl Amount {
    /// Reads `100Mi` or `5%`; `None` for anything else, including infinite shares.
    pub fn parse(text: &str) -> Option<Self> {
        match text.strip_suffix('%') {
            Some(percent) => {
                let percent: f32 = percent.parse().ok()?;
                percent.is_finite().then_some(Self::Percentage(percent))
            }
            None => text.parse().ok().map(Self::Quantity),
        }
    }

    /// Reads a threshold; `None` for `0%` and `100%`, which disable it.
    ///
    /// # Errors
    /// What is wrong with it, to append to “invalid value”; empty if it cannot be read.
    pub fn parse_threshold(text: &str) -> Result<Option<Self>, &'static str> {
        let amount = Self::parse(text).ok_or("")?;
        match amount {
            _ if ["0%", "100%"].contains(&text) => Ok(None),
            Self::Percentage(percent) if percent < 0.0 => Err(", less than 0%"),
            Self::Percentage(percent) if percent > 100.0 => Err(", more than 100%"),
            Self::Quantity(quantity) if quantity <= Quantity::ZERO => Err(", not more than 0"),
            _ => Ok(Some(amount)),
        }
    }

    /// Reads a minimum reclaim: a share is more than 0, a quantity may be 0.
    ///
    /// # Errors
    /// As [`Self::parse_threshold`].
    pub(crate) fn parse_reclaim(text: &str) -> Result<Self, &'static str> {
        let amount = Self::parse(text).ok_or("")?;
        match amount {
            Self::Percentage(percent) if percent <= 0.0 => Err(", not more than 0%"),
            Self::Quantity(quantity) if quantity < Quantity::ZERO => Err(", less than 0"),
            _ => Ok(amount),
        }
    }

    /// Returns whether it is at most another one of the same kind, for every capacity.
    pub(crate) fn is_at_most(self, other: Self) -> bool {
        match (self, other) {
            (Self::Quantity(own), Self::Quantity(other)) => own <= other,
            (Self::Percentage(own), Self::Percentage(other)) => own <= other,
            _ => false,
        }
    }

    /// Returns the amount for a capacity (upstream `GetThresholdQuantity`).
    pub fn resolve(self, capacity: u64) -> Quantity {
        match self {
            Self::Quantity(quantity) => quantity,
            Self::Percentage(percent) => Quantity::from_units(
                (capacity as f64 * f64::from(percent / 100.0)) as i64,
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
            Self::Percentage(percent) => write!(f, "{percent}%"),
        }
    }
}
