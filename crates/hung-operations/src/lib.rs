//! Operations of pods that do not end: one list for the whole agent.
//!
//! A mount, a call of the container runtime, of a CSI driver or of a plugin, a hook, a probe or a
//! read of a log may hang. Each of them waits in a task of its own, so it delays its pod only; this
//! list is how the agent says which pod that is, what hangs, and since when.
//!
//! # Entry points
//!
//! * [`HungOperations::track`] runs work and lists it while it takes longer than a threshold
//! * [`HungOperations::begin`] lists an operation that is known to hang
//! * [`HungOperations::list`] returns what hangs now, [`HungOperations::subscribe`] its changes
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use windlass_hung_operations::{HungOperations, Operation, OperationKind};
//! use windlass_mailboxes::SystemClock;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! const THRESHOLD: Duration = Duration::from_millis(10);
//!
//! let hung = HungOperations::new(Arc::new(SystemClock));
//! let mount = || Operation::of_pod(OperationKind::Volume, &"u1".into(), "mount of volume data");
//! let work = async {
//!     tokio::time::sleep(2 * THRESHOLD).await;
//!     hung.list().len()
//! };
//! let listed = hung.track(THRESHOLD, mount, |_| true, work).await;
//! assert_eq!(listed, 1, "it was listed while it ran");
//! assert!(hung.list().is_empty(), "and is not any more");
//! # }
//! ```
//!
//! `cargo run -p windlass-hung-operations --example follow_a_hang` prints the list as it changes.
//!
//! # Guarantees
//!
//! * An operation that ends within its threshold costs one timer: no lock, no allocation.
//! * Without a hung operation nothing wakes. Readers wake when an operation is added or removed, and
//!   once when one that was not retried is due to be removed ([`HungOperations::next_expiry`]).
//! * An attempt that ended without an answer stays listed with its first start until the operation
//!   is answered, or was not retried for [`RETRY_WINDOW`].
//! * Work that is dropped is removed from the list.
//!
//! # Limits
//!
//! Nothing is cancelled or retried here: timeouts and back-off are the caller's. The list knows UIDs,
//! not names of pods, and does not survive a restart: what still hangs is listed again.

mod list;
mod operation;

pub use list::{HungAttempt, HungOperations, RETRY_WINDOW};
pub use operation::{HungOperation, Operation, OperationKind};
