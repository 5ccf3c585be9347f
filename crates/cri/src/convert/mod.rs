//! The client's side of the CRI: requests to protobuf, responses from protobuf.
//!
//! The other direction is in `windlass_testing::fake_runtime`, which shares the public functions.

mod request;
mod response;

pub(crate) use request::*;
pub use request::{
    mount_from_pb, mount_to_pb, resources_from_pb, resources_to_pb, signal_from_pb, signal_to_pb,
};
pub(crate) use response::*;

use windlass_types::Timestamp;

/// Converts nanoseconds since the epoch; 0 means "not set" in the CRI.
pub(crate) fn moment(nanos: i64) -> Option<Timestamp> {
    if nanos == 0 {
        return None;
    }
    Timestamp::from_nanosecond(i128::from(nanos)).ok()
}

#[cfg(test)]
mod tests;
