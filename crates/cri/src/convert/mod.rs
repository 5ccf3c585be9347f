//! Protobuf on the wire, `windlass_types::cri` in the house: conversions both ways.
//!
//! The client uses `request` forwards and `response` backwards; the fake runtime's server the
//! other way round, so that both sides agree on one reading.

mod request;
mod response;

pub use request::*;
pub use response::*;

use windlass_types::Timestamp;

/// Nanoseconds since the epoch as a moment; 0 means "not set" throughout the CRI.
pub(crate) fn moment(nanos: i64) -> Option<Timestamp> {
    if nanos == 0 {
        return None;
    }
    Timestamp::from_nanosecond(i128::from(nanos)).ok()
}

/// A moment as nanoseconds since the epoch; `None` as 0.
pub(crate) fn nanos(moment: Option<Timestamp>) -> i64 {
    moment.map_or(0, |moment| {
        i64::try_from(moment.as_nanosecond()).unwrap_or(i64::MAX)
    })
}

#[cfg(test)]
mod tests;
