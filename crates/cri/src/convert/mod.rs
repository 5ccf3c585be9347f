//! Conversions between CRI protobuf messages and `windlass_types::cri`, in both directions.
//!
//! The client and the fake runtime's server share them, so that both sides agree.

mod request;
mod response;

pub use request::*;
pub use response::*;

use windlass_types::Timestamp;

/// Converts nanoseconds since the epoch; 0 means "not set" in the CRI.
pub(crate) fn moment(nanos: i64) -> Option<Timestamp> {
    if nanos == 0 {
        return None;
    }
    Timestamp::from_nanosecond(i128::from(nanos)).ok()
}

/// Converts to nanoseconds since the epoch; `None` becomes 0.
pub(crate) fn nanos(moment: Option<Timestamp>) -> i64 {
    moment.map_or(0, |moment| {
        i64::try_from(moment.as_nanosecond()).unwrap_or(i64::MAX)
    })
}

#[cfg(test)]
mod tests;
