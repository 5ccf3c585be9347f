//! Kubernetes `resource.Quantity`: exact arithmetic in nano units, parsing, canonical text.
//!
//! A value is an `i128` of nano units, exact for every value of the API (±(2⁶³−1) with nine decimal
//! places). Finer input is rounded away from zero, as upstream, so that a small request never
//! becomes zero.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Add;
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

const NANO: i128 = 1_000_000_000;
/// Upstream caps quantities at `int64`.
const MAX_NANO: i128 = i64::MAX as i128 * NANO;
/// Decimal digits that always fit `i128`.
const SAFE_DIGITS: usize = 38;

const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// Suffixes for exponents −9, −6, … 18.
const DECIMAL_SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

/// Suffixes of a quantity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuantityFormat {
    /// `n u m k M G T P E`, powers of 1000.
    #[default]
    DecimalSi,
    /// `Ki Mi Gi Ti Pi Ei`, powers of 1024.
    BinarySi,
    /// `e3`, `e6`, …
    DecimalExponent,
}

/// An amount of a resource.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nano: i128,
    format: QuantityFormat,
}

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text is empty.
    #[error("quantity is empty")]
    Empty,
    /// The part before the suffix is not a decimal number.
    #[error("quantity {0:?} does not start with a decimal number")]
    Number(String),
    /// The suffix is unknown.
    #[error("quantity {0:?} has an unknown suffix")]
    Suffix(String),
}

impl Quantity {
    /// Zero.
    pub const ZERO: Self = Self {
        nano: 0,
        format: QuantityFormat::DecimalSi,
    };

    /// Creates a whole number of units.
    pub fn from_units(units: i64, format: QuantityFormat) -> Self {
        Self {
            nano: i128::from(units) * NANO,
            format,
        }
    }

    /// Creates a number of thousandths, the usual unit of CPU.
    pub fn from_milli(milli: i64) -> Self {
        Self {
            nano: i128::from(milli) * (NANO / 1000),
            format: QuantityFormat::DecimalSi,
        }
    }

    /// Returns the exact value in nano units.
    pub fn nanos(self) -> i128 {
        self.nano
    }

    /// Returns whole units, rounded away from zero: bytes of memory, whole CPUs.
    pub fn value(self) -> i64 {
        saturate(divide_up(self.nano, NANO))
    }

    /// Returns thousandths, rounded away from zero: milli-CPU.
    pub fn milli_value(self) -> i64 {
        saturate(divide_up(self.nano, NANO / 1000))
    }

    /// Returns whether the value is exactly zero.
    pub fn is_zero(self) -> bool {
        self.nano == 0
    }

    /// Returns the value divided by `divisor`, rounded up. A zero divisor counts as 1.
    ///
    /// As upstream, both are first rounded up to thousandths (`milli`, for CPU) or whole units.
    pub fn in_units_of(self, divisor: Self, milli: bool) -> i64 {
        let divisor = if divisor.is_zero() {
            Self::from_units(1, QuantityFormat::DecimalSi)
        } else {
            divisor
        };
        let (amount, unit) = if milli {
            (self.milli_value(), divisor.milli_value())
        } else {
            (self.value(), divisor.value())
        };
        saturate(divide_up(i128::from(amount), i128::from(unit)))
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

/// The sum has the format of the left side, or of the right side if the left is zero.
impl Add for Quantity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            nano: (self.nano + other.nano).clamp(-MAX_NANO, MAX_NANO),
            format: if self.is_zero() {
                other.format
            } else {
                self.format
            },
        }
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Empty);
        }
        let (negative, unsigned) = match text.as_bytes()[0] {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let end = unsigned
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(QuantityError::Number(text.to_owned()));
        }
        let (scale, mut format) =
            parse_suffix(suffix).ok_or_else(|| QuantityError::Suffix(text.to_owned()))?;
        let magnitude = match scale {
            Scale::Ten(exponent) => decimal_nanos(whole, fraction, exponent),
            Scale::Kibi(power) => binary_nanos(whole, fraction, power),
        }
        .min(MAX_NANO);
        if format == QuantityFormat::BinarySi && magnitude > 0 && magnitude < NANO {
            format = QuantityFormat::DecimalSi;
        }
        Ok(Self {
            nano: if negative { -magnitude } else { magnitude },
            format,
        })
    }
}

/// The canonical text: no fraction, the largest suffix that keeps the number whole.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nano == 0 {
            return f.write_str("0");
        }
        let whole = self.nano % NANO == 0;
        if self.format == QuantityFormat::BinarySi && whole && self.nano.abs() >= 1024 * NANO {
            let mut mantissa = self.nano / NANO;
            let mut power = 0;
            while mantissa % 1024 == 0 && power + 1 < BINARY_SUFFIXES.len() {
                mantissa /= 1024;
                power += 1;
            }
            return write!(f, "{mantissa}{}", BINARY_SUFFIXES[power]);
        }
        let mut mantissa = self.nano;
        let mut step = 0;
        while mantissa % 1000 == 0 && step + 1 < DECIMAL_SUFFIXES.len() {
            mantissa /= 1000;
            step += 1;
        }
        if self.format == QuantityFormat::DecimalExponent {
            return match step as i32 * 3 - 9 {
                0 => write!(f, "{mantissa}"),
                exponent => write!(f, "{mantissa}e{exponent}"),
            };
        }
        write!(f, "{mantissa}{}", DECIMAL_SUFFIXES[step])
    }
}

/// Returns one entry of a resource list, `None` if absent.
///
/// # Errors
/// The entry is not a quantity.
pub fn lookup(
    list: Option<&BTreeMap<String, ApiQuantity>>,
    name: &str,
) -> Result<Option<Quantity>, QuantityError> {
    list.and_then(|l| l.get(name))
        .map(|q| q.0.parse())
        .transpose()
}

enum Scale {
    Ten(i32),
    Kibi(u32),
}

fn parse_suffix(suffix: &str) -> Option<(Scale, QuantityFormat)> {
    if let Some(step) = DECIMAL_SUFFIXES.iter().position(|s| *s == suffix) {
        return Some((Scale::Ten(step as i32 * 3 - 9), QuantityFormat::DecimalSi));
    }
    if let Some(power) = BINARY_SUFFIXES.iter().position(|s| *s == suffix) {
        return Some((Scale::Kibi(power as u32), QuantityFormat::BinarySi));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    Some((
        Scale::Ten(exponent.parse().ok()?),
        QuantityFormat::DecimalExponent,
    ))
}

/// Returns `whole.fraction × 10^exponent` in nanos, rounded up; exact.
fn decimal_nanos(whole: &str, fraction: &str, exponent: i32) -> i128 {
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return 0;
    }
    let shift = i64::from(exponent) + 9 - fraction.len() as i64;
    let length = digits.len() as i64 + shift;
    if length > SAFE_DIGITS as i64 {
        return MAX_NANO;
    }
    if shift >= 0 {
        return parse_digits(digits) * 10_i128.pow(shift as u32);
    }
    let keep = length.max(0) as usize;
    let rest_is_zero = digits[keep..].bytes().all(|b| b == b'0');
    parse_digits(&digits[..keep]) + i128::from(!rest_is_zero)
}

/// Returns `whole.fraction × 1024^power` in nanos, rounded up; exact for 22 fraction digits.
fn binary_nanos(whole: &str, fraction: &str, power: u32) -> i128 {
    const LIMB: usize = 11;
    let base = 10_i128.pow(LIMB as u32);
    let unit = 1024_i128.pow(power) * NANO;
    let whole = whole.trim_start_matches('0');
    if whole.len() > 19 {
        return MAX_NANO;
    }
    let Some(whole) = parse_digits(whole).checked_mul(unit) else {
        return MAX_NANO;
    };
    // two limbs keep each product below 2¹²⁷
    let padded = format!("{fraction:0<width$}", width = 2 * LIMB);
    let high = unit * parse_digits(&padded[..LIMB]);
    let low = unit * parse_digits(&padded[LIMB..2 * LIMB]) + (high % base) * base;
    let inexact = low % (base * base) != 0 || padded[2 * LIMB..].bytes().any(|b| b != b'0');
    whole + high / base + low / (base * base) + i128::from(inexact)
}

fn parse_digits(digits: &str) -> i128 {
    digits.bytes().fold(0, |n, b| n * 10 + i128::from(b - b'0'))
}

fn divide_up(amount: i128, unit: i128) -> i128 {
    let quotient = amount / unit;
    match amount % unit {
        0 => quotient,
        _ if (amount > 0) == (unit > 0) => quotient + 1,
        _ => quotient - 1,
    }
}

fn saturate(n: i128) -> i64 {
    i64::try_from(n).unwrap_or(if n > 0 { i64::MAX } else { i64::MIN })
}

#[cfg(test)]
mod tests;
